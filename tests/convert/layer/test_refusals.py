"""What a layer cannot be, take or show is refused in one sentence, and the layer stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from conv2attn.convert import (
    ConversionError,
    ConvSpec,
    SelfAttention1d,
    SelfAttention2d,
    attention_from_conv,
    certify,
    conv_from_attention,
)
from conv2attn.convert.bounds.tail import tail_per_unit
from conv2attn.convert.errors import GeometryError, NotAConvolutionError
from conv2attn.convert.heads.values import SPARE_KEYS
from conv2attn.convert.layer.spare import SpareHeads
from tests.positions import move_center
from tests.small_models import with_trained_heads

SPEC = ConvSpec(4, 6, kernel_size=(3, 2), stride=(2, 1), padding=(1, 0), groups=2)
HEADS = SpareHeads(2, 5, 3, beside=True, positions=True)
Layer = SelfAttention2d


def made(change: Callable[[Layer], object] = id, **options: Any) -> Layer:
    """A layer of 2 and 3 channels, after a change."""
    layer = attention_from_conv(nn.Conv2d(2, 3, 3, padding=1), **options)
    change(layer)
    return layer


def spare(*, positions: bool = False) -> Layer:
    heads = HEADS if positions else SpareHeads(1, 5, 3)
    return made(lambda layer: layer.add_spare_heads(heads))


def with_content(layer: Layer) -> None:
    nn.init.constant_(layer.add_content(4).key_bias, 1e-6)


def with_content_in_scores(layer: Layer) -> None:
    for parameter in layer.add_content(5).parameters():
        nn.init.normal_(parameter)


def below(share: float) -> None:
    """Asks for a convolution within a share of how far soft attention is from it."""
    layer = made(alpha=5.0)
    conv_from_attention(layer, tolerance=share * tail_per_unit(layer.values()))


class Weights(nn.Module):
    """Gives the weights of a layer alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = made()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, need_weights=True)[1]  # type: ignore[no-any-return]


def limited() -> None:
    layer = made()
    layer.memory_limit = 10_000
    layer(torch.randn(1, 2, 7, 5), need_weights=True)


def narrow() -> None:
    layer = made(lambda layer: layer.train_positions(), alpha=2.0)
    weights = {"log_alpha": layer.get_parameter("log_alpha").bfloat16()}
    torch.func.functional_call(layer, weights, (torch.ones(1, 2, 5, 5),))


def maps(**options: Any) -> None:
    SelfAttention2d(SPEC).attention_probabilities((7, 5), **options)


