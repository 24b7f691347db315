"""Content terms, some queries at a time: what the literal engine computes, forward and backward, in linear memory."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from conv2attn.convert import SelfAttention, attention_from_conv
from conv2attn.convert.engines import ENGINES, literal
from conv2attn.convert.engines.content import content_refusal
from conv2attn.convert.engines.sums import content_sum
from conv2attn.convert.errors import EngineError
from conv2attn.convert.size import Size
from tests.bounds import output_bound

CASES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "sequence": (nn.Conv1d(2, 3, 3, stride=2, padding=1), (7,)),
    "image": (nn.Conv2d(2, 3, (2, 3), stride=(1, 2), padding=(1, 0), padding_mode="circular"), (4, 5)),
    "groups": (nn.Conv2d(4, 6, 2, groups=2, dilation=2, bias=False), (5, 4)),
    "volume": (nn.Conv3d(1, 2, (2, 1, 2)), (3, 2, 4)),
    "transposed": (nn.ConvTranspose2d(4, 4, (2, 3), stride=2, groups=2), (2, 3)),
}
KEY_DIM = 3


def integers(*shape: int) -> Tensor:
    return torch.randint(-1, 2, shape).double()


def layer_and_input(case: str, *, gated: bool) -> tuple[SelfAttention, Tensor]:
    """A layer with content terms of small integers, all of whose positions and parameters are trained, and an input."""
    conv, size = CASES[case]
    layer = attention_from_conv(conv.double(), alpha=0.5)  # type: ignore[call-overload]
    assert isinstance(layer, SelfAttention)
    content = layer.add_content(KEY_DIM, gated=gated)
    with torch.no_grad():
        for parameter in (layer.weight, *content.parameters()):
            parameter.copy_(integers(*parameter.shape))
        layer.weight.abs_().add_(1)
        if content.gate is not None:
            content.gate.copy_(torch.linspace(-0.5, 1.5, layer.num_heads))
    for parameter in layer.parameters():
        parameter.requires_grad_()
    return layer, integers(2, layer.spec.in_channels, *size).requires_grad_()


def gradient_bound(layer: SelfAttention, x: Tensor, cotangent: Tensor) -> float:
    """How far apart two computations of a derivative can be.

    A derivative of an output is a sum over keys of p_k (s'_k - mean s') w x_k, or of p_k w, p_k x_k. So it errs by at
    most twice what an output errs by, times the largest derivative s' of a score: by a pixel or a parameter at most
    key_dim * channels times the square of (1 + max |x|), times the largest entry of the encoding.
    """
    grid = layer.spec.padded_size(Size(*x.shape[2:]))
    reach = math.hypot(*grid) + float(layer.centers.detach().abs().max())
    steepest = KEY_DIM * x.shape[1] * (1 + float(x.detach().abs().max())) ** 2 * (1 + reach**2)
    return 4 * steepest * float(cotangent.abs().sum()) * output_bound(layer, x.detach())


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("chunk", [1, 2**20])
def test_values_and_derivatives_are_the_literal_engines(
    case: str, gated: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_sum, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(literal, "_NEAR", chunk)
    layer, x = layer_and_input(case, gated=gated)
    found: dict[str, tuple[Tensor, tuple[Tensor, ...]]] = {}
    for engine in ("literal", "separable"):
        layer.engine = engine
        output = layer(x)
        cotangent = torch.ones_like(output)
        found[engine] = output, torch.autograd.grad(output, [x, *layer.parameters()], cotangent)
    (expected, wanted), (observed, gradients) = found["literal"], found["separable"]
    assert (observed - expected).abs().max() <= output_bound(layer, x.detach())
    for gradient, right in zip(gradients, wanted, strict=True):
        assert (gradient - right).abs().max() <= gradient_bound(layer, x, cotangent)


@pytest.mark.parametrize("gated", [False, True])
def test_derivatives_can_be_differentiated(gated: bool) -> None:
    layer, x = layer_and_input("image", gated=gated)
    assert layer.content is not None
    second = []
    for engine in ("literal", "separable"):
        layer.engine = engine
        (first,) = torch.autograd.grad(layer(x).sum(), layer.content.query_weight, create_graph=True)
        second.append(torch.autograd.grad(first.sum(), x)[0])
    scale = float(second[0].abs().max())
    assert scale > 0
    assert (second[1] - second[0]).abs().max() <= gradient_bound(layer, x, torch.ones(1)) * (1 + scale)


class Largest(TorchDispatchMode):
    """Remembers the most elements of a tensor that an operation made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        sizes = [
            leaf.untyped_storage().nbytes() // leaf.element_size() for leaf in tree_leaves(made) if _is_tensor(leaf)
        ]
        self.elements = max([self.elements, *sizes])
        return made


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, Tensor)


