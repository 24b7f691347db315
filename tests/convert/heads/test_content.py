"""The content terms are those of the draft's eq. (7), and off until they are trained."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from conv2attn.convert import ConversionError, ConvSpec, SelfAttention2d
from conv2attn.convert.errors import EngineError
from conv2attn.convert.size import Size
from tests.bounds import output_bound, softmax_bound

SPEC = ConvSpec(2, 3, kernel_size=(2, 1), stride=(1, 2), padding=(1, 0))
SIZE = Size(3, 4)


def layer_with_content(alpha: float = 0.5) -> SelfAttention2d:
    layer = SelfAttention2d(SPEC, alpha=alpha, dtype=torch.float64)
    content = layer.add_content(key_dim=5)
    with torch.no_grad():
        for parameter in content.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape))
    return layer


def integers(*shape: int) -> Tensor:
    """Small integers: with them, with the weights above and with alpha = 1/2, scores are exact."""
    return torch.randint(-2, 3, shape).double()


def test_content_terms_can_be_learned_from_there() -> None:
    layer = SelfAttention2d(SPEC, alpha=0.5)
    content = layer.add_content(key_dim=5)
    torch.autograd.backward(layer(torch.randn(2, 2, *SIZE)).square().sum())
    for name in ("query_weight", "key_bias"):
        gradient = getattr(content, name).grad
        assert gradient.abs().max() > 0


def test_the_scores_are_the_four_terms_of_equation_7() -> None:
    layer = layer_with_content()
    content = layer.content
    assert content is not None
    x = integers(1, 2, *SIZE)
    maps = layer.attention_probabilities(SIZE, x=x)[0]
    padded, vectors = SPEC.pad(x)[0], layer.head_vectors()
    rows, columns = SPEC.query_positions(SIZE)
    keys = [(r, c) for r in range(padded.shape[1]) for c in range(padded.shape[2])]
    for query, (i, j) in enumerate((i, j) for i in rows for j in columns):
        for head in range(SPEC.num_heads):
            scores = []
            for k in keys:
                delta = torch.tensor([k[0] - i, k[1] - j], dtype=torch.float64)
                r = torch.cat([delta.square().sum()[None], delta])
                E_q, E_k = padded[:, i, j], padded[:, k[0], k[1]]
                W_q, W_kE, W_kR = (w[head] for w in (content.query_weight, content.key_weight, content.position_weight))
                a = (W_q @ E_q) @ (W_kE @ E_k)
                b = (W_q @ E_q) @ (W_kR @ r)
                c = content.key_bias[head] @ (W_kE @ E_k)
                d = vectors[head] @ r
                scores.append(a + b + c + d)
            expected = torch.stack(scores).softmax(0).reshape(maps.shape[2:])
            assert ((maps[head, query] - expected).abs() <= softmax_bound(expected)).all()


@pytest.mark.parametrize("engine", ["factored", "sdpa"])
def test_an_engine_that_does_not_compute_content_terms_refuses(engine: str) -> None:
    layer = layer_with_content()
    layer.engine = engine
    with pytest.raises(EngineError, match="content terms"):
        layer(integers(2, 2, *SIZE))


def test_maps_with_content_depend_on_the_input_and_ask_for_it() -> None:
    layer = layer_with_content()
    with pytest.raises(ConversionError, match="pass x"):
        layer.attention_probabilities(SIZE)
    maps = layer.attention_probabilities(SIZE, x=torch.randn(3, 2, *SIZE, dtype=torch.float64))
    assert maps.shape == (3, 2, 8, 5, 4)


def test_each_image_of_a_batch_has_its_own_attention() -> None:
    layer = layer_with_content()
    x = integers(3, 2, *SIZE)
    batch, alone = (layer.attention_probabilities(SIZE, x=images) for images in (x, x[1:2]))
    assert ((batch[1] - alone[0]).abs() <= softmax_bound(alone[0])).all()
    assert ((layer(x)[1] - layer(x[1])).abs() <= output_bound(layer, x)).all()
    assert (batch[0] - batch[1]).abs().max() > 0.1
