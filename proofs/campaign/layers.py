"""Random layers: layer i of a seed is a pure function of the seed and i, on every machine and in every order.

A geometry is a sequence of choices by a ``random.Random``: one of a seed here, one of hypothesis' in ``strategies.py``.
So there is one definition of what a layer can be, and both draw all of it: one, two or three axes, transposed or not;
kernels even, odd and rectangular; groups up to depthwise; strides; dilations; padding none, symmetric, "same" or
"valid", in every mode; output padding.

Left out are calls that torch may compute wrongly on some processor (``docs/wrong-convolutions.md``): a comparison with
a wrong reference says nothing, and some of them crash or never return. The conditions are wider than the faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, TypeVar, get_args

import torch
from torch import Tensor

from ...convert.arguments import Size
from ...convert.spec import ConvSpec, PaddingMode

HALF = ("bfloat16", "float16")
DTYPES = ("float64", "float32", *HALF)
DEFAULT_MAX_SIZE = 64  # pixels along the longer side of an input
SMALL_SIZE = 10  # pixels a side of most inputs; larger ones repeat what their border and inside show, but take bands
SMALL_SIZES = {1: 24, 2: SMALL_SIZE, 3: 5}  # the same by the number of axes
LONGEST_KERNELS = {1: 9, 2: 5, 3: 3}
LARGEST_STEPS = {1: 3, 2: 3, 3: 2}  # strides and dilations; keys and queries of volumes are many
LONGEST_SPAN = 600  # pixels from a kernel's first tap to its last: bfloat16 has no 257, float16 no 2049
MEMORY_FORMATS = ("contiguous", "channels_last")
_CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}  # by the number of axes; a sequence has none
# Number of axes, and whether transposed.
PLAIN = (2, False)
KINDS = (*(PLAIN,) * 5, (1, False), (3, False), (1, True), (2, True), (3, True))
# Soft, among them powers of two, whose scores are exact in binary32; the last is one-hot in binary32 only.
SOFT_ALPHAS = (1.0, 0.25, 0.5, 1.7, 4.0, 7.3, 16.0, 50.0, 110.0)

_T = TypeVar("_T")


@dataclass(frozen=True)
class RandomLayer:
    """A convolution, a size of inputs, and what else the checks of one layer need."""

    spec: ConvSpec
    size: Size  # size of its inputs
    batch: int  # inputs at a time
    dtype: str  # precision of weights and inputs, one of ``DTYPES``
    alpha: float  # sharpness of the soft attention
    seed: int  # seed of all values
    memory_format: str = MEMORY_FORMATS[0]  # memory format of the inputs, one of ``MEMORY_FORMATS``

    def lay_out(self, x: Tensor) -> Tensor:
        """A copy of an input [batch, in_channels, *size] in the memory format, also of a single channel."""
        last = _CHANNELS_LAST.get(self.spec.axes) if self.memory_format == "channels_last" else None
        return torch.empty_like(x, memory_format=last or torch.contiguous_format).copy_(x)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The precision, as torch names it."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    def generator(self, purpose: str) -> torch.Generator:
        """The source of the values for one purpose, always on the CPU, so that every device gets the same."""
        return torch.Generator().manual_seed(Random(f"{self.seed} {purpose}").getrandbits(63))

    def choose(self, purpose: str, options: Sequence[_T]) -> _T:
        """One of the options, the same for the same layer and purpose."""
        return options[int(torch.randint(len(options), (), generator=self.generator(purpose)))]

    def __str__(self) -> str:
        last = ", channels last" if self.memory_format == "channels_last" else ""
        return f"{self.spec}, input {self.size}, batch {self.batch}, {self.dtype}{last}, alpha {self.alpha:g}"


def draw_layer(
    seed: int, index: int, *, dtypes: Sequence[str] = DTYPES, max_size: int = DEFAULT_MAX_SIZE
) -> RandomLayer:
    """Layer ``index`` of a seed; calls that torch may compute wrongly are left out (``may_be_wrong``).

    Args:
        seed: Seed of the campaign.
        index: Number of the layer, from 0.
        dtypes: Precisions to choose from.
        max_size: Largest rows and columns of an input, where the geometry accepts so small ones. Most inputs have at
            most ``SMALL_SIZES``.
    """
    choices = Random(f"layer {index} of seed {seed}")  # seeded by the text's SHA-512, the same everywhere
    kind = Random(f"kind of layer {index} of seed {seed}").choice(KINDS)
    while True:
        layer = _drawn(choices, kind, dtypes, max_size)
        if not may_be_wrong(layer.spec, layer.size, layer.dtype):
            return layer


def _drawn(choices: Random, kind: tuple[int, bool], dtypes: Sequence[str], max_size: int) -> RandomLayer:
    if kind != PLAIN:
        spec, size = _other(choices, max_size, *kind)
    elif choices.randint(1, 4) == 1:
        spec, size = _spread(choices)
    else:
        spec, size = choices.choice((_small,) * 5 + (_long,))(choices, max_size)
    return RandomLayer(
        spec=spec,
        size=size,
        batch=choices.randint(1, 3),
        dtype=choices.choice(dtypes),
        alpha=choices.choice(SOFT_ALPHAS),
        seed=choices.randint(0, 2**31 - 1),
        memory_format=choices.choice(MEMORY_FORMATS),
    )


def _other(choices: Random, max_size: int, axes: int, transposed: bool) -> tuple[ConvSpec, Size]:
    """A geometry of other axes, or a transposed one; a sequence may be long."""
    spec = choose_spec(choices, max_kernel=LONGEST_KERNELS[axes], axes=axes, transposed=transposed)
    longest = max_size if axes == 1 and choices.randint(1, 4) == 1 else min(SMALL_SIZES[axes], max_size)
    return spec, choose_size(choices, spec, (longest,) * axes)


def _small(choices: Random, max_size: int) -> tuple[ConvSpec, Size]:
    spec = choose_spec(choices)
    return spec, choose_size(choices, spec, (min(SMALL_SIZE, max_size),) * 2)


def _long(choices: Random, max_size: int) -> tuple[ConvSpec, Size]:
    """An input that is long along one axis, whose tables are bands."""
    spec, longest = choose_spec(choices, max_kernel=3), (max_size, min(3, max_size))
    return spec, choose_size(choices, spec, longest if choices.choice((True, False)) else longest[::-1])


def _spread(choices: Random) -> tuple[ConvSpec, Size]:
    """Taps far from each other along one axis."""
    spec, axis = choose_spec(choices, max_kernel=3, max_channels=2), choices.randint(0, 1)
    taps = max(spec.kernel_size[axis], 2)
    far = choices.randint(2, LONGEST_SPAN // (taps - 1))
    kernel, dilation = ((taps, 1), (far, 1)) if axis == 0 else ((1, taps), (1, far))
    spec = replace(spec, kernel_size=kernel, dilation=dilation)
    return spec, choose_size(choices, spec, [least + 2 for least in smallest_input(spec)])


def choose_size(choices: Random, spec: ConvSpec, largest: Sequence[int]) -> Size:
    """A size of inputs that a convolution accepts, up to ``largest`` pixels along each axis unless it needs more."""
    pairs = zip(smallest_input(spec), largest, strict=True)
    return Size(*(choices.randint(least, max(least, most)) for least, most in pairs))


def choose_spec(
    choices: Random, *, max_kernel: int = 5, max_channels: int = 4, axes: int = 2, transposed: bool = False
) -> ConvSpec:
    """A geometry of everything that a convolution can say.

    Args:
        choices: Makes the choices.
        max_kernel: Most taps along an axis.
        max_channels: Most channels in a group, and most groups.
        axes: Number of axes.
        transposed: Whether it is a transposed convolution.
    """

    def each(smallest: int, largest: int) -> tuple[int, ...]:
        return tuple(choices.randint(smallest, largest) for _ in range(axes))

    # Channels are multiples of the groups; a transposed convolution pads with zeros only, by numbers.
    groups = choices.randint(1, max_channels)
    mode: PaddingMode = "zeros" if transposed else choices.choice(get_args(PaddingMode))
    kernel = each(1, max_kernel)
    named: Literal["numbers", "same", "valid"] = (
        "numbers" if transposed else choices.choice(("numbers", "same", "valid"))
    )
    padding = each(0, 3) if named == "numbers" else named
    plain = ConvSpec(
        in_channels=groups * choices.randint(1, max_channels),
        out_channels=groups * choices.randint(1, max_channels),
        kernel_size=kernel,
        stride=() if padding == "same" else each(1, LARGEST_STEPS[axes]),
        dilation=each(1, LARGEST_STEPS[axes]),
        padding=padding,
        padding_mode=mode,
        groups=groups,
        bias=choices.choice((False, True)),
        transposed=transposed,
    )
    if not transposed:
        return plain
    # Output padding must be smaller than the stride or the dilation.
    largest = (max(pair) - 1 for pair in zip(plain.stride, plain.dilation, strict=True))
    return replace(plain, output_padding=tuple(choices.randint(0, most) for most in largest))


def smallest_input(spec: ConvSpec) -> Size:
    """The smallest input that a convolution accepts."""
    smallest = []
    for reach, step, (before, after) in zip(spec.reach, spec.stuffing, spec.pads, strict=True):
        needed = {"reflect": max(before, after) + 1, "circular": max(before, after)}.get(spec.padding_mode, 1)
        spread = -(-(reach - before - after) // step) + 1  # (n - 1) step + 1 pixels and the padding hold the kernel
        smallest.append(max(spread, needed, 1))
    return Size(*smallest)


def channel_limits(x: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and the largest value of each channel of inputs [batch, channels, *size]."""
    others = (0, *range(2, x.ndim))
    return x.amin(others), x.amax(others)


