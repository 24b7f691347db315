"""One convolution's geometry, normalised once.

Everything that ``nn.Conv2d`` can say about where its taps fall (kernel, stride, dilation, padding and its
mode, groups) is read here and nowhere else. The rest of the project sees one picture: a *padded* input, whose
pixels are the keys; query pixels on it; and one offset per kernel tap, which is the centre of a head.

    output[i, j] = bias + sum over taps (m, n) of W[m, n] . padded[s_1 i + d_1 m, s_2 j + d_2 n]

The query sits under the kernel's middle tap m_0 = floor((K - 1) / 2), so that with "same" padding it is the pixel that
the output belongs to, and the taps lie around it, as in the paper:

    s i + d m  =  s i + d m_0  +  d (m - m_0)
                     query        tap offset

``proofs/claims/theorem/assembly.py`` proves that heads with these centres read what the taps read;
``proofs/claims/theorem/any_dimensions_assembly.py`` proves it in any dimension.
"""

from __future__ import annotations

import math
import reprlib
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, cast, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from .errors import GeometryError

PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]

_LARGEST = 2**31 - 1  # of what a geometry counts; PyTorch's own kernels go no further


class Size(NamedTuple):
    """Height and width in pixels."""

    rows: int
    columns: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"


class Pads(NamedTuple):
    """Pixels that padding adds on each side."""

    top: int
    bottom: int
    left: int
    right: int


