"""Scene of a picture: a layer, the input it gets when the network sees the image, and the query.

Layers without their network each see an image that is drawn for them. A query is named by a pixel of the image; a
layer's own query is the output pixel at the same place of its output.

A transposed layer is drawn over its stuffed input, padding and all, as ``ConvSpec`` has it. Layers over
sequences and volumes are not drawn.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...convert.arguments import Size
from ...convert.certificate.literal import inputs_of_layers
from ...convert.errors import ConversionError, SelectionError
from ...convert.examples.images import drawn_input, network_input
from ...convert.layer.layer import SelfAttention, SelfAttention2d
from ...convert.layer.positions import check_alpha
from ...convert.spec import Convolution, ConvSpec
from ..text import CELL, printable, short_name
from .limits import too_large, within

_LISTED = 5  # layers named where none comes close


@dataclass(frozen=True)
class Scene:
    """A layer that looks at an input."""

    name: str  # fully qualified name of the layer; "" is the network itself
    layer: SelfAttention2d
    x: Tensor  # its input for the image, [1, in_channels, rows, columns]
    query: tuple[int, int]  # row and column of the output pixel
    note: str | None = None  # the drawn input of a transposed layer, in words, or None

    @classmethod
    def of(cls, name: str, layer: SelfAttention, x: Tensor, query: Callable[[Size], tuple[int, int]]) -> Scene:
        """A layer before its input [1, in_channels, *size], with the query that is chosen on the size of its output."""
        plane = plane_of(layer, x)
        output = plane.layer.spec.output_size(Size(*plane.x.shape[2:]))
        return cls(name, plane.layer, plane.x, query(output), plane.note)

    @property
    def size(self) -> Size:
        """Rows and columns of the input, without padding."""
        return Size(*self.x.shape[-2:])

    @property
    def spare_heads(self) -> list[int]:
        """Numbers of its spare heads, which come after those of the taps."""
        count = 0 if self.layer.spare is None else self.layer.spare.heads
        return [self.layer.num_heads + head for head in range(count)]

    @property
    def is_positional(self) -> bool:
        """Whether the layer looks by relative positions alone, so that alpha and its taps say all of it."""
        layer = self.layer
        return layer.content is None and layer.axis_scores is None and layer.spare_heads_are_off()

    @property
    def title(self) -> str:
        """The layer's name, for people."""
        return short_name(printable(self.name, CELL)) or "the network itself"

    @property
    def mark(self) -> tuple[int, int]:
        """The pixel of the padded input on which the query sits, under the middle of the kernel."""
        rows, columns = self.layer.spec.query_positions(self.size)
        return rows[self.query[0]], columns[self.query[1]]

    def maps(self, heads: Sequence[int] | None = None) -> Tensor:
        """Attention probabilities of the query, [heads, padded rows, padded columns]; by default of the taps' heads."""
        x = None if self.layer.content is None and self.layer.spare is None else self.x
        with torch.no_grad():
            maps = self.layer.attention_probabilities(self.size, heads=heads, queries=[self.query], x=x)
        return maps.reshape(-1, *maps.shape[-2:]).double().cpu()


def find_layer(model: nn.Module, name: str) -> SelfAttention:
    """The attention layer of this name.

    Raises:
        SelectionError: There is none; the message lists similar names.
    """
    layers = {
        name: module
        for name, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, SelfAttention)
    }
    if name in layers:
        return layers[name]
    names = list(layers)
    near = difflib.get_close_matches(name, names, n=_LISTED, cutoff=0.4) or names[:_LISTED]
    raise SelectionError(f"there is no attention layer {name!r}; near it: {', '.join(map(repr, near))}")


@torch.no_grad()
def scenes(
    model: nn.Module, image: Tensor, *, pixel: tuple[int, int] | None = None, limit: float = math.inf
) -> list[Scene]:
    """Runs the network on the image, and gives what each of its attention layers saw first.

    Args:
        model: A converted network.
        image: [1, channels, rows, columns].
        pixel: The query, as a pixel of the image; by default its middle.
        limit: Most multiply-adds that the attention layers may take together.

    Returns:
        The layers over images that ran, in the order in which the network holds them.

    Raises:
        SelectionError: The pixel is outside the image.
        ConversionError: The network does not run on the image, or not within the limits, or has no layer over images.
    """
    pixel = query_pixel(image, pixel)
    layers = {name: module for name, module in model.named_modules() if isinstance(module, SelfAttention)}
    reasons = [undrawable(layer.spec) for layer in layers.values()]
    if reasons and all(reasons):
        raise ConversionError(f"no layer can be drawn: {reasons[0]}")
    layers = {name: layer for name, layer in layers.items() if undrawable(layer.spec) is None}
    convolutional = (module for module in model.modules() if isinstance(module, Convolution | SelfAttention))
    axes = next((len(layer.kernel_size) for layer in convolutional), 2)
    inputs = inputs_of_layers(model, network_input(image, axes), allowed=within(limit))
    return [_scene(name, layers[name], inputs[name][:1], image, pixel) for name in layers if name in inputs]


