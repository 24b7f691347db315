"""Random calls of every operation whose roundings are counted: shapes, attributes, memory formats and values.

``DRAWS`` has a function for each operation that rounds (``convert/certificate/network/table.py``), and
for attention, whose rule counts by itself. A call holds many cases: each row of its first operand is one, with values
of its own kind. All rows of a call share the attributes, the constants and the scale, since what a rule adds for
subnormal numbers is one number for all of a tensor.

Call i of an operation, a dtype and a seed is the same on every machine. Calls of convolutions that torch may compute
wrongly (``layers.may_be_wrong``) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor

from conv2attn.convert.arguments import Size
from conv2attn.convert.spec import ConvSpec
from conv2attn.proofs.campaign.layers import may_be_wrong
from tests.convert.certificate.network.operations import HALF, Operation, aten

ROWS = 32  # cases of a call
DTYPES = (torch.float32, *HALF)
ONLY_SINGLE = ("avg_pool3d",)  # torch has no half-precision kernel on a CPU
EPSILONS = (1e-5, 1e-3, 0.1, 1e-12)
# Exponents of a tensor's scale, up to which few products overflow; the smallest values are subnormal.
EXPONENTS = {torch.float32: (-140, 60), torch.bfloat16: (-130, 60), torch.float16: (-22, 8)}
LARGEST = {torch.float32: 126, torch.bfloat16: 126, torch.float16: 14}  # exponents up to which few numbers overflow
LONGEST = {1: 24, 2: 8, 3: 5}  # pixels along each axis, by the number of axes


@dataclass(frozen=True)
class DrawnCall:
    """One call.

    Attributes:
        operation: The operation with its constants.
        inputs: Leading arguments that depend on the images, each [rows, ...] or, as a second factor, of any shape.
        dtype: Precision of the result.
        rows: Number of cases.
    """

    operation: Operation
    inputs: tuple[Tensor, ...]
    dtype: torch.dtype
    rows: int


@dataclass(frozen=True)
class Chance:
    """Source of the choices and the values of one call.

    Attributes:
        name: The operation.
        dtype: Precision of its result.
        rows: Cases to draw.
        random: Source of the choices.
    """

    name: str
    dtype: torch.dtype
    rows: int
    random: Random
    _generator: torch.Generator = field(default_factory=torch.Generator)

    @classmethod
    def of(cls, name: str, dtype: torch.dtype, index: int, *, seed: int = 0, rows: int = ROWS) -> Chance:
        """The source for one call."""
        chance = cls(name, dtype, rows, Random(f"call {index} of {name} in {dtype}, seed {seed}"))
        chance._generator.manual_seed(chance.random.getrandbits(63))
        return chance

    @property
    def axes(self) -> int:
        """Number of axes of an operation named by them (``conv2d``), or one to three."""
        last = self.name.removesuffix("d")[-1]
        return int(last) if last in "123" else self.size(1, 3)

    def size(self, smallest: int, largest: int) -> int:
        """An integer, both ends included."""
        return self.random.randint(smallest, largest)

    def sizes(self, count: int, smallest: int, largest: int) -> list[int]:
        """Integers."""
        return [self.size(smallest, largest) for _ in range(count)]

    def one(self, *options: Any) -> Any:
        """One of the options."""
        return self.random.choice(options)

    def length(self) -> int:
        """Number of terms: mostly few, sometimes many."""
        return int(self.one(1, 2, 3, self.size(2, 16), self.size(2, 16), self.size(17, 200)))

    def image(self, axes: int, channels: int) -> Tensor:
        """Numbers of the shape [rows, channels, *size]."""
        return self.numbers(self.rows, channels, *self.sizes(axes, 1, LONGEST[axes]))

    def exponent(self) -> int:
        """Exponent of a tensor's scale: mostly near 0, sometimes anywhere."""
        smallest, largest = EXPONENTS[self.dtype]
        anywhere = self.one(self.size(smallest, largest), self.size(smallest, LARGEST[self.dtype]))
        return int(self.one(0, 0, 0, 0, self.size(-4, 4), self.size(-4, 4), anywhere))

    def uniform(self, *shape: int) -> Tensor:
        """Numbers from 0 to 1 in double precision."""
        return torch.rand(shape, generator=self._generator, dtype=torch.float64)

    def numbers(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Numbers of either sign; each row, of the first dimension, has its own kind."""
        kinds = [self.random.choice(KINDS)(self, shape[1:]) for _ in range(shape[0])]
        return self.rounded(torch.stack(kinds) * 2.0 ** self.exponent(), dtype)

    def positive(self, *shape: int) -> Tensor:
        """Numbers above 0."""
        return self.rounded((0.03 + self.uniform(*shape)) * 2.0 ** self.exponent()).clamp(
            min=torch.finfo(self.dtype).tiny
        )

    def rounded(self, values: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """The nearest numbers of the precision."""
        dtype = dtype or self.dtype
        largest = torch.finfo(dtype).max
        return values.clamp(-largest, largest).to(dtype)

    def optional(self, *shape: int) -> Tensor | None:
        """Numbers, or None."""
        return self.numbers(*shape) if self.random.random() < 0.7 else None

    def scalar(self) -> float:
        """A number that the precision may not hold, or may."""
        return float(self.one(1.0, -2.0, 0.5, self.random.uniform(-3, 3), self.random.uniform(-3, 3), 1e-3, 0.0))

    def laid_out(self, x: Tensor) -> Tensor:
        """The same values, in another order of memory."""
        way = self.one("as it is", "as it is", "transposed", "within a wider tensor", "channels last")
        if way == "transposed" and x.ndim > 1:
            axis = self.size(0, x.ndim - 2)
            return x.transpose(axis, -1).contiguous().transpose(axis, -1)
        if way == "within a wider tensor":
            wider = x.new_zeros((*x.shape[:-1], x.shape[-1] + 1))
            wider[..., 1:] = x
            return wider[..., 1:]
        last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.ndim)
        return x.contiguous(memory_format=last) if way == "channels last" and last else x

    def call(self, target: Any, *inputs: Tensor, args: Sequence[Any] = (), rows: int = 0, **kwargs: Any) -> DrawnCall:
        """A call whose inputs are laid out in memory by chance."""
        shape, *others = (x.shape for x in inputs)
        operation = Operation(
            target, tuple(args), shape, tuple(kwargs.items()), inputs=len(inputs), others=tuple(others)
        )
        return DrawnCall(operation, tuple(map(self.laid_out, inputs)), self.dtype, rows or shape[0])


# Kinds of the values of a row.


def _signs(chance: Chance, shape: Sequence[int]) -> Tensor:
    return (chance.uniform(*shape) - 0.5).sign()


def _normal(chance: Chance, shape: Sequence[int]) -> Tensor:
    return torch.randn(shape, generator=chance._generator, dtype=torch.float64)


def _spread(chance: Chance, shape: Sequence[int]) -> Tensor:
    """Numbers of magnitudes that differ by many powers of two."""
    return _normal(chance, shape) * 2.0 ** (24 * chance.uniform(*shape) - 12)


def _integers(chance: Chance, shape: Sequence[int]) -> Tensor:
    return (17 * chance.uniform(*shape) - 8.5).round()


def _sparse(chance: Chance, shape: Sequence[int]) -> Tensor:
    """Zeros, of either sign, among normal numbers."""
    return _normal(chance, shape) * (chance.uniform(*shape) < 0.4)


def _cancelling(chance: Chance, shape: Sequence[int]) -> Tensor:
    """Numbers of one size and both signs, nearly equal."""
    return _signs(chance, shape) * (1 + 2.0 ** -chance.size(3, 30) * chance.uniform(*shape))


def _constant(chance: Chance, shape: Sequence[int]) -> Tensor:
    """One number everywhere, nearly."""
    return 1 + chance.uniform() + 2.0 ** -chance.size(4, 40) * _normal(chance, shape)


def _ties(chance: Chance, shape: Sequence[int]) -> Tensor:
    """1 and an odd number of units in the last place: sums and products lie halfway between two numbers."""
    unit = torch.finfo(chance.dtype).eps
    return _signs(chance, shape) * (1 + unit * (1 + 2 * (4 * chance.uniform(*shape)).floor()))


def _largest_roundings(chance: Chance, shape: Sequence[int]) -> Tensor:
    """Just above a power of two, where half a unit in the last place is most of a number."""
    return 1 + (64 * chance.uniform(*shape)).floor() * torch.finfo(chance.dtype).eps


def _positive(chance: Chance, shape: Sequence[int]) -> Tensor:
    return chance.uniform(*shape)


def _subnormal(chance: Chance, shape: Sequence[int]) -> Tensor:
    """Subnormal numbers, where the tensor's scale is 1."""
    limits = torch.finfo(chance.dtype)
    return (64 * chance.uniform(*shape) - 32).round() * limits.smallest_normal * limits.eps


KINDS: tuple[Callable[[Chance, Sequence[int]], Tensor], ...] = (
    *(_normal, _normal, _spread, _integers, _sparse, _cancelling),
    *(_constant, _ties, _largest_roundings, _positive, _subnormal),
)


# Operations.


def drawn_convolution(chance: Chance) -> DrawnCall:
    """A convolution of any geometry, transposed or not."""
    while True:
        spec, size, padding = _geometry(chance)
        if not may_be_wrong(spec, size, str(chance.dtype).removeprefix("torch.")):
            break
    inner, outer = spec.in_channels // spec.groups, spec.out_channels // spec.groups
    channels = (spec.in_channels, outer) if spec.transposed else (spec.out_channels, inner)
    held = chance.numbers(*channels, *spec.kernel_size), chance.optional(spec.out_channels)
    x = chance.numbers(chance.rows, spec.in_channels, *size)
    stride, dilation, target = list(spec.stride), list(spec.dilation), getattr(aten, chance.name)
    if not spec.transposed:
        return chance.call(target.default, x, args=(*held, stride, padding, dilation, spec.groups))
    args = (*held, stride, padding, list(spec.output_padding), spec.groups, dilation)
    return chance.call(target.default if spec.axes == 1 else target.input, x, args=args)


def _geometry(chance: Chance) -> tuple[ConvSpec, Size, list[int]]:
    """A convolution, the size of its input, and the padding of each axis."""
    axes, transposed = chance.axes, "transpose" in chance.name
    groups = chance.one(1, 1, 1, 2, 3)
    inner, outer = chance.one(1, 2, 4, 16, chance.size(1, 40)), chance.size(1, 4)
    kernel, stride, dilation = chance.sizes(axes, 1, 3), chance.sizes(axes, 1, 2), chance.sizes(axes, 1, 2)
    reach = [step * (taps - 1) for taps, step in zip(kernel, dilation, strict=True)]
    padding = [chance.size(0, each // 2) for each in reach]
    output_padding = [chance.size(0, step - 1) if transposed else 0 for step in stride]
    size = [chance.size(1 if transposed else 1 + each, LONGEST[axes] + each) for each in reach]
    spec = ConvSpec(
        *(inner * groups, outer * groups, tuple(kernel), tuple(stride), tuple(dilation), tuple(padding)),
        groups=groups,
        transposed=transposed,
        output_padding=tuple(output_padding) if transposed else (),
    )
    return spec, Size(*size), padding


def linear(chance: Chance) -> DrawnCall:
    """A linear layer, on rows or on sequences."""
    before, inner, outer = chance.sizes(chance.size(0, 2), 1, 3), chance.length(), chance.size(1, 5)
    x, weight = chance.numbers(chance.rows, *before, inner), chance.numbers(outer, inner)
    return chance.call(aten.linear.default, x, args=(weight, chance.optional(outer)))


def batch_norm(chance: Chance) -> DrawnCall:
    """Batch normalisation with the statistics that it has."""
    channels = chance.size(1, 5)
    if chance.name == "_native_batch_norm_legit" or (chance.name == "batch_norm" and chance.random.random() < 0.3):
        x = chance.numbers(1, chance.rows, chance.size(2, 40))  # by the statistics of an image of its own
        held = (chance.optional(chance.rows), chance.optional(chance.rows), None, None)
        if chance.name != "batch_norm":
            target = aten._native_batch_norm_legit.no_stats
            return chance.call(target, x, args=(*held[:2], True, 0.1, chance.one(*EPSILONS)), rows=1)
        return chance.call(aten.batch_norm.default, x, args=(*held, True, 0.1, chance.one(*EPSILONS), True), rows=1)
    x = chance.image(chance.size(1, 3), channels)
    weight, bias, mean = (chance.optional(channels), chance.optional(channels), chance.numbers(channels))
    kept, eps = (weight, bias, mean, chance.positive(channels)), chance.one(*EPSILONS)
    if chance.name != "batch_norm":
        return chance.call(aten._native_batch_norm_legit_no_training.default, x, args=(*kept, 0.1, eps))
    return chance.call(aten.batch_norm.default, x, args=(*kept, False, 0.1, eps, True))


def average_pool(chance: Chance) -> DrawnCall:
    """Averages of windows, with or without the padding's zeros, and with windows that end beyond the image."""
    axes = chance.axes
    kernel, stride = chance.sizes(axes, 1, 4), chance.sizes(axes, 1, 3)
    padding = [chance.size(0, taps // 2) for taps in kernel]
    x = chance.numbers(chance.rows, chance.size(1, 3), *(chance.size(taps, taps + LONGEST[axes]) for taps in kernel))
    args = (kernel, stride, padding, chance.one(True, False), chance.one(True, False))
    return chance.call(getattr(aten, chance.name).default, x, args=args)


def adaptive_average_pool(chance: Chance) -> DrawnCall:
    """Averages of windows that are as many as they should be."""
    axes = chance.axes
    windows = chance.one([1] * axes, chance.sizes(axes, 1, LONGEST[axes]), chance.sizes(axes, 1, LONGEST[axes]))
    return chance.call(getattr(aten, chance.name).default, chance.image(axes, chance.size(1, 4)), args=(windows,))


def reduction(chance: Chance) -> DrawnCall:
    """A mean or a sum over some dimensions, of each row by itself; sometimes over all."""
    x = chance.numbers(chance.rows, *chance.sizes(chance.size(0, 2), 1, 5), chance.length())
    target = getattr(aten, chance.name)
    if chance.random.random() < 0.1:
        return chance.call(target.default, x, rows=1)
    over = chance.random.sample(range(1, x.ndim), chance.size(1, x.ndim - 1))
    overload = "dim" if chance.name == "mean" else "dim_IntList"
    return chance.call(getattr(target, overload), x, args=(over, chance.one(True, False)))


def interpolation(chance: Chance) -> DrawnCall:
    """Linear interpolation to a size, or by factors."""
    axes = chance.axes
    long = {1: (2, 70), 2: (1, 12)}[axes]
    x = chance.numbers(chance.rows, chance.size(1, 3), *chance.sizes(axes, *long))
    corners, factors = chance.one(True, False), [chance.random.uniform(0.6, 3.5) for _ in range(axes)]
    factors = [max(factor, 1 / pixels) for factor, pixels in zip(factors, x.shape[2:], strict=True)]
    args = chance.one((chance.sizes(axes, 1, long[1] * 2), corners, None), (None, corners, factors))
    return chance.call(getattr(aten, chance.name).vec, x, args=args)


def activation(chance: Chance) -> DrawnCall:
    """A function of each value by itself."""
    return chance.call(getattr(aten, chance.name).default, chance.image(chance.size(1, 2), chance.size(1, 4)))


def elu(chance: Chance) -> DrawnCall:
    """ELU, also with another value at minus infinity, and SELU."""
    options = ((), (0.5,), (chance.random.uniform(0, 3),), (1.6732632423543772, 1.0507009873554805))
    return chance.call(aten.elu.default, chance.image(1, chance.size(1, 4)), args=chance.one(*options))


def leaky(chance: Chance) -> DrawnCall:
    """A slope for negative numbers."""
    slope = chance.one(0.01, 0.3, -0.5, 2.0, chance.random.uniform(-3, 3))
    return chance.call(aten.leaky_relu.default, chance.image(chance.size(1, 2), chance.size(1, 4)), args=(slope,))


def prelu(chance: Chance) -> DrawnCall:
    """A slope for all values, or for each channel."""
    channels = chance.size(1, 5)
    slopes = chance.numbers(chance.one(1, channels))
    return chance.call(aten.prelu.default, chance.image(chance.size(1, 2), channels), args=(slopes,))


def gated(chance: Chance) -> DrawnCall:
    """One half times the sigmoid of the other."""
    x = chance.image(chance.size(1, 2), 2 * chance.size(1, 3))
    return chance.call(aten.glu.default, x, args=(1,))


def sum_of_two(chance: Chance) -> DrawnCall:
    """A sum or a difference with a tensor, a constant or a number, of which one may have a factor."""
    x = chance.image(1, chance.size(1, 4))
    if chance.name == "rsub":
        return chance.call(aten.rsub.Scalar, x, args=(chance.scalar(),))
    factor: dict[str, Any] = {} if chance.random.random() < 0.6 else {"alpha": chance.scalar()}
    target = getattr(aten, chance.name).Tensor
    other = chance.one(_beside, _cancelled, _constant_of, None)
    if other is None:
        return chance.call(target, x, args=(chance.scalar(),), **factor)
    if other is _constant_of:
        return chance.call(target, x, args=(_constant_of(chance, x),), **factor)
    return chance.call(target, x, other(chance, x), **factor)


def _beside(chance: Chance, x: Tensor) -> Tensor:
    return chance.numbers(*x.shape)


def _cancelled(chance: Chance, x: Tensor) -> Tensor:
    """Nearly the negative, of the same scale."""
    return chance.rounded(-x.double() * (1 + 2.0 ** -chance.size(1, 24) * chance.uniform(*x.shape)))


def _constant_of(chance: Chance, x: Tensor) -> Tensor:
    return chance.numbers(x.shape[1], 1)


def product_of_two(chance: Chance) -> DrawnCall:
    """A product with a tensor, a constant or a number."""
    x = chance.image(1, chance.size(1, 4))
    other = chance.one(_beside, _constant_of, None)
    if other is _beside:
        return chance.call(aten.mul.Tensor, x, _beside(chance, x))
    return chance.call(aten.mul.Tensor, x, args=(chance.scalar() if other is None else other(chance, x),))


def quotient(chance: Chance) -> DrawnCall:
    """A quotient by positive numbers."""
    x = chance.image(1, chance.size(1, 4))
    divisor = chance.one(chance.random.uniform(0.01, 30), 3.0, 49.0, chance.positive(x.shape[1], 1))
    return chance.call(aten.div.Tensor, x, args=(divisor,))


def cast(chance: Chance) -> DrawnCall:
    """Numbers of another precision, made this one's."""
    given = chance.one(*(dtype for dtype in (torch.float64, *DTYPES) if dtype != chance.dtype))
    x = chance.numbers(chance.rows, chance.size(1, 30), dtype=given)
    if chance.name == "to":
        return chance.call(aten.to.dtype, x, args=(chance.dtype,))
    return chance.call(aten._to_copy.default, x, dtype=chance.dtype)


def root(chance: Chance) -> DrawnCall:
    """A root, an inverse or a power of positive numbers; squares also of others."""
    sizes = chance.sizes(chance.size(1, 2), 1, 6)
    x, target = chance.positive(chance.rows, *sizes), getattr(aten, chance.name)
    if chance.name == "square":
        return chance.call(target.default, chance.numbers(chance.rows, *sizes))
    if chance.name != "pow":
        return chance.call(target.default, x)
    if chance.one(True, False):
        return chance.call(target.Tensor_Scalar, x, args=(chance.one(0.5, -0.5, -1, 1.5, 2, 3, 4, -2),))
    x = chance.numbers(chance.rows, *sizes)
    operation = Operation(target.Scalar, (), x.shape, leading=(chance.one(0.3, 2.0, 10.0, 10000.0),))
    return DrawnCall(operation, (chance.laid_out(x),), chance.dtype, chance.rows)


def spread(chance: Chance) -> DrawnCall:
    """A norm of each row's values, their variance or deviation, sometimes far from 0."""
    x = chance.numbers(chance.rows, *chance.sizes(chance.size(0, 2), 1, 5), 1 + chance.length())
    over = list(range(x.ndim - chance.size(1, x.ndim - 1), x.ndim))
    keeps, target = chance.one(True, False), getattr(aten, chance.name)
    if chance.name == "linalg_vector_norm":
        return chance.call(target.default, x, args=(2, over, keeps))
    x = chance.rounded(x.double() + chance.one(0.0, 0.0, 1.0, 100.0) * 2.0 ** chance.exponent())
    if chance.name == "std":  # a root of what is no more than rounding has no bound
        x = chance.rounded(
            x.double() + torch.randn(x.shape, generator=chance._generator).double() * x.double().abs().max()
        )
    return chance.call(target.correction, x, args=(over,), correction=chance.one(0, 1, None), keepdim=keeps)


def normalisation(chance: Chance) -> DrawnCall:
    """Layer norm of the last dimensions, group norm, or instance norm by an image's own statistics."""
    eps = chance.one(*EPSILONS)
    if chance.name == "layer_norm":
        shape = chance.one([chance.length()], chance.sizes(2, 1, 6))
        x = chance.numbers(chance.rows, *chance.sizes(chance.size(0, 1), 1, 3), *shape)
        return chance.call(
            aten.layer_norm.default, x, args=(shape, chance.optional(*shape), chance.optional(*shape), eps)
        )
    groups, each = chance.size(1, 3), chance.size(1, 4)
    channels = groups * each
    x = chance.numbers(chance.rows, channels, *chance.sizes(chance.size(1, 2), 2, 6))
    weight, bias = chance.optional(channels), chance.optional(channels)
    if chance.name == "group_norm":
        return chance.call(aten.group_norm.default, x, args=(groups, weight, bias, eps))
    return chance.call(aten.instance_norm.default, x, args=(weight, bias, None, None, True, 0.1, eps, False))


def softmax(chance: Chance) -> DrawnCall:
    """Shares of few or many scores."""
    x = chance.numbers(chance.rows, *chance.sizes(chance.size(0, 2), 1, 4), chance.length())
    return chance.call(aten.softmax.int, x, args=(chance.one(-1, *range(1, x.ndim)),))


def matrix_product(chance: Chance) -> DrawnCall:
    """A product of two matrices or of batches of them, to which a matrix may be added."""
    if chance.name in ("dot", "vdot"):
        inner = chance.length()
        found = [chance.numbers(1, inner)[0] for _ in range(2)]
        return chance.call(getattr(aten, chance.name).default, *found, rows=1)
    if chance.name == "mv":
        inner = chance.length()
        return chance.call(aten.mv.default, chance.numbers(chance.rows, inner), chance.numbers(1, inner)[0])
    inner, outer, batched = chance.length(), chance.size(1, 5), chance.name in ("bmm", "baddbmm")
    before = [chance.size(1, 4)] if batched or (chance.name == "matmul" and chance.one(True, False)) else []
    shared = (not batched and not before) or (chance.name == "matmul" and chance.one(True, False))
    a = chance.numbers(chance.rows, *before, inner)
    b = chance.numbers(inner, outer) if shared else chance.numbers(chance.rows, inner, outer)
    target = getattr(aten, chance.name).default
    if "add" in chance.name:
        return chance.call(target, chance.numbers(chance.rows, *before, outer), a, b)
    return chance.call(target, a, b)


def attention(chance: Chance) -> DrawnCall:
    """Attention without a mask, of one head or several."""
    heads, depth = chance.size(1, 2), chance.size(1, 8)
    queries, keys = chance.size(1, 5), chance.one(chance.size(1, 8), chance.size(9, 40))
    shapes = ((queries, depth), (keys, depth), (keys, depth))
    given: dict[str, Any] = {} if chance.one(True, False) else {"scale": chance.random.uniform(-1.5, 1.5)}
    tensors = [chance.numbers(chance.rows, heads, *shape) for shape in shapes]
    return chance.call(aten.scaled_dot_product_attention.default, *tensors, **given)


_AXES = (1, 2, 3)
DRAWS: dict[str, Callable[[Chance], DrawnCall]] = {
    **{f"{name}{axes}d": drawn_convolution for name in ("conv", "conv_transpose") for axes in _AXES},
    "linear": linear,
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"), batch_norm),
    **{f"avg_pool{axes}d": average_pool for axes in _AXES},
    **{f"adaptive_avg_pool{axes}d": adaptive_average_pool for axes in _AXES},
    **dict.fromkeys(("mean", "sum"), reduction),
    **dict.fromkeys(("upsample_linear1d", "upsample_bilinear2d"), interpolation),
    **dict.fromkeys(("sigmoid", "tanh", "hardsigmoid", "silu", "gelu", "hardswish", "sin", "cos", "exp"), activation),
    "elu": elu,
    "leaky_relu": leaky,
    "prelu": prelu,
    **dict.fromkeys(("add", "sub", "rsub"), sum_of_two),
    "mul": product_of_two,
    "div": quotient,
    "glu": gated,
    **dict.fromkeys(("layer_norm", "group_norm", "instance_norm"), normalisation),
    "softmax": softmax,
    **dict.fromkeys(("matmul", "bmm", "mm", "addmm", "baddbmm", "mv", "dot", "vdot"), matrix_product),
    **dict.fromkeys(("sqrt", "rsqrt", "reciprocal", "square", "pow"), root),
    **dict.fromkeys(("linalg_vector_norm", "var", "std", "var_mean"), spread),
    **dict.fromkeys(("_to_copy", "to"), cast),
    "scaled_dot_product_attention": attention,
}


def draw(name: str, dtype: torch.dtype, index: int, *, seed: int = 0, rows: int = ROWS) -> DrawnCall:
    """Call ``index`` of an operation.

    Raises:
        KeyError: No draws are known for it.
    """
    return DRAWS[name](Chance.of(name, dtype, index, seed=seed, rows=rows))


def precisions(name: str) -> tuple[torch.dtype, ...]:
    """The precisions in which an operation is compared."""
    return DTYPES[:1] if name in ONLY_SINGLE else DTYPES