any_layer: Any = attention_from_conv
REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "other channels": (lambda: SelfAttention2d(SPEC)(torch.zeros(2, 3, 7, 5)), ConversionError, r"got \[2, 3, 7, 5\]"),
    "other axes": (lambda: SelfAttention2d(SPEC)(torch.zeros(7, 5)), ConversionError, r"got \[7, 5\]"),
    "another dtype": (
        lambda: SelfAttention2d(SPEC)(torch.zeros(2, 4, 7, 5).double()),
        ConversionError,
        "torch.float64",
    ),
    "a small input": (lambda: SelfAttention2d(SPEC)(torch.zeros(2, 4, 7, 1)), ConversionError, "does not fit .* 7x1"),
    "a plane for a length": (lambda: any_layer(nn.Conv1d(1, 1, 3))(torch.ones(1, 1, 3, 3)), GeometryError, "1, length"),
    "a plane for a space": (lambda: any_layer(nn.Conv3d(1, 1, 3))(torch.ones(1, 3, 3)), GeometryError, "planes, rows"),
    "a spec of other axes": (lambda: SelfAttention1d(ConvSpec(1, 1, (3, 3))), ConversionError, "has 1 axes"),
    "an output size": (lambda: made()(torch.ones(1, 2, 3, 3), output_size=[3, 3]), GeometryError, "only a transposed"),
    "tables of other axes": (
        lambda: made().set_axis_scores(*(torch.zeros(9, 3) for _ in range(3))),
        GeometryError,
        "a score table for each",
    ),
    "a map of no head": (lambda: maps(heads=[6]), ConversionError, "numbered 0 to 5"),
    "a map of no pixel": (lambda: maps(queries=[(0, 4)]), ConversionError, "pixels of the output, 4x4"),
    "maps of a small input": (lambda: SelfAttention2d(SPEC).attention_probabilities((7, 1)), GeometryError, "7x1"),
    "content without its image": (
        lambda: made(with_content_in_scores, alpha=0.5).attention_probabilities((7, 5)),
        ConversionError,
        "pass x",
    ),
    "spare heads without their image": (
        lambda: spare().attention_probabilities((5, 5), heads=[9]),
        ConversionError,
        "spare heads look at the image",
    ),
    "no spare head": (lambda: spare().attention_probabilities((5, 5), heads=[10]), ConversionError, "numbered 0 to 9"),
    "weights beyond the memory": (limited, ConversionError, "memory"),
    "weights in a trace": (lambda: fx.symbolic_trace(Weights()), ConversionError, "input"),
    "a network": (lambda: any_layer(nn.Sequential(nn.Conv2d(2, 2, 3))), ConversionError, "convert_model converts"),
    "a linear layer": (lambda: any_layer(nn.Linear(2, 2)), ConversionError, "PyTorch's convolutions$"),
    "a moved centre": (
        lambda: conv_from_attention(made(lambda layer: move_center(layer, (4, 1), -0.5))),
        NotAConvolutionError,
        r"head 4 is at \(0\.0, -0\.5\), not at its kernel tap \(0, 0\)",
    ),
    "soft attention": (lambda: conv_from_attention(made(alpha=5.0)), NotAConvolutionError, "tolerance="),
    "too soft attention": (lambda: below(0.5), NotAConvolutionError, "more than tolerance"),
    "no tolerance": (lambda: below(float("nan")), ConversionError, "tolerance must be"),
    "content": (lambda: conv_from_attention(made(with_content)), NotAConvolutionError, "content terms are on"),
    "a certificate of trained heads": (
        lambda: certify(with_trained_heads(spare()), input_range=(-1, 1)),  # type: ignore[arg-type]
        ConversionError,
        "ungraft",
    ),
    "the convolution of trained heads": (
        lambda: conv_from_attention(with_trained_heads(spare(positions=True))),  # type: ignore[call-overload]
        ConversionError,
        "ungraft",
    ),
    "heads beside a transposed one": (
        lambda: any_layer(nn.ConvTranspose2d(2, 3, 3)).add_spare_heads(HEADS),
        ConversionError,
        "transposed",
    ),
    "second heads": (lambda: spare().add_spare_heads(HEADS), ConversionError, "already"),
    "positions in half precision": (narrow, ConversionError, "at least float32"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_a_layer_cannot_be_take_or_show_is_refused_in_words(kind: str) -> None:
    call, error, words = REFUSED[kind]
    with pytest.raises(error, match=words) as refused:
        call()
    assert "\n" not in str(refused.value)


WRITES: dict[str, Callable[[Layer], Any]] = {
    "an attribute": lambda layer: setattr(layer, "alpha", 1.0),
    "a parameter": lambda layer: setattr(layer, "centers", nn.Parameter(torch.zeros(9, 2))),
    "in place": lambda layer: layer.alpha.fill_(1.0),
    "an entry": lambda layer: layer.centers.__setitem__(0, 1.0),
    "its gradient": lambda layer: layer.alpha.requires_grad_(),
    "its gradient, as an attribute": lambda layer: setattr(layer.alpha, "requires_grad", True),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_would_be_in_vain_is_refused_and_names_what_sets_and_what_trains(write: str) -> None:
    layer = made(alpha=2.0)
    before = layer.positions
    with pytest.raises(ConversionError, match="set_positions") as refusal:
        WRITES[write](layer)
    assert "melt" in str(refusal.value)
    assert layer.positions == before


@pytest.mark.parametrize("dropped", [*SPARE_KEYS, "alpha", "centers"])
def test_a_state_dict_that_lacks_some_keys_of_attention_is_refused(dropped: str) -> None:
    layer = with_trained_heads(spare(positions=True))
    state = layer.state_dict()
    del state[dropped]
    with pytest.raises(RuntimeError, match=dropped):
        layer.load_state_dict(state)
    conv = nn.Conv2d(2, 3, 3).state_dict()
    with pytest.raises(RuntimeError, match="Missing key"):
        made().load_state_dict(conv)
    made().load_state_dict(conv, strict=False)


def test_a_layer_without_values_does_not_pass_for_one_whose_heads_are_at_0() -> None:
    layer = spare().to("meta")
    assert not layer.spare_heads_are_off()
    with pytest.raises(RuntimeError, match=r"(?s)Missing.*spare_query"):
        layer.load_state_dict(nn.Conv2d(2, 3, 3).state_dict(), assign=True)