@pytest.mark.parametrize("gated", [False, True])
def test_no_tensor_has_an_entry_for_every_query_and_key(gated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_sum, "CHUNK_BYTES", 2**16)
    layer = attention_from_conv(nn.Conv2d(2, 3, 3, padding=1), alpha=1.0)
    layer.add_content(KEY_DIM, gated=gated)
    with Largest() as seen:
        torch.autograd.backward(layer(torch.randn(2, 2, 20, 24)).square().sum())
    assert seen.elements < 20 * 24 * 22 * 26  # of one head of one image


def test_no_exponential_is_subnormal_and_keys_that_weigh_next_to_nothing_weigh_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = attention_from_conv(nn.Conv2d(2, 3, 3, padding=1), alpha=2.0)
    layer.add_content(KEY_DIM)
    seen: list[tuple[Tensor, Tensor]] = []

    def noted(probabilities: Tensor, smallest: float, value: float, *, inplace: bool) -> Tensor:
        kept = F.threshold(probabilities, smallest, value)
        seen.append((probabilities.clone(), kept))
        return kept

    monkeypatch.setattr(content_sum, "F", SimpleNamespace(threshold=noted))
    layer(torch.randn(1, 2, 9, 20))
    tiny = torch.finfo(torch.float32).tiny
    assert math.exp(-2 * 18**2) < tiny  # what the farthest keys would weigh
    for probabilities, kept in seen:
        assert (probabilities > tiny).all()
        assert ((kept == 0) == (probabilities <= tiny**0.5)).all()
        assert (kept == 0).any()
        assert ((kept.sum(-1) - 1).abs() <= probabilities.shape[-1] * torch.finfo(torch.float32).eps).all()


def test_scores_of_all_images_and_queries_share_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_sum, "CHUNK_BYTES", 2**12)
    layer, x = layer_and_input("image", gated=False)
    places: set[int] = set()
    honest = content_sum._Part.attended

    def noted(part: content_sum._Part) -> tuple[Tensor, Tensor]:
        found = honest(part)
        places.add(found[0].data_ptr())
        return found

    monkeypatch.setattr(content_sum._Part, "attended", noted)
    layer(x)
    assert len(places) == 1


def test_auto_takes_the_separable_engine_and_the_literal_one_in_a_transform() -> None:
    layer, x = layer_and_input("image", gated=True)
    assert layer.explain(x.shape[2:]).startswith("separable")
    x = x.detach()
    layer.engine = "literal"
    with torch.no_grad():
        expected = layer(x)
    layer.engine = "auto"
    mapped = torch.func.vmap(lambda image: layer(image.unsqueeze(0)).squeeze(0))(x)
    assert (mapped - expected).abs().max() <= output_bound(layer, x)
    layer.engine = "separable"
    with pytest.raises(EngineError, match="content terms"):
        torch.func.vmap(layer)(x.unsqueeze(1))


@pytest.mark.parametrize("gated", [False, True])
def test_auto_takes_linear_memory_also_where_the_literal_engine_takes_fewer_flops(gated: bool) -> None:
    layer = attention_from_conv(nn.Conv2d(16, 2, 3, padding=1), alpha=2.0)
    layer.add_content(KEY_DIM, gated=gated)
    layer.requires_grad_(True)
    flops = {name: engine.cost(layer, Size(9, 8)).flops for name, engine in ENGINES.items()}
    assert flops["literal"] < flops["separable"]
    assert layer.explain((9, 8)).splitlines()[0] == (
        "separable: the cheapest that is exact for these parameters and takes memory linear in the pixels, "
        "for input 9x8, batch 1"
    )


def test_content_in_one_softmax_with_learned_tables_is_the_literal_engines() -> None:
    layer, x = layer_and_input("sequence", gated=False)
    layer.set_axis_scores(torch.randn(3, 21, dtype=torch.float64))
    assert "learned tables" in str(ENGINES["separable"].refusal(layer))
    assert layer.explain(x.shape[2:]).startswith("literal: the cheapest that is exact for these parameters, for")


