"""Faults that are planted in a network's exported program: one operation computes something else.

A fault is a function that changes an operation of a copy of the program, and says nothing of how it would be found. It
raises ``UnfitError`` where the operation has no such attribute. Faults with a size are planted as people make them, and
also as large as ``allclose(rtol=1e-3, atol=1e-5)`` still passes.
"""

from __future__ import annotations

import copy
import operator
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from conv2attn.convert.inputs import named_tensors
from conv2attn.convert.programs.walk import name_of

aten = torch.ops.aten
_BISECTIONS = 14


class UnfitError(Exception):
    """An operation in which a fault cannot be planted."""


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Attributes:
        operations: Names of the operations that it may be planted in, or a condition.
        plant: Changes an operation of a program, by a size where it has one.
        natural: The size that people make, or None.
        range: Smallest and largest size to look for the one that allclose passes.
        is_everywhere: Whether it is a setting of all operations of this name, not of one.
    """

    operations: tuple[str, ...]
    plant: Callable[[Program, fx.Node, float], None]
    natural: float | None = None
    range: tuple[float, float] = (1e-7, 1e3)
    is_everywhere: bool = False


class Program:
    """A copy of an exported program, whose tensors are shared until one is changed.

    Args:
        exported: The program.

    Attributes:
        exported: The copy.
    """

    def __init__(self, exported: ExportedProgram) -> None:
        held = [*exported.state_dict.values(), *exported.constants.values()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about its trees
            self.exported = copy.deepcopy(exported, {id(one): one for one in held})
        self.graph = self.exported.graph
        specs = self.exported.graph_signature.input_specs
        self._held = {spec.arg.name: spec.target for spec in specs if spec.target is not None}

    def tensor(self, node: Any) -> Tensor:
        """A tensor that the program holds.

        Raises:
            UnfitError: It is no such tensor.
        """
        target = self._held.get(node.name) if isinstance(node, fx.Node) else None
        found = self.exported.state_dict.get(target, self.exported.constants.get(target))
        if not isinstance(found, Tensor):
            raise UnfitError("it is no tensor of the network's own")
        return found

    def change(self, node: Any, change: Callable[[Tensor], Tensor]) -> None:
        """Changes a tensor that the program holds, for all that read it."""
        changed = change(self.tensor(node).detach().clone())
        target = self._held[node.name]
        kept: Any = self.exported.state_dict if target in self.exported.state_dict else self.exported.constants
        kept[target] = torch.nn.Parameter(changed, False) if isinstance(kept[target], torch.nn.Parameter) else changed

    def after(self, node: fx.Node, target: Any, *args: Any) -> None:
        """Another operation behind one: what read that one's result reads the new one's."""
        with self.graph.inserting_after(node):
            new = self.graph.call_function(target, args)
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)

    def before(self, node: fx.Node, place: int, target: Any, *args: Any) -> None:
        """Another operation in front of an argument of one."""
        with self.graph.inserting_before(node):
            new = self.graph.call_function(target, (node.args[place], *args))
        new.meta = dict(node.meta) | {"val": node.args[place].meta["val"]}  # type: ignore[union-attr]
        node.update_arg(place, new)

    def finished(self) -> ExportedProgram:
        """The program, after its changes."""
        self.graph.lint()
        self.exported.graph_module.recompile()
        return self.exported


def argument(node: fx.Node, name: str) -> Any:
    """An operation's argument by name, or its default.

    Raises:
        UnfitError: It has none of this name.
    """
    for place, one in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if one.name == name:
            if name in node.kwargs:
                return node.kwargs[name]
            return node.args[place] if place < len(node.args) else one.default_value
    raise UnfitError(f"it has no {name}")


def set_argument(node: fx.Node, **values: Any) -> None:
    """Sets arguments by name."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    args = list(node.args)
    for place, one in enumerate(schema):
        if one.name in values and one.kwarg_only:
            node.update_kwarg(one.name, values[one.name])
        elif one.name in values:
            args += [each.default_value for each in schema[len(args) : place + 1]]
            args[place] = values[one.name]
    node.args = tuple(args)


