"""Every operation that a rule is for, called as an exported program calls it, and what is known of its result."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conv2attn.convert.certificate.network.call import Call
from conv2attn.convert.certificate.network.interval import Arithmetic, Interval
from conv2attn.convert.certificate.network.table import bound

aten = torch.ops.aten
SHAPE = (2, 4, 6, 5)  # [batch, channels, rows, columns]
HALF = (torch.bfloat16, torch.float16)
DTYPES = (torch.float64, torch.float32, *HALF)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Numbers from 0.5 to 2, of which half are negative."""
    generator = torch.Generator().manual_seed(seed)
    size = 0.5 + 1.5 * torch.rand(shape, generator=generator, dtype=torch.float64)
    return size * torch.where(torch.rand(shape, generator=generator) < 0.5, -1.0, 1.0)


def box(x: Tensor, error: float = 1e-3, width: float = 0.25) -> Interval:
    """Bounds around a tensor."""
    values = x.double()
    return Interval(values - width, values + width, torch.full_like(values, error))


def _is_real(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


@dataclass(frozen=True)
class Operation:
    """One call.

    Attributes:
        target: The operator.
        args: What follows its first argument; tensors are constants.
        shape: Of the first argument.
        kwargs: By name.
        inputs: How many leading arguments depend on the images.
        listed: Whether these are in one list.
        others: Shapes of the other arguments that depend on the images.
        leading: Constants before them.
        positive: Whether these are positive.
    """

    target: Any
    args: tuple[Any, ...] = ()
    shape: Sequence[int] = SHAPE
    kwargs: tuple[tuple[str, Any], ...] = ()
    inputs: int = 1
    listed: bool = False
    others: tuple[Sequence[int], ...] = ()
    leading: tuple[Any, ...] = ()
    positive: bool = False

    @property
    def shapes(self) -> list[Sequence[int]]:
        """Of all arguments that depend on the images."""
        return [self.shape, *(self.others or [self.shape] * (self.inputs - 1))]

    def drawn(self, place: int, seed: int) -> Tensor:
        """Numbers for an argument that depends on the images."""
        found = numbers(*self.shapes[place], seed=seed)
        return found.abs() if self.positive else found

    def arguments(self, inputs: Sequence[Any], dtype: torch.dtype) -> tuple[Any, ...]:
        """Positional ones, with constants in a precision."""
        leading = (list(inputs),) if self.listed else tuple(inputs)
        before, after = (
            [one.to(dtype) if _is_real(one) else one for one in each] for each in (self.leading, self.args)
        )
        return *before, *leading, *after

    def run(self, inputs: Sequence[Tensor], held: torch.dtype | None = None) -> Tensor:
        """The result in the inputs' precision.

        Args:
            inputs: The leading arguments.
            held: The precision that constants are rounded to first. With it, a dtype to change to is the inputs' own.
        """
        dtype = inputs[0].dtype

        def given(one: Any) -> Any:
            if isinstance(one, torch.dtype) and held is not None:
                return dtype
            return one.to(dtype) if _is_real(one) else one

        arguments = map(given, self.arguments(inputs, held or dtype))
        found = self.target(*arguments, **{name: given(one) for name, one in self.kwargs})
        return found if isinstance(found, Tensor) else found[0]

    def call(self, inputs: Sequence[Interval], dtype: torch.dtype, **options: Any) -> Call:
        """It on bounds."""
        like = [torch.empty(one.low.shape, dtype=dtype) for one in inputs]
        shape, arguments = self.run(like).shape, self.arguments(inputs, dtype)
        return Call.of(self.target, arguments, dict(self.kwargs), shape, Arithmetic(dtype, **options))

    def bound(self, inputs: Sequence[Interval], dtype: torch.dtype, **options: Any) -> Interval:
        """Bounds on its result."""
        found = bound(self.call(inputs, dtype, **options))
        interval: Interval = found if isinstance(found, Interval) else found[0]
        return interval


def _with(**kwargs: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(kwargs.items())


_POSITIVE = functools.partial(Operation, positive=True)
C, R, W = SHAPE[1:]
SEQUENCE, VOLUME, MATRIX = (2, C, 7), (1, C, 2, 5, 4), (2, 3, 5)
NORM = (numbers(C, seed=1), numbers(C, seed=2), numbers(C, seed=3), numbers(C, seed=4).abs())
# name: one call or several
OPERATIONS: dict[str, list[Operation]] = {
    "conv1d": [Operation(aten.conv1d.default, (numbers(6, 2, 3), numbers(6), [2], [1], [1], 2), SEQUENCE)],
    "conv2d": [
        Operation(aten.conv2d.default, (numbers(6, 2, 3, 2), numbers(6), [1, 2], [1, 0], [1, 1], 2)),
        Operation(aten.conv2d.padding, (numbers(3, 4, 3, 3), None, [1, 1], "same")),
        Operation(aten.conv2d.default, ([1, 2], [1, 0], [1, 1], 2), inputs=3, others=((6, 2, 3, 2), (6,))),
    ],
    "conv3d": [Operation(aten.conv3d.default, (numbers(2, C, 1, 2, 2), numbers(2)), VOLUME)],
    "conv_transpose1d": [Operation(aten.conv_transpose1d.default, (numbers(C, 3, 3), numbers(3), [2]), SEQUENCE)],
    "conv_transpose2d": [
        Operation(aten.conv_transpose2d.input, (numbers(C, 3, 2, 3), numbers(6), [2, 1], [1, 0], [1, 0], 2))
    ],
    "conv_transpose3d": [Operation(aten.conv_transpose3d.input, (numbers(C, 2, 1, 2, 2), None), VOLUME)],
    "linear": [
        Operation(aten.linear.default, (numbers(3, W), numbers(3))),
        Operation(aten.linear.default, (numbers(3, C), None), (2, C)),
        Operation(aten.linear.default, inputs=3, others=((3, W), (3,))),
        Operation(aten.linear.default, (numbers(3),), inputs=2, others=((3, W),)),
    ],
    "_native_batch_norm_legit_no_training": [
        Operation(aten._native_batch_norm_legit_no_training.default, (*NORM, 0.1, 1e-3))
    ],
    "batch_norm": [
        Operation(aten.batch_norm.default, (None, None, *NORM[2:], False, 0.1, 1e-3, True)),
        Operation(aten.batch_norm.default, (*NORM[:2], None, None, True, 0.1, 1e-3, True), (1, C, R, W)),
        Operation(
            aten.batch_norm.default, (None, None, True, 0.1, 1e-3, True), (1, C, R), inputs=3, others=((C,), (C,))
        ),
    ],
    "_native_batch_norm_legit": [
        Operation(aten._native_batch_norm_legit.no_stats, (*NORM[:2], True, 0.1, 1e-3), (1, C, R, W)),
    ],
    "avg_pool1d": [Operation(aten.avg_pool1d.default, ([3], [2], [1]), SEQUENCE)],
    "avg_pool2d": [Operation(aten.avg_pool2d.default, ([3, 2], [1, 1], [1, 1], False, False))],
    "avg_pool3d": [Operation(aten.avg_pool3d.default, ([1, 2, 2],), VOLUME)],
    "adaptive_avg_pool1d": [Operation(aten.adaptive_avg_pool1d.default, ([4],), SEQUENCE)],
    "adaptive_avg_pool2d": [Operation(aten.adaptive_avg_pool2d.default, ([4, 2],))],
    "adaptive_avg_pool3d": [
        Operation(aten.adaptive_avg_pool3d.default, (size,), VOLUME) for size in ([2, 2, 3], [1] * 3)
    ],
    "mean": [Operation(aten.mean.dim, ([2, 3], True)), Operation(aten.mean.dim, ([1],)), Operation(aten.mean.default)],
    "sum": [Operation(aten.sum.dim_IntList, ([2, 3],))],
    "upsample_linear1d": [
        Operation(aten.upsample_linear1d.vec, (None, False, [2.3]), SEQUENCE),
        Operation(aten.upsample_linear1d.vec, ([188], True, None), (1, 1, 100)),
    ],
    "upsample_bilinear2d": [
        Operation(aten.upsample_bilinear2d.vec, ([13, 9], True, None)),
        Operation(aten.upsample_bilinear2d.vec, (None, False, [3.9, 0.7]), (1, 1, 2, 64)),
    ],
    **{name: [Operation(getattr(aten, name).default)] for name in ("sigmoid", "tanh", "hardsigmoid", "silu")},
    **{name: [Operation(getattr(aten, name).default)] for name in ("gelu", "hardswish", "relu", "relu6")},
    "elu": [Operation(aten.elu.default), Operation(aten.elu.default, (1.7, 1.05)), Operation(aten.elu.default, (0.3,))],
    "abs": [Operation(aten.abs.default)],
    "hardtanh": [Operation(aten.hardtanh.default, (-0.7, 0.3))],
    "clamp": [Operation(aten.clamp.default, (None, 0.4)), Operation(aten.clamp.default, (-0.1, 0.4))],
    "clamp_min": [Operation(aten.clamp_min.default, (0.3,))],
    "clamp_max": [Operation(aten.clamp_max.default, (0.3,))],
    "leaky_relu": [Operation(aten.leaky_relu.default, (slope,)) for slope in (0.3, -0.5, 2.0)],
    "prelu": [Operation(aten.prelu.default, (weight,)) for weight in (numbers(C), numbers(1))],
    "glu": [Operation(aten.glu.default, (1,))],
    "add": [
        Operation(aten.add.Tensor, inputs=2),
        Operation(aten.add.Tensor, (0.3,)),
        Operation(aten.add.Tensor, (numbers(C, 1, 1),)),
        Operation(aten.add.Tensor, inputs=2, kwargs=_with(alpha=-0.7)),
    ],
    "sub": [Operation(aten.sub.Tensor, inputs=2), Operation(aten.sub.Tensor, (0.5,))],
    "rsub": [Operation(aten.rsub.Scalar, (0.3,))],
    "mul": [
        Operation(aten.mul.Tensor, inputs=2),
        Operation(aten.mul.Tensor, (-0.7,)),
        Operation(aten.mul.Tensor, inputs=2, others=((2, C, 1, 1),)),
    ],
    "div": [
        Operation(aten.div.Tensor, (3.3,)),
        Operation(aten.div.Tensor, (numbers(C, 1, 1).abs(),)),
        _POSITIVE(aten.div.Tensor, inputs=2),
        _POSITIVE(aten.div.Tensor, leading=(numbers(C, 1, 1),)),
    ],
    "neg": [Operation(aten.neg.default)],
    **{name: [_POSITIVE(getattr(aten, name).default)] for name in ("sqrt", "rsqrt", "reciprocal")},
    "square": [Operation(aten.square.default)],
    "pow": [
        *(Operation(aten.pow.Tensor_Scalar, (exponent,)) for exponent in (1, 2, 3.0, 4)),
        *(_POSITIVE(aten.pow.Tensor_Scalar, (exponent,)) for exponent in (0.5, -1, -2.5, 1.5)),
        *(Operation(aten.pow.Scalar, leading=(base,)) for base in (0.1, 3.0)),
    ],
    **{name: [Operation(getattr(aten, name).default)] for name in ("exp", "sin", "cos")},
    "linalg_vector_norm": [
        Operation(aten.linalg_vector_norm.default, (2, [1, 2], True)),
        Operation(aten.linalg_vector_norm.default),
    ],
    "var": [Operation(aten.var.correction, ([2, 3],)), Operation(aten.var.correction, kwargs=_with(correction=0))],
    "std": [Operation(aten.std.correction, ([1, 3],), kwargs=_with(keepdim=True))],
    "var_mean": [Operation(aten.var_mean.correction, ([2, 3],), kwargs=_with(correction=0))],
    "mv": [Operation(aten.mv.default, shape=(3, 5), inputs=2, others=((5,),))],
    "dot": [Operation(aten.dot.default, shape=(7,), inputs=2)],
    "vdot": [Operation(aten.vdot.default, shape=(7,), inputs=2)],
    "copy": [Operation(aten.copy.default, inputs=2, others=((C, 1, W),))],
    "fill": [Operation(aten.fill.Tensor, inputs=2, others=((),)), Operation(aten.fill.Scalar, (0.25,))],
    "index": [Operation(aten.index.Tensor, ([None, torch.tensor([3, 0, 0])],))],
    "index_put": [
        Operation(aten.index_put.default, ([torch.tensor([1]), torch.tensor([3])], numbers(R, W))),
    ],
    "layer_norm": [
        Operation(aten.layer_norm.default, ([W], numbers(W), numbers(W), 1e-5)),
        Operation(aten.layer_norm.default, ([R, W], None, None, 0.1)),
    ],
    "group_norm": [Operation(aten.group_norm.default, (2, numbers(C), numbers(C), 1e-3))],
    "instance_norm": [Operation(aten.instance_norm.default, (numbers(C), None, None, None, True, 0.1, 1e-3, False))],
    "softmax": [Operation(aten.softmax.int, (dim,)) for dim in (-1, 1)],
    "scaled_dot_product_attention": [
        Operation(aten.scaled_dot_product_attention.default, shape=(2, 2, 7, 4), inputs=3),
        Operation(aten.scaled_dot_product_attention.default, shape=(1, 2, 7, 4), inputs=3, kwargs=_with(scale=-1.5)),
    ],
    "matmul": [Operation(aten.matmul.default, inputs=2, others=((2, C, W, 3),))],
    "bmm": [Operation(aten.bmm.default, shape=MATRIX, inputs=2, others=((2, 5, 4),))],
    "mm": [Operation(aten.mm.default, shape=(3, 5), inputs=2, others=((5, 4),))],
    "addmm": [Operation(aten.addmm.default, shape=(3, 4), inputs=3, others=((3, 5), (5, 4)))],
    "baddbmm": [Operation(aten.baddbmm.default, shape=(2, 3, 4), inputs=3, others=((2, 3, 5), (2, 5, 4)))],
    "max_pool2d": [Operation(aten.max_pool2d.default, ([3, 2], [2, 2], [1, 1]))],
    "max_pool3d": [Operation(aten.max_pool3d.default, ([1, 2, 2],), VOLUME)],
    "adaptive_max_pool2d": [Operation(aten.adaptive_max_pool2d.default, ([3, 2],))],
    "amax": [Operation(aten.amax.default, ([2, 3],))],
    "pad": [
        Operation(aten.pad.default, ([1, 0, 2, 1], "constant", 0.3)),
        Operation(aten.pad.default, ([1, 2, 1, 0], "reflect")),
    ],
    "constant_pad_nd": [Operation(aten.constant_pad_nd.default, ([1, 1, 0, 2], -0.7))],
    "cat": [Operation(aten.cat.default, (1,), inputs=2, listed=True)],
    "view": [Operation(aten.view.default, ([2, C * R, W],))],
    "_unsafe_view": [Operation(aten._unsafe_view.default, ([2, C, -1],))],
    "expand": [Operation(aten.expand.default, ([2, C, 3],), (2, C, 1))],
    "repeat": [Operation(aten.repeat.default, ([1, 2, 1, 1],))],
    "permute": [Operation(aten.permute.default, ([0, 2, 3, 1],))],
    "slice": [Operation(aten.slice.Tensor, (3, 0, 9, 2))],
    "chunk": [Operation(aten.chunk.default, (2, 1))],
    "pixel_shuffle": [Operation(aten.pixel_shuffle.default, (2,))],
    "upsample_nearest2d": [Operation(aten.upsample_nearest2d.vec, (None, [1.7, 2.0]))],
    "slice_scatter": [Operation(aten.slice_scatter.default, (1, 0, 2), inputs=2, others=((2, 2, R, W),))],
    "select_scatter": [Operation(aten.select_scatter.default, (1, 2), inputs=2, others=((2, R, W),))],
    "reshape_as": [Operation(aten.reshape_as.default, (numbers(2, C * R, W),))],
    "expand_as": [Operation(aten.expand_as.default, (numbers(2, C, 3),), (2, C, 1))],
    "index_select": [Operation(aten.index_select.default, (1, torch.tensor([3, 0, 0])))],
    "repeat_interleave": [Operation(aten.repeat_interleave.self_int, (2, 3))],
}
