"""One convolution's geometry, normalised once.

Everything that a convolution can say about where its taps fall (kernel, stride, dilation, padding and its mode, groups)
is read here and nowhere else. The rest of the project sees one picture: a *padded* input, whose pixels are the keys;
query pixels on it; and one offset per kernel tap, which is the centre of a head. Along each axis

    output[i] = bias + sum over taps m of W[m] . padded[s i + d m]

The query sits under the kernel's middle tap m_0 = floor((K - 1) / 2), so that with "same" padding it is the pixel that
the output belongs to, and the taps lie around it, as in the paper:

    s i + d m  =  s i + d m_0  +  d (m - m_0)
                     query        tap offset

``proofs/claims/theorem/assembly.py`` proves that heads with these centres read what the taps read, along any number of
axes.

A transposed convolution fits the same picture. Its keys are the *stuffed* input, x at every s-th place and zeros
between, padded by d (K - 1) - p, and by output_padding more at the far end; its kernel is flipped. What is left is a
convolution with stride 1 (``proofs/claims/theorem/stuffing.py``):

    output[i] = bias + sum over m of W[K - 1 - m] . stuffed[i + d m]
"""

from __future__ import annotations

import itertools
import math
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, cast, get_args

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from .arguments import Size
from .errors import GeometryError

PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
NamedPadding = Literal["same", "valid", "same_upper", "same_lower"]
Padding = tuple[int, ...] | tuple[tuple[int, int], ...] | NamedPadding
Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d

# The classes that are converted, by the number of their axes and whether they are transposed.
CONVOLUTIONS: dict[tuple[int, bool], type[Convolution]] = {
    (1, False): nn.Conv1d,
    (2, False): nn.Conv2d,
    (3, False): nn.Conv3d,
    (1, True): nn.ConvTranspose1d,
    (2, True): nn.ConvTranspose2d,
    (3, True): nn.ConvTranspose3d,
}

_LARGEST = 2**31 - 1  # of what a geometry counts; PyTorch's own kernels go no further
_MOST_AXES = 3