def query_pixel(image: Tensor, pixel: tuple[int, int] | None) -> tuple[int, int]:
    """The query, as a pixel of the image [1, channels, rows, columns]; by default its middle.

    Raises:
        SelectionError: It is outside the image.
    """
    size = Size(*image.shape[-2:])
    pixel = (size.rows // 2, size.columns // 2) if pixel is None else pixel
    if not (0 <= pixel[0] < size.rows and 0 <= pixel[1] < size.columns):
        raise SelectionError(f"the query {pixel[0]},{pixel[1]} is outside the image, which has {size} pixels")
    return pixel


def own_scene(name: str, layer: SelfAttention, image: Tensor, pixel: tuple[int, int]) -> Scene:
    """The scene of a layer without its network: before an image with its channels, as large as the one that is given.

    Raises:
        ConversionError: The layer is not over images, does not fit the image, or is too large.
    """
    if reason := undrawable(layer.spec) or too_large(layer.spec, Size(*image.shape[2:])):
        raise ConversionError(reason)
    return _scene(name, layer, drawn_input(layer, Size(*image.shape[-2:])), image, pixel)


def _scene(name: str, layer: SelfAttention, x: Tensor, image: Tensor, pixel: tuple[int, int]) -> Scene:
    """A layer before its input, with its query at the same place as a pixel of the image."""

    def query(output: Size) -> tuple[int, int]:
        row, column = (p * out // n for p, n, out in zip(pixel, image.shape[-2:], output, strict=True))
        return row, column

    return Scene.of(name, layer, x, query)


MOST_NUMBERS = 2**25  # of a transposed layer's padded input: 134 MB in single precision
_IMAGE = 2  # axes
_OTHERS = {1: "sequences", 3: "volumes"}


class Plane(NamedTuple):
    """A layer over images, and its input."""

    layer: SelfAttention2d  # the layer, or what is seen of it
    x: Tensor  # its input, [1, in_channels, rows, columns]
    note: str | None  # the drawn input of a transposed layer, in words, or None


def undrawable(spec: ConvSpec) -> str | None:
    """Why a layer of this geometry cannot be drawn, or None."""
    return None if spec.axes == _IMAGE else f"it is over {_OTHERS[spec.axes]}, and layers over images are drawn"


def plane_of(layer: SelfAttention, x: Tensor) -> Plane:
    """A layer over images and its input [1, in_channels, rows, columns], as what is drawn of them.

    Raises:
        ConversionError: The layer is over something else, or is transposed and has content terms, learned scores or
            spare heads, or its input is too large.
    """
    if (reason := undrawable(layer.spec)) is not None:
        raise ConversionError(reason)
    if isinstance(layer, SelfAttention2d) and not layer.spec.transposed:
        return Plane(layer, x, None)
    spec, size = layer.spec, Size(*x.shape[2:])
    if layer.content is not None or layer.axis_scores is not None or layer.spare is not None:
        raise ConversionError("learned scores and spare heads are not drawn of transposed layers")
    padded = spec.padded_size(size)
    if spec.in_channels * math.prod(padded) > MOST_NUMBERS:
        raise ConversionError(f"its padded input of {padded} pixels is too large to be drawn")
    flat = ConvSpec(
        spec.in_channels,
        spec.out_channels,
        spec.kernel_size,
        spec.query_stride,
        spec.dilation,
        groups=spec.groups,
        bias=spec.bias,
    )
    bias = None if layer.bias is None else nn.Parameter(layer.bias.detach())
    seen = SelfAttention2d(flat, weight=nn.Parameter(layer.kernel.detach()), bias=bias, engine=layer.engine)
    with torch.no_grad():
        seen.set_positions(alpha=layer.alpha.detach(), centers=layer.centers.detach())
    return Plane(seen.train(layer.training), spec.pad(x), "drawn as an image: its stuffed and padded input")


def set_alpha(model: nn.Module, alpha: float) -> None:
    """Gives all heads of all attention layers this sharpness.

    Raises:
        ConversionError: It is not positive and finite in a layer's precision.
    """
    layers = [module for module in model.modules() if isinstance(module, SelfAttention)]
    for layer in layers:
        check_alpha(alpha, layer.regime.dtype)
    with torch.no_grad():
        for layer in layers:
            layer.set_positions(alpha=alpha)