@pytest.mark.parametrize(
    ("conv", "size", "heads", "queries", "keys"),
    [
        (nn.Conv1d(4, 10, 3, stride=2, groups=2).double(), Size(9), 3, 4, 9),
        (nn.Conv2d(4, 10, (2, 3), stride=(1, 2), padding=(1, 0), groups=2), Size(7, 9), 2 * 3, 8 * 4, 9 * 9),
    ],
)
@pytest.mark.parametrize("chunk", [3, 1000])
def test_content_costs_all_pairs_and_the_memory_of_some_queries(
    conv: nn.Conv1d | nn.Conv2d,
    size: Size,
    heads: int,
    queries: int,
    keys: int,
    chunk: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer, positional = attention_from_conv(conv, alpha=1.0), attention_from_conv(conv, alpha=1.0)
    layer.add_content(5)
    axes, element = len(size), conv.weight.element_size()
    monkeypatch.setattr(content_sum, "CHUNK_BYTES", chunk * heads * keys * element)
    separable, batch = ENGINES["separable"], 3
    cost = separable.cost(layer, size, batch=batch)
    each = 2 * (5 + axes + 1) + 4 + 2 * 4  # content's and position's products, the softmax, and that with the pixels
    assert cost.flops == batch * heads * queries * (keys * each + 2 * 10 * 4 // 2)
    assert type(cost.flops) is int
    of_query = 2 * 5 + 2 * (axes + 1)  # twice its content and its vector
    of_all = batch * (keys * (heads * 5 + 2 * 4) + queries * (heads * of_query + 10))
    assert cost.bytes == (heads * min(chunk, queries) * (2 * keys + 4) + of_all) * element
    assert separable.cost(layer, size) == separable.cost(layer, size, batch=1)
    layer.add_content(5, gated=True)
    assert separable.cost(layer, size, batch=batch) == cost + separable.cost(positional, size, batch=batch)


def test_content_is_computed_neither_where_it_is_traced_nor_where_it_is_followed_forward() -> None:
    layer, _ = layer_and_input("sequence", gated=False)
    assert layer.content is not None
    assert content_refusal(layer, layer.content) is None
    for mode in (FakeTensorMode(), forward_ad.dual_level()):
        with mode:
            assert "a trace or a transform" in str(content_refusal(layer, layer.content))


def test_scores_of_some_queries_take_8_mebibytes_and_one_query_is_always_taken() -> None:
    assert content_sum.queries_at_a_time(6, Size(100, 10), 4) == 8 * 2**20 // (6 * 100 * 10 * 4)
    assert content_sum.queries_at_a_time(6, Size(1000, 1000), 8) == 1


@pytest.mark.parametrize("grid", [Size(20), Size(4, 5), Size(2, 5, 2)])
@pytest.mark.parametrize("chunk", [3, 8])
def test_parts_take_all_queries_in_turn_and_compute_their_scores_in_the_same_memory(
    grid: Size, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_sum, "CHUNK_BYTES", 2 * 20 * 8 * chunk + 5)  # 2 heads, 20 keys
    pixels, mixing, asked, keys = (torch.ones(shape) for shape in ((3, 20, 1), (1, 2, 1), (3, 2, 7, 3), (3, 2, 3, 20)))
    vectors, positions = torch.ones(3, 2, 7, len(grid) + 1), torch.zeros(7, len(grid))
    tensors = [tensor.double() for tensor in (pixels, mixing, asked, keys, vectors, positions)]
    parts = list(content_sum._parts(tensors, grid))
    starts = range(0, 7, chunk)
    assert [(p.image, p.chosen.start) for p in parts] == [(image, start) for image in range(3) for start in starts]
    assert [p.queries.shape[1] for p in parts] == [min(chunk, 7 - start) for start in starts] * 3
    (memory,) = {p.memory.untyped_storage().data_ptr() for p in parts if p.memory is not None}
    for part in parts:
        assert part.memory is not None
        assert part.memory.untyped_storage().nbytes() == 2 * 2 * min(chunk, 7) * 20 * 8
        assert len(grid) == 1 or part._scores().data_ptr() == memory
        assert part.attended()[0].data_ptr() == part.memory[1].data_ptr() > memory


def test_what_is_added_to_all_scores_of_a_query_changes_nothing() -> None:
    size, added = Size(2, 9), torch.tensor([0.0, -9000.0, 9000.0, 1.0], dtype=torch.float64)
    source, weight = torch.randn(1, 2, *size, dtype=torch.float64), torch.randn(3, 1, 2, 2, dtype=torch.float64)
    keys, vectors = torch.ones(1, 3, 1, 18, dtype=torch.float64), -torch.ones(1, 3, 4, 3, dtype=torch.float64)
    positions = torch.tensor([[0, 0], [1, 3], [0, 8], [1, 5]], dtype=torch.float64)
    found = []
    for queries in (torch.zeros_like(added), added):
        scores = content_sum.Scores(queries.expand(1, 3, 4).unsqueeze(-1), keys, vectors, positions, size)
        found.append(content_sum.content_sum(source, weight, scores))
    assert torch.equal(found[0], found[1])


def test_the_backward_pass_computes_its_products_in_the_memory_of_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_sum, "CHUNK_BYTES", 2**12)
    layer, x = layer_and_input("image", gated=False)
    places: set[int] = set()
    honest = torch.mm

    def noted(left: Tensor, right: Tensor, *, out: Tensor) -> Tensor:
        places.add(out.data_ptr())
        return honest(left, right, out=out)

    output = layer(x).sum()
    monkeypatch.setattr(torch, "mm", noted)
    torch.autograd.backward(output)
    assert len(places) == 1