@dataclass(frozen=True)
class ConvSpec:
    """The geometry of one 2-D convolution.

    Attributes:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Rows and columns of taps; their product is the number of heads.
        stride: Rows and columns between neighbouring queries, in pixels.
        dilation: Rows and columns between neighbouring taps, in pixels.
        padding: Pixels added on both sides of each axis, or "same" or "valid", as the convolution was given it.
        padding_mode: What the added pixels hold.
        groups: Groups of channels that do not mix.
        bias: Whether the output has a bias.

    Raises:
        GeometryError: A value of another type or length, a number out of range, or "same" with a stride.
    """

    in_channels: int
    out_channels: int
    kernel_size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int] | Literal["same", "valid"] = (0, 0)
    padding_mode: PaddingMode = "zeros"
    groups: int = 1
    bias: bool = True

    def __post_init__(self) -> None:
        for name in ("in_channels", "out_channels", "groups"):
            _check(name, getattr(self, name), _is_size(getattr(self, name)), f"an integer from 1 to {_LARGEST}")
        for name in ("kernel_size", "stride", "dilation"):
            _check(name, getattr(self, name), _is_pair(getattr(self, name), 1), f"two integers from 1 to {_LARGEST}")
        is_padding = self.padding in ("same", "valid") if isinstance(self.padding, str) else _is_pair(self.padding, 0)
        _check("padding", self.padding, is_padding, f'two integers from 0 to {_LARGEST}, "same" or "valid"')
        modes = get_args(PaddingMode)
        is_mode = isinstance(self.padding_mode, str) and self.padding_mode in modes
        _check("padding_mode", self.padding_mode, is_mode, f"one of {', '.join(modes)}")
        _check("bias", self.bias, isinstance(self.bias, bool), "true or false")
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise GeometryError(f"groups must divide in_channels and out_channels; got {self}")
        if self.padding == "same" and self.stride != (1, 1):
            raise GeometryError(f'padding "same" needs stride 1; got stride {self.stride}')

    @classmethod
    def from_conv(cls, conv: nn.Conv2d) -> ConvSpec:
        """Reads the geometry of a convolution."""
        padding = conv.padding
        return cls(
            in_channels=int(conv.in_channels),
            out_channels=int(conv.out_channels),
            kernel_size=_pair(conv.kernel_size),
            stride=_pair(conv.stride),
            dilation=_pair(conv.dilation),
            padding=cast(Literal["same", "valid"], padding) if isinstance(padding, str) else _pair(padding),
            padding_mode=conv.padding_mode,
            groups=int(conv.groups),
            bias=conv.bias is not None,
        )

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ConvSpec:
        """Reads what ``to_json`` wrote.

        Raises:
            GeometryError: The data does not describe a convolution.
        """
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        try:
            return cls(**values)
        except TypeError as error:
            raise GeometryError(f"a convolution's geometry cannot be read from {_shown(data)}") from error

    def to_json(self) -> dict[str, Any]:
        """The geometry as plain data."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @property
    def num_heads(self) -> int:
        """One head for each kernel tap."""
        return self.kernel_size[0] * self.kernel_size[1]

    @property
    def middle(self) -> tuple[int, int]:
        """Offset d m_0 of the query from the pixel under the kernel's first tap, in pixels."""
        rows, columns = (d * ((k - 1) // 2) for d, k in zip(self.dilation, self.kernel_size, strict=True))
        return rows, columns

    @property
    def tap_offsets(self) -> tuple[tuple[int, int], ...]:
        """Offset d (m - m_0) of each tap from the query, in pixels, row by row: [num_heads, 2]."""
        rows, columns = (
            [d * m - start for m in range(k)]
            for d, k, start in zip(self.dilation, self.kernel_size, self.middle, strict=True)
        )
        return tuple((row, column) for row in rows for column in columns)

    @property
    def pads(self) -> Pads:
        """Pixels added on each side; "same" puts the odd one at the bottom and the right, as PyTorch does."""
        if self.padding == "valid":
            return Pads(0, 0, 0, 0)
        if self.padding == "same":
            height, width = ((self.kernel_size[axis] - 1) * self.dilation[axis] for axis in (0, 1))
            return Pads(height // 2, height - height // 2, width // 2, width - width // 2)
        vertical, horizontal = self.padding
        return Pads(vertical, vertical, horizontal, horizontal)

    def padded_size(self, size: Size) -> Size:
        """Size of the key grid for an input of this size."""
        top, bottom, left, right = self.pads
        return Size(size.rows + top + bottom, size.columns + left + right)

    def output_size(self, size: Size) -> Size:
        """Size of the query grid for an input of this size.

        Raises:
            GeometryError: The kernel does not fit into the padded input, or the padding into the input.
        """
        self._check_padding_fits(size)
        padded = self.padded_size(size)
        spans = [self.dilation[axis] * (self.kernel_size[axis] - 1) + 1 for axis in (0, 1)]
        if padded.rows < spans[0] or padded.columns < spans[1]:
            raise GeometryError(
                f"a kernel that spans {spans[0]}x{spans[1]} pixels does not fit into an input of {size} "
                f"pixels, {padded} with its padding"
            )
        return Size(*((padded[axis] - spans[axis]) // self.stride[axis] + 1 for axis in (0, 1)))

    def _check_padding_fits(self, size: Size) -> None:
        """Reflection needs one pixel more than it adds, a circular border as many; zeros and copies none."""
        spare = {"reflect": 1, "circular": 0}.get(self.padding_mode, -math.inf)
        top, bottom, left, right = self.pads
        if min(size) < 1 or max(top, bottom) + spare > size.rows or max(left, right) + spare > size.columns:
            raise GeometryError(
                f"an input of {size} pixels is too small for padding_mode {self.padding_mode!r} that adds "
                f"{top} pixels above, {bottom} below, {left} left and {right} right"
            )

    def query_positions(self, size: Size) -> tuple[range, range]:
        """Rows and columns, in the padded input, on which the queries sit: s i + d m_0 on each axis."""
        rows, columns = (
            range(start, start + stride * length, stride)
            for start, stride, length in zip(self.middle, self.stride, self.output_size(size), strict=True)
        )
        return rows, columns

    def pad(self, x: Tensor) -> Tensor:
        """Pads an input [batch, in_channels, rows, columns] to its key grid, as the convolution does."""
        top, bottom, left, right = self.pads
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        return F.pad(x, (left, right, top, bottom), mode=mode)

    def __str__(self) -> str:
        rows, columns = self.kernel_size
        parts = [f"{rows}x{columns}", f"{self.in_channels}->{self.out_channels}"]
        defaults = (("stride", (1, 1)), ("dilation", (1, 1)), ("padding", (0, 0)), ("groups", 1))
        parts += [f"{name} {_short(getattr(self, name))}" for name, usual in defaults if getattr(self, name) != usual]
        if self.padding_mode != "zeros":
            parts.append(self.padding_mode)
        return ", ".join(parts)


def _check(name: str, value: object, is_allowed: bool, allowed: str) -> None:
    if not is_allowed:
        raise GeometryError(f"{name} must be {allowed}; got {_shown(value)}")


def _is_size(value: object, smallest: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and smallest <= value <= _LARGEST


def _is_pair(value: object, smallest: int) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(_is_size(number, smallest) for number in value)


def _shown(value: object) -> str:
    """A value as an error message shows it, however large it is."""
    try:
        return reprlib.repr(value)
    except ValueError:  # an integer with more digits than Python prints
        return "an integer with thousands of digits"


def _pair(value: tuple[int, ...]) -> tuple[int, int]:
    rows, columns = value
    return int(rows), int(columns)


def _short(value: int | str | tuple[int, int]) -> str:
    if isinstance(value, tuple):
        return str(value[0]) if value[0] == value[1] else f"{value[0]}x{value[1]}"
    return str(value)