@dataclass(frozen=True)
class ConvSpec:
    """The geometry of one convolution, along one, two or three axes, transposed or not.

    Attributes:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Taps along each axis; their product is the number of heads.
        stride: Pixels between neighbouring queries along each axis; of a transposed convolution, between the pixels of
            its stuffed input. Empty for 1 along each.
        dilation: Pixels between neighbouring taps along each axis. Empty for 1 along each.
        padding: Pixels added at both ends of each axis, or pairs, before and after it, or "same" or "valid", as the
            convolution was given it; a transposed convolution drops so many of its outputs. Empty for none. With
            "same_upper" and "same_lower" there is one output for every stride pixels of the input, whatever its size
            (TensorFlow's "SAME", ONNX's auto_pad); an odd pixel comes after the axis, or before it.
        padding_mode: What the added pixels hold.
        groups: Groups of channels that do not mix.
        bias: Whether the output has a bias.
        transposed: Whether it is a transposed convolution.
        output_padding: Outputs that a transposed convolution adds at the far end of each axis. Empty for none.

    Raises:
        GeometryError: A value of another type or length, a number out of range, "same" with a stride, or what a
            transposed convolution does not have.
    """

    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    padding: Padding = ()
    padding_mode: PaddingMode = "zeros"
    groups: int = 1
    bias: bool = True
    transposed: bool = False
    output_padding: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("in_channels", "out_channels", "groups"):
            _check(name, getattr(self, name), _is_size(getattr(self, name)), f"an integer from 1 to {_LARGEST}")
        taps = self.kernel_size
        is_kernel = isinstance(taps, tuple) and any(_are_sizes(taps, axes, 1) for axes in range(1, _MOST_AXES + 1))
        _check("kernel_size", taps, is_kernel, f"one to {_MOST_AXES} integers from 1 to {_LARGEST}")
        for name, least in (("stride", 1), ("dilation", 1), ("padding", 0), ("output_padding", 0)):
            if getattr(self, name) == ():
                object.__setattr__(self, name, (least,) * self.axes)
        for name in ("stride", "dilation"):
            is_allowed = _are_sizes(getattr(self, name), self.axes, 1)
            _check(name, getattr(self, name), is_allowed, f"{_numbers(self.axes)} from 1 to {_LARGEST}")
        named = not self.transposed and isinstance(self.padding, str)
        is_padding = self.padding in get_args(NamedPadding) if named else self._is_padding()
        names = ", or a pair of such for each axis"
        names += "" if self.transposed else f", or one of {', '.join(get_args(NamedPadding))}"
        _check("padding", self.padding, is_padding, f"{_numbers(self.axes)} from 0 to {_LARGEST}{names}")
        modes = ("zeros",) if self.transposed is True else get_args(PaddingMode)
        is_mode = isinstance(self.padding_mode, str) and self.padding_mode in modes
        _check("padding_mode", self.padding_mode, is_mode, f"one of {', '.join(modes)}")
        for name in ("bias", "transposed"):
            _check(name, getattr(self, name), isinstance(getattr(self, name), bool), "true or false")
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise GeometryError(f"groups must divide in_channels and out_channels; got {self}")
        if self.padding == "same" and self.stride != (1,) * self.axes:
            raise GeometryError(f'padding "same" needs stride 1; got stride {self.stride}')
        self._check_output_padding()

    def _is_padding(self) -> bool:
        """Whether the padding is a number for each axis, or a pair."""
        if not isinstance(self.padding, tuple):
            return False
        pairs = len(self.padding) == self.axes and all(_are_sizes(pair, 2, 0) for pair in self.padding)
        return pairs or _are_sizes(self.padding, self.axes, 0)

    def _check_output_padding(self) -> None:
        """PyTorch adds fewer outputs than the stride or the dilation, and only after a transposed convolution."""
        limits = [max(pair) if self.transposed else 1 for pair in zip(self.stride, self.dilation, strict=True)]
        is_allowed = _are_sizes(self.output_padding, self.axes, 0) and all(
            added < limit for added, limit in zip(self.output_padding, limits, strict=True)
        )
        allowed = "less than the larger of stride and dilation" if self.transposed else "0 for a convolution"
        _check("output_padding", self.output_padding, is_allowed, f"{_numbers(self.axes)}, {allowed}")

    @classmethod
    def from_conv(cls, conv: Convolution) -> ConvSpec:
        """Reads the geometry that a convolution's ``forward`` computes.

        That of a plain weight is its shape, whatever the attributes say of channels and kernel size; one integer stands
        for every axis, as in PyTorch's functions.
        """
        padding, groups, weight = conv.padding, int(conv.groups), conv._parameters.get("weight")
        channels, taps = (int(conv.in_channels), int(conv.out_channels)), _integers(conv.kernel_size)
        axes = len(taps)
        if weight is not None and weight.ndim == axes + 2:
            first, second, *size = weight.shape
            channels = (first, second * groups) if conv.transposed else (second * groups, first)
            taps = tuple(size)
        return cls(
            in_channels=channels[0],
            out_channels=channels[1],
            kernel_size=taps,
            stride=_integers(conv.stride, axes),
            dilation=_integers(conv.dilation, axes),
            padding=cast(NamedPadding, padding) if isinstance(padding, str) else _integers(padding, axes),
            padding_mode=conv.padding_mode,
            groups=groups,
            bias=is_parametrized(conv, "bias") or conv.bias is not None,  # computing one may change its state
            transposed=bool(conv.transposed),
            output_padding=_integers(conv.output_padding, axes),
        )

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ConvSpec:
        """Reads what ``to_json`` wrote.

        Raises:
            GeometryError: The data does not describe a convolution.
        """
        values: dict[str, Any] = {k: _tuples(v) for k, v in data.items()}
        try:
            return cls(**values)
        except TypeError as error:
            raise GeometryError(f"a convolution's geometry cannot be read from {reprlib.repr(data)}") from error

    def to_json(self) -> dict[str, Any]:
        """The geometry as plain data; what only a transposed convolution has, of such a one only."""
        data = {key: _lists(value) for key, value in asdict(self).items()}
        return {k: v for k, v in data.items() if self.transposed or k not in ("transposed", "output_padding")}

    def arguments(self) -> dict[str, Any]:
        """The arguments of the constructor of the convolution's class."""
        return {k: v for k, v in vars(self).items() if k != "transposed" and (self.transposed or k != "output_padding")}

    @property
    def axes(self) -> int:
        """Number of axes of the grid: 2 for images."""
        return len(self.kernel_size)

    @property
    def num_heads(self) -> int:
        """One head for each kernel tap."""
        return math.prod(self.kernel_size)

    @property
    def middle(self) -> tuple[int, ...]:
        """Offset d m_0 of the query from the pixel under the kernel's first tap, in pixels."""
        return tuple(d * ((k - 1) // 2) for d, k in zip(self.dilation, self.kernel_size, strict=True))

    @property
    def tap_offsets(self) -> tuple[tuple[int, ...], ...]:
        """Offset d (m - m_0) of each tap from the query, in pixels, row by row: [num_heads, axes]."""
        along = zip(self.dilation, self.kernel_size, self.middle, strict=True)
        return tuple(itertools.product(*([d * m - start for m in range(k)] for d, k, start in along)))

    @property
    def reach(self) -> tuple[int, ...]:
        """Pixels d (K - 1) from the kernel's first tap to its last, along each axis."""
        return tuple(d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True))

    @property
    def query_stride(self) -> tuple[int, ...]:
        """Pixels between neighbouring queries along each axis."""
        return (1,) * self.axes if self.transposed else self.stride

    @property
    def stuffing(self) -> tuple[int, ...]:
        """Pixels of the key grid from one pixel of the input to the next, along each axis."""
        return self.stride if self.transposed else (1,) * self.axes

    @property
    def pads(self) -> tuple[tuple[int, int], ...]:
        """Pixels added before and after each axis; negative ones are dropped.

        "same" adds the odd one at the end, as PyTorch does.

        Raises:
            GeometryError: They depend on the input's size: ``pads_at`` takes it.
        """
        if self.padding == "valid":
            return ((0, 0),) * self.axes
        if self.padding == "same":
            return tuple((reach // 2, reach - reach // 2) for reach in self.reach)
        if isinstance(self.padding, str):
            raise GeometryError(f"the pixels that padding {self.padding!r} adds depend on the input's size")
        pairs = tuple(p if isinstance(p, tuple) else (p, p) for p in self.padding)
        if not self.transposed:
            return pairs
        along = zip(self.reach, pairs, self.output_padding, strict=True)
        return tuple((reach - before, reach - after + added) for reach, (before, after), added in along)

    @property
    def is_dynamic(self) -> bool:
        """Whether the padding depends on the input's size."""
        return self.padding in ("same_upper", "same_lower")

    @property
    def is_uneven(self) -> bool:
        """Whether the padding is one that no class of PyTorch has: pairs, or dependent on the input's size."""
        return self.is_dynamic or (
            not isinstance(self.padding, str) and any(isinstance(p, tuple) for p in self.padding)
        )

    def pads_at(self, size: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """As ``pads``, for an input of this size."""
        if not self.is_dynamic:
            return self.pads
        pairs = []
        for length, stride, reach in zip(size, self.stride, self.reach, strict=True):
            added = max((-(-length // stride) - 1) * stride + reach + 1 - length, 0)
            less, more = added // 2, added - added // 2
            pairs.append((less, more) if self.padding == "same_upper" else (more, less))
        return tuple(pairs)

    @property
    def adds_zeros(self) -> bool:
        """Whether the key grid has zeros that the input has not."""
        if self.is_dynamic:
            return self.padding_mode == "zeros"
        if self.transposed:
            return any(s > 1 for s in self.stride) or any(p > 0 for pads in self.pads for p in pads)
        return self.padding_mode == "zeros" and any(p > 0 for pads in self.pads for p in pads)

    def padded_size(self, size: Size) -> Size:
        """Size of the key grid for an input of this size."""
        along = zip(size, self.stuffing, self.pads_at(size), strict=True)
        return Size(*((length - 1) * step + 1 + sum(pads) for length, step, pads in along))

    def output_size(self, size: Size) -> Size:
        """Size of the query grid for an input of this size.

        Raises:
            GeometryError: The size has another number of axes, the kernel does not fit into the padded input, or the
                padding into the input.
        """
        self._check_padding_fits(size)
        padded, reach = self.padded_size(size), self.reach
        lengths = [length - far for length, far in zip(padded, reach, strict=True)]
        if min(lengths) < 1:
            spans = Size(*(far + 1 for far in reach))
            raise GeometryError(
                f"a kernel that spans {spans} pixels does not fit into an input of {Size(*size)} pixels, {padded} with "
                "its padding"
            )
        along = zip(lengths, self.query_stride, strict=True)
        return Size(*((length - 1) // stride + 1 for length, stride in along))

    def with_output_size(self, size: Sequence[int], output_size: Sequence[int]) -> ConvSpec:
        """The geometry with the output padding that makes an output of this size, as PyTorch's classes choose it.

        Args:
            size: Size of the input.
            output_size: Size of the output; leading dimensions of the batch and channels are ignored.

        Raises:
            GeometryError: It is not transposed, or no output padding gives this size.
        """
        if not self.transposed:
            raise GeometryError("only a transposed convolution takes an output_size")
        wanted = tuple(output_size)[-self.axes :]
        padded = replace(self, output_padding=()).padded_size(Size(*size))
        plain = Size(*(length - reach for length, reach in zip(padded, self.reach, strict=True)))
        if len(output_size) - self.axes not in (0, 1, 2) or any(
            not least <= length < least + stride
            for least, length, stride in zip(plain, wanted, self.stride, strict=True)
        ):
            largest = Size(*(least + stride - 1 for least, stride in zip(plain, self.stride, strict=True)))
            raise GeometryError(
                f"an input of {Size(*size)} pixels gives outputs from {plain} to {largest}; got {Size(*output_size)}"
            )
        return replace(self, output_padding=tuple(int(a - b) for a, b in zip(wanted, plain, strict=True)))

    def _check_padding_fits(self, size: Size) -> None:
        """Reflection needs one pixel more than it adds, a circular border as many; zeros and copies none."""
        if len(size) != self.axes:
            raise GeometryError(f"an input of {self.axes} axes is needed; got {Size(*size)}")
        spare = {"reflect": 1, "circular": 0}.get(self.padding_mode)
        least = [1] * self.axes if spare is None else [max(1, max(pair) + spare) for pair in self.pads_at(size)]
        if any(length < fits for length, fits in zip(size, least, strict=True)):
            added = " and ".join(f"{before} + {after}" for before, after in self.pads_at(size))
            raise GeometryError(
                f"an input of {Size(*size)} pixels is too small for padding_mode {self.padding_mode!r} that adds "
                f"{added} pixels before and after each axis"
            )

    def query_positions(self, size: Size) -> tuple[range, ...]:
        """Where the queries sit on the padded input, s i + d m_0, along each axis."""
        along = zip(self.middle, self.query_stride, self.output_size(size), strict=True)
        return tuple(range(start, start + stride * length, stride) for start, stride, length in along)

    def pad(self, x: Tensor) -> Tensor:
        """Makes the key grid of an input [batch, in_channels, *size], as the convolution does."""
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        if not self.transposed:
            return F.pad(x, reversed_pads(self.pads_at(x.shape[2:])), mode=mode)
        for axis, step in enumerate(self.stride):  # each pixel gets step - 1 zeros after it, also the last
            after = [0] * (2 * (self.axes - 1 - axis)) + [0, step - 1]
            x = F.pad(x.unsqueeze(axis + 3), after).flatten(axis + 2, axis + 3)
        along = zip(self.pads, self.stride, strict=True)
        return F.pad(x, reversed_pads((before, after - step + 1) for (before, after), step in along))

    def crop(self, y: Tensor) -> Tensor:
        """Applies an uneven padding to the result of a transposed convolution without any.

        Args:
            y: [batch, out_channels, *size], or without the batch.
        """
        pads = cast(tuple[tuple[int, int], ...], self.padding)
        return F.pad(y, reversed_pads((-before, -after) for before, after in pads))

    def kernel(self, weight: Tensor) -> Tensor:
        """The kernel whose taps the heads play, [out_channels, in_channels / groups, *kernel_size].

        Args:
            weight: The weight as the convolution's class holds it; a transposed one's is [in_channels, out_channels /
                groups, *kernel_size], flipped.
        """
        if not self.transposed:
            return weight
        taps = tuple(range(2, weight.ndim))
        blocks = weight.flip(taps).unflatten(0, (self.groups, -1))
        kernel: Tensor = blocks.transpose(1, 2).flatten(0, 1)
        return kernel

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """The shape of the weight as the convolution's class holds it."""
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        return (first, second // self.groups, *self.kernel_size)

    def __str__(self) -> str:
        parts = [f"{Size(*self.kernel_size)}", f"{self.in_channels}->{self.out_channels}"]
        if self.axes == 1:
            parts[0] += " tap" if self.kernel_size == (1,) else " taps"
        if self.transposed:
            parts.append("transposed")
        ones, zeros = (1,) * self.axes, (0,) * self.axes
        defaults = (
            ("stride", ones),
            ("dilation", ones),
            ("padding", zeros),
            ("output_padding", zeros),
            ("groups", 1),
        )
        differing = (name for name, usual in defaults if getattr(self, name) != usual)
        parts += [f"{name.replace('_', ' ')} {_short(getattr(self, name))}" for name in differing]
        if self.padding_mode != "zeros":
            parts.append(self.padding_mode)
        return ", ".join(parts)


@dataclass(frozen=True)
class DescribedConvolution:
    """A convolution whose geometry a file describes, so that it can be converted without the network's code.

    Attributes:
        weight: Key of its weight among the file's tensors.
        bias: Key of its bias, or None.
        spec: Its geometry, or None if no class of convolutions has it.
        problem: Why ``spec`` is None.
        note: Remark about its weights for the user, or None.
        original: The layer's name in the file, or None if it is the name used here.
    """

    weight: str
    bias: str | None
    spec: ConvSpec | None
    problem: str | None = None
    note: str | None = field(default=None, compare=False)
    original: str | None = field(default=None, compare=False)

    @classmethod
    def refused(cls, problem: str) -> DescribedConvolution:
        """A convolution that cannot be converted."""
        return cls("", None, None, problem)


def batch_shape(spec: ConvSpec) -> str:
    """The shape of a batch of inputs, for messages."""
    lengths = {1: "length", 2: "rows, columns", 3: "planes, rows, columns"}[spec.axes]
    return f"[batch, {spec.in_channels}, {lengths}]"


def reversed_pads(pads: Iterable[tuple[int, int]]) -> list[int]:
    """Pixels before and after each axis, as ``F.pad`` takes them: from the last axis to the first."""
    return [number for pair in reversed(list(pads)) for number in pair]


def _check(name: str, value: object, is_allowed: bool, allowed: str) -> None:
    if not is_allowed:
        raise GeometryError(f"{name} must be {allowed}; got {reprlib.repr(value)}")


def _is_size(value: object, smallest: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and smallest <= value <= _LARGEST


def _are_sizes(value: object, axes: int, smallest: int) -> bool:
    return isinstance(value, tuple) and len(value) == axes and all(_is_size(number, smallest) for number in value)


def _numbers(axes: int) -> str:
    return ("one integer", "two integers", "three integers")[axes - 1]


def _tuples(value: Any) -> Any:
    """Lists as tuples; an empty list, which no geometry is written with, stays one and is refused."""
    return tuple(map(_tuples, value)) if isinstance(value, list) and value else value


def _lists(value: Any) -> Any:
    return list(map(_lists, value)) if isinstance(value, tuple) else value


def _integers(values: int | Iterable[int], axes: int = 1) -> tuple[int, ...]:
    found = tuple(int(value) for value in values) if isinstance(values, Iterable) else (int(values),)
    return found * axes if len(found) == 1 else found


def _short(value: Any) -> str:
    if isinstance(value, tuple) and isinstance(value[0], tuple):
        return " x ".join(f"{before}+{after}" for before, after in value)
    if isinstance(value, tuple):
        return str(value[0]) if len(set(value)) == 1 else str(Size(*value))
    return str(value)