def _scaled(name: str) -> Callable[[Program, fx.Node, float], None]:
    """Multiplies a number among the arguments by 1 + size."""

    def plant(program: Program, node: fx.Node, size: float) -> None:
        value = argument(node, name)
        if not isinstance(value, int | float) or value in (0, float("inf"), float("-inf")):
            raise UnfitError(f"{name} is no number")
        set_argument(node, **{name: float(value) * (1 + size)})

    return plant


def _flipped(name: str) -> Callable[[Program, fx.Node, float], None]:
    def plant(program: Program, node: fx.Node, size: float) -> None:
        set_argument(node, **{name: not argument(node, name)})

    return plant


def _changed(name: str, change: Callable[[Tensor, float], Tensor]) -> Callable[[Program, fx.Node, float], None]:
    """Changes a tensor among the arguments."""

    def plant(program: Program, node: fx.Node, size: float) -> None:
        program.change(argument(node, name), lambda x: change(x, size))

    return plant


def _eps_of_root(program: Program, node: fx.Node, size: float) -> None:
    """The constant that is added under the root of a normalisation that the network writes out."""
    if not any(name_of(user) in ("rsqrt", "sqrt") for user in node.users) or isinstance(node.args[1], fx.Node):
        raise UnfitError("no root reads it")
    node.update_arg(1, float(node.args[1]) * (1 + size))  # type: ignore[arg-type]


def _eps_outside(program: Program, node: fx.Node, size: float) -> None:
    eps = argument(node, "eps")
    program.change(argument(node, "running_var"), lambda v: (v.sqrt() + eps).square() - eps)


def _pads(node: fx.Node) -> list[int]:
    """Pixels above and below, left and right of a convolution's image."""
    pads = list(argument(node, "padding"))
    if not any(pads):
        raise UnfitError("it has no padding")
    return pads * 2 if len(pads) == 1 else pads


def _one_sided(program: Program, node: fx.Node, size: float) -> None:
    rows, columns = _pads(node)
    program.before(node, 0, aten.pad.default, [0, 2 * columns, 0, 2 * rows])
    set_argument(node, padding=[0, 0])


def _padding_mode(program: Program, node: fx.Node, size: float) -> None:
    rows, columns = _pads(node)
    program.before(node, 0, aten.pad.default, [columns, columns, rows, rows], "replicate")
    set_argument(node, padding=[0, 0])


def _transposed(x: Tensor, size: float) -> Tensor:
    if x.ndim < 4 or x.shape[-1] != x.shape[-2] or x.shape[-1] == 1:
        raise UnfitError("no square kernel")
    return x.mT.contiguous()


def _other_order(x: Tensor, size: float) -> Tensor:
    if x.shape[1] != 3:
        raise UnfitError("no layer of colours")
    return x.flip(1)


def _lost_bias(program: Program, node: fx.Node, size: float) -> None:
    if not bool(program.tensor(argument(node, "bias")).any()):
        raise UnfitError("its bias is 0")
    set_argument(node, bias=None)


def _other_axis(program: Program, node: fx.Node, size: float) -> None:
    dim, rank = argument(node, "dim"), node.args[0].meta["val"].ndim  # type: ignore[union-attr]
    if rank < 3 or dim % rank == 0:
        raise UnfitError("it has no other axis")
    set_argument(node, dim=dim % rank - 1)


def _attention_scale(program: Program, node: fx.Node, size: float) -> None:
    width = node.args[0].meta["val"].shape[-1]  # type: ignore[union-attr]
    scale = argument(node, "scale") or width**-0.5
    set_argument(node, scale=scale * (1 + size))


def _number_scale(program: Program, node: fx.Node, size: float) -> None:
    factor = node.args[1]
    if isinstance(factor, fx.Node) or factor in (0, 1):
        raise UnfitError("it is no factor")
    node.update_arg(1, float(factor) * (1 + size))  # type: ignore[arg-type]


