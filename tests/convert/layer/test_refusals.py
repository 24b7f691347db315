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
of: Any = attention_from_conv
back: Any = conv_from_attention


def of_spec() -> Layer:
    return SelfAttention2d(SPEC)


def made(change: Callable[[Layer], object] = id, **options: Any) -> Layer:
    """A layer of 2 and 3 channels, after a change."""
    layer: Layer = attention_from_conv(nn.Conv2d(2, 3, 3, padding=1), **options)
    change(layer)
    return layer


def spare(*, positions: bool = False) -> Layer:
    heads = HEADS if positions else SpareHeads(1, 5, 3)
    return made(lambda layer: layer.add_spare_heads(heads))


def with_content(layer: Layer) -> None:
    nn.init.constant_(layer.add_content(4).key_bias.data.view(-1)[3], 1e-6)


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


REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    # inputs
    (lambda: of_spec()(torch.zeros(2, 3, 7, 5)), ConversionError, r"got \[2, 3, 7, 5\]"),
    (lambda: of_spec()(torch.zeros(7, 5)), ConversionError, r"got \[7, 5\]"),
    (lambda: of_spec()(torch.zeros(2, 4, 7, 5).double()), ConversionError, r"got torch\.float64"),
    (lambda: of_spec()(torch.zeros(2, 4, 7, 1)), GeometryError, "does not fit .* 7x1"),
    (lambda: of(nn.Conv1d(1, 1, 3))(torch.ones(1, 1, 3, 3)), GeometryError, "1, length"),
    (lambda: of(nn.Conv3d(1, 1, 3))(torch.ones(1, 3, 3)), GeometryError, "planes, rows"),
    (lambda: made()(torch.ones(1, 2, 3, 3), output_size=[3, 3]), GeometryError, "only a transposed"),
    (narrow, ConversionError, "at least float32"),
    # maps and weights
    (lambda: of_spec().attention_probabilities((7, 5), heads=[6]), ConversionError, "numbered 0 to 5"),
    (lambda: of_spec().attention_probabilities((7, 5), queries=[(0, 4)]), ConversionError, "pixels of the output, 4x4"),
    (lambda: of_spec().attention_probabilities((7, 1)), GeometryError, "7x1"),
    (lambda: made(with_content).attention_probabilities((7, 5)), ConversionError, "pass x"),
    (lambda: spare().attention_probabilities((5, 5), heads=[9]), ConversionError, "spare heads look at the image"),
    (lambda: spare().attention_probabilities((5, 5), heads=[10]), ConversionError, "numbered 0 to 9"),
    (limited, ConversionError, "memory"),
    (lambda: fx.symbolic_trace(Weights()), ConversionError, "input"),
    # what a layer is made of
    (lambda: of(nn.Sequential(nn.Conv2d(2, 2, 3))), ConversionError, "convert_model converts"),
    (lambda: of(nn.Linear(2, 2)), ConversionError, "PyTorch's convolutions$"),
    (lambda: SelfAttention1d(ConvSpec(1, 1, (3, 3))), ConversionError, "has 1 axes"),
    (lambda: made().set_axis_scores(*torch.zeros(3, 9, 3)), GeometryError, "a score table for each"),
    (lambda: of(nn.ConvTranspose2d(2, 3, 3)).add_spare_heads(HEADS), ConversionError, "transposed"),
    (lambda: spare().add_spare_heads(HEADS), ConversionError, "already"),
    # what is no convolution
    (
        lambda: back(made(lambda layer: move_center(layer, (4, 1), -0.5))),
        NotAConvolutionError,
        r"4 is at \(0\.0, -0\.5",
    ),
    (lambda: back(made(alpha=5.0)), NotAConvolutionError, "tolerance="),
    (lambda: below(0.5), NotAConvolutionError, "more than tolerance"),
    (lambda: below(float("nan")), ConversionError, "tolerance must be"),
    (lambda: back(made(with_content)), NotAConvolutionError, "content terms are on"),
    (lambda: back(with_trained_heads(spare(positions=True))), ConversionError, "ungraft"),
    (lambda: certify(with_trained_heads(spare()), input_range=(-1, 1)), ConversionError, "ungraft"),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_what_a_layer_cannot_be_take_or_show_is_refused_in_words(
    call: Callable[[], object], error: type[Exception], words: str
) -> None:
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