def random_integers(shape: Sequence[int], limit: int, generator: torch.Generator) -> Tensor:
    """Integers from -limit to limit, in double precision."""
    return torch.randint(-limit, limit + 1, tuple(shape), generator=generator, dtype=torch.float64)


_WIDE, _FAR, _ONE_VECTOR = 8, 4, 16


def may_be_wrong(spec: ConvSpec, size: Size, dtype: str) -> bool:
    """Whether torch's own call, or its gradients, may be wrong on some processor.

    Args:
        spec: The convolution's geometry.
        size: Size of its input.
        dtype: Precision of input and weights, as ``DTYPES`` names it.
    """
    if dtype == "float64":
        return False
    is_half, is_volume = dtype != "float32", spec.axes == 3
    stride, dilation = spec.stride, spec.dilation
    # A transposed convolution is the gradient of a convolution, whose image is its result.
    lengths = spec.output_size(size) if spec.transposed else size
    pads = spec.pads_at(size)
    if spec.transposed:  # what the call crops
        reaches = zip(spec.reach, pads, strict=True)
        pads = tuple((max(0, reach - before), max(0, reach - before)) for reach, (before, _) in reaches)
    # Along each axis: pixels, extent of the kernel, stride, and the most zeros at an end.
    spans = [reach + 1 for reach in spec.reach]
    along = list(zip(lengths, spans, stride, map(max, pads), strict=True))
    is_large = all(n >= max(span, step) and zeros < span for n, span, step, zeros in along)
    is_odd = spec.kernel_size[-1] >= _WIDE or stride[-1] >= _FAR or max(dilation[:-1], default=1) > 1
    # Calls that only bfloat16 gets wrong.
    if dtype == "bfloat16" and (is_odd or not is_large):
        return True
    rest = [
        (n + sum(pad) - reach - 1) % step for n, pad, reach, step in zip(lengths, pads, spec.reach, stride, strict=True)
    ]
    if dtype == "bfloat16" and is_volume and dilation[-1] > 1 and any(rest[:-1]):  # rows that no window reads
        return True
    # Windows that see only padding, or too few columns, in any precision below float64.
    columns, span, step, zeros = along[-1]
    if (is_volume and not is_large and any(map(any, pads))) or (zeros >= span and columns < step):
        return True
    channels = (spec.out_channels if spec.transposed else spec.in_channels) // spec.groups
    if step > 1 and (is_half or is_volume or channels == 1) and columns + sum(pads[-1]) - span < step:
        return True
    return max(stride) > 1 and spec.num_heads == 1 and spec.groups == 1 and 1 < channels < _ONE_VECTOR