def _half(program: Program, node: fx.Node, size: float) -> None:
    for place, one in enumerate(node.args[:3]):
        if isinstance(one, fx.Node):
            program.before(node, place, aten.to.dtype, torch.float16)
    program.after(node, aten.to.dtype, node, torch.float32)


def _dilation(program: Program, node: fx.Node, size: float) -> None:
    kernel, dilation, pads = program.tensor(node.args[1]).shape[2:], list(argument(node, "dilation")), _pads(node)
    if max(kernel) == 1 or len(kernel) != 2:
        raise UnfitError("it has no neighbours")
    dilation = dilation * 2 if len(dilation) == 1 else dilation
    more = [(k - 1) // 2 for k in kernel]
    set_argument(node, dilation=[d + 1 for d in dilation], padding=[p + m for p, m in zip(pads, more, strict=True)])


def _group_order(program: Program, node: fx.Node, size: float) -> None:
    groups = argument(node, "groups")
    if groups == 1:
        raise UnfitError("it has one group")
    program.change(node.args[1], lambda w: w.roll(len(w) // groups, 0))


def _swapped(program: Program, node: fx.Node, size: float) -> None:
    parts = list(node.args[0])  # type: ignore[arg-type]
    shapes = [part.meta["val"].shape for part in parts]
    if len(parts) < 2 or shapes[0] != shapes[1]:
        raise UnfitError("its parts have different shapes")
    node.update_arg(0, [parts[1], parts[0], *parts[2:]])


def _swapped_parts(program: Program, node: fx.Node, size: float) -> None:
    readers = [user for user in node.users if user.target is operator.getitem]
    shapes = [user.meta["val"].shape for user in readers]
    if len(readers) < 2 or shapes[0] != shapes[1]:
        raise UnfitError("its parts have different shapes")
    for user, place in zip(readers[:2], [one.args[1] for one in readers[:2]][::-1], strict=True):
        user.update_arg(1, place)


def _swapped_operands(program: Program, node: fx.Node, size: float) -> None:
    if not all(isinstance(one, fx.Node) for one in node.args[:2]):
        raise UnfitError("it has one operand")
    one, other = node.args[:2]
    node.args = (other, one, *node.args[2:])


def _swapped_queries(program: Program, node: fx.Node, size: float) -> None:
    shapes = [one.meta["val"].shape for one in node.args[:2]]  # type: ignore[union-attr]
    if shapes[0] != shapes[1]:
        raise UnfitError("queries and keys have different shapes")
    _swapped_operands(program, node, size)


def _lost_skip(program: Program, node: fx.Node, size: float) -> None:
    if not all(isinstance(one, fx.Node) and one.op == "call_function" for one in node.args[:2]):
        raise UnfitError("it adds no two results")
    one, other = (each.meta["val"].shape for each in node.args[:2])  # type: ignore[union-attr]
    if one != other:
        raise UnfitError("it adds a smaller one")
    node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]


def _replaced(target: Any) -> Callable[[Program, fx.Node, float], None]:
    """Another operation of the same first argument."""

    def plant(program: Program, node: fx.Node, size: float) -> None:
        node.target, node.args, node.kwargs = target, node.args[:1], {}

    return plant


def _interpolation(target: Any, *rest: Any) -> Callable[[Program, fx.Node, float], None]:
    def plant(program: Program, node: fx.Node, size: float) -> None:
        shape = node.meta["val"].shape[2:]
        node.target, node.args, node.kwargs = target, (node.args[0], list(shape), *rest), {}

    return plant


def _wider(x: Tensor, size: float) -> Tensor:
    """The largest of a layer's weights a little larger."""
    changed = x.clone()
    changed.view(-1)[int(x.abs().argmax())] *= 1 + size
    return changed


def _retrained(x: Tensor, size: float) -> Tensor:
    """Weights after one more step: each moved by normal noise of a share of their deviation."""
    generator = torch.Generator().manual_seed(2)
    return x + torch.randn(x.shape, generator=generator) * x.std() * size


def _eight_bits(x: Tensor, size: float) -> Tensor:
    step = x.abs().amax() / 127
    return (x / step).round() * step


def _unbiased(program: Program, node: fx.Node, size: float) -> None:
    n = argument(node, "normalized_shape")[-1]
    program.change(argument(node, "weight"), lambda w: w * ((n - 1) / n) ** 0.5)


_EPS = (1e-4, 1e5)
_CONV = ("conv1d", "conv2d", "conv3d")
_PRODUCT = (*_CONV, "linear")
FAULTS: dict[str, Fault] = {
    "eps of batch norms": Fault(("batch_norm",), _scaled("eps"), 99.0, _EPS, is_everywhere=True),
    "eps of layer norms": Fault(("layer_norm",), _scaled("eps"), 9.0, _EPS, is_everywhere=True),
    "eps of group norms": Fault(("group_norm",), _scaled("eps"), 9.0, _EPS, is_everywhere=True),
    "eps of RMS norms": Fault(("rms_norm",), _scaled("eps"), 9.0, _EPS, is_everywhere=True),
    "eps of one norm": Fault(("batch_norm", "layer_norm", "group_norm", "rms_norm"), _scaled("eps"), 9.0, _EPS),
    "eps of a norm that is written out": Fault(("add", "add_"), _eps_of_root, 9.0, _EPS),
    "eps outside the root": Fault(("batch_norm",), _eps_outside),
    "variance of batch norm": Fault(("batch_norm",), _changed("running_var", lambda v, s: v * (1 + s)), 1e-2),
    "mean of batch norm lost": Fault(("batch_norm",), _changed("running_mean", lambda m, s: m * 0)),
    "unbiased variance": Fault(("layer_norm",), _unbiased),
    "one-sided padding": Fault(("conv2d",), _one_sided),
    "padding mode": Fault(("conv2d",), _padding_mode),
    "dilation": Fault(("conv2d",), _dilation),
    "transposed kernel": Fault(("conv2d", "conv_transpose2d"), _changed("weight", _transposed)),
    "channel order": Fault(("conv2d",), _changed("weight", _other_order)),
    "group order": Fault(("conv2d",), _group_order),
    "lost bias": Fault(_PRODUCT, _lost_bias),
    "weights through float16": Fault(_PRODUCT, _changed("weight", lambda w, s: w.half().float())),
    "weights through bfloat16": Fault(_PRODUCT, _changed("weight", lambda w, s: w.bfloat16().float())),
    "weights through 8 bits": Fault(_PRODUCT, _changed("weight", _eight_bits)),
    "one weight": Fault(_PRODUCT, _changed("weight", _wider), 1e-2),
    "weights of another step": Fault(_PRODUCT, _changed("weight", _retrained), 1e-3),
    "a layer in half precision": Fault(_PRODUCT, _half),
    "GELU's form": Fault(
        ("gelu",),
        lambda program, node, size: set_argument(node, approximate=_other_form(argument(node, "approximate"))),
    ),
    "hard swish for SiLU": Fault(("silu", "silu_"), _replaced(aten.hardswish.default)),
    "hard sigmoid for sigmoid": Fault(("sigmoid", "sigmoid_"), _replaced(aten.hardsigmoid.default)),
    "slope of leaky ReLU": Fault(("leaky_relu", "leaky_relu_"), _scaled("negative_slope"), 1.0),
    "ReLU for ReLU6": Fault(("hardtanh", "hardtanh_", "relu6"), _replaced(aten.relu.default)),
    "clamp's limit": Fault(("hardtanh", "hardtanh_"), _scaled("max_val"), 0.25),
    "softmax's axis": Fault(("softmax", "_softmax"), _other_axis),
    "attention's scale": Fault(("scaled_dot_product_attention",), _attention_scale, 1 / 64),
    "a scale": Fault(("mul", "div", "mul_", "div_"), _number_scale, 1 / 64),
    "queries and keys swapped": Fault(("scaled_dot_product_attention",), _swapped_queries),
    "causal mask": Fault(("scaled_dot_product_attention",), _flipped("is_causal")),
    "ceil_mode": Fault(("max_pool2d", "avg_pool2d"), _flipped("ceil_mode")),
    "count_include_pad": Fault(("avg_pool2d",), _flipped("count_include_pad")),
    "align_corners": Fault(("upsample_bilinear2d", "upsample_bicubic2d"), _flipped("align_corners")),
    "nearest for bilinear": Fault(
        ("upsample_bilinear2d", "upsample_bicubic2d"), _interpolation(aten.upsample_nearest2d.default)
    ),
    "bilinear for bicubic": Fault(("upsample_bicubic2d",), _interpolation(aten.upsample_bilinear2d.default, False)),
    "nearest exact for nearest": Fault(("upsample_nearest2d",), _interpolation(aten._upsample_nearest_exact2d.default)),
    "swapped branches": Fault(("cat", "concat"), _swapped),
    "swapped parts": Fault(("chunk", "split", "unbind", "split_with_sizes"), _swapped_parts),
    "swapped operands": Fault(("sub", "div"), _swapped_operands),
    "lost skip connection": Fault(("add", "add_"), _lost_skip),
}


def _other_form(form: str) -> str:
    return "none" if form == "tanh" else "tanh"


def fitting(exported: ExportedProgram) -> dict[str, list[str]]:
    """The faults that may be planted in a program, each with the names of the operations."""
    names: dict[str, list[str]] = {}
    for node in exported.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            names.setdefault(name_of(node), []).append(node.name)
    found = {kind: [name for op in fault.operations for name in names.get(op, ())] for kind, fault in FAULTS.items()}
    return {kind: places for kind, places in found.items() if places}


def planted(exported: ExportedProgram, kind: str, name: str, size: float) -> ExportedProgram:
    """A copy of a program with a fault.

    Raises:
        UnfitError: The operation cannot have it.
    """
    program = Program(exported)
    for node in changed(program.exported, kind, name):
        FAULTS[kind].plant(program, node, size)
    return program.finished()


def changed(exported: ExportedProgram, kind: str, name: str) -> list[fx.Node]:
    """The operations that a fault at one of them changes: it, or all of its kind."""
    nodes = [node for node in exported.graph.nodes if node.op == "call_function"]
    if not FAULTS[kind].is_everywhere:
        return [node for node in nodes if node.name == name]
    return [node for node in nodes if name_of(node) in FAULTS[kind].operations]


def places(exported: ExportedProgram, kind: str, names: list[str], seed: str) -> Iterator[str]:
    """Operations in which a fault fits, in a drawn order."""
    for name in random.Random(seed).sample(names, len(names)):
        try:
            planted(exported, kind, name, FAULTS[kind].natural or 0.0)
        except UnfitError:
            continue
        yield name


@torch.no_grad()
def computed(exported: ExportedProgram, x: Tensor) -> list[Tensor]:
    """The outputs of a program in its own precision."""
    return list(named_tensors(exported.module()(x)).values())


def is_close(a: list[Tensor], b: list[Tensor]) -> bool:
    """Whether ``allclose(rtol=1e-3, atol=1e-5)`` takes two lists of outputs as the same."""
    pairs = list(zip(a, b, strict=True))
    return all(x.shape == y.shape and torch.allclose(x.float(), y.float(), rtol=1e-3, atol=1e-5) for x, y in pairs)


def largest_that_passes(exported: ExportedProgram, kind: str, name: str, x: Tensor, right: list[Tensor]) -> float:
    """The largest size of a fault whose outputs allclose takes for the right ones, to a few per cent.

    Raises:
        UnfitError: It passes all of them, or none.
    """
    low, high = FAULTS[kind].range

    def passes(size: float) -> bool:
        return is_close(right, computed(planted(exported, kind, name, size), x))

    if passes(high) or not passes(low):
        raise UnfitError("allclose has no limit within its range")
    for _ in range(_BISECTIONS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if passes(middle) else (low, middle)
    return low
