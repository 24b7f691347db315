"""A network's program for images, in which a call of an attention layer is one operation, and a walk with bounds.

The program is the record of a run (``programs/program.py``). A layer's call is ``conv2attn::attention`` in it,
whichever engine computes the layer; its node's metadata names the module, as every node's does. Where the run read
values that depend on the image (``reads``), another program may go another way: what is said is of this run's
operations alone.
"""

from __future__ import annotations

import copy
import functools
import operator
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from ...arguments import Size
from ...errors import ConversionError, GeometryError, Problem
from ...layer.layer import SelfAttention
from ...programs.program import Program as Record
from ...programs.walk import Walk, copies_of_written, module_of, name_of
from ...spec import ConvSpec, batch_shape
from ...subclasses.computed import is_computed, value
from .constants import NORMED, OF_SHAPES, exact_constant, started, without_values
from .decomposed import decompose
from .interval import Known, UnboundedError, of_rule

UNKNOWN = object()  # a tensor of which nothing is known
_RUNNING: dict[str, Callable[..., Tensor]] = {}  # of the layers of the network that is recorded


@torch.library.custom_op("conv2attn::attention", mutates_args=(), schema="(Tensor x, str layer, int[] shape) -> Tensor")
def _attention(x: Tensor, layer: str, shape: Sequence[int]) -> Tensor:
    """A layer's call, by the layer's name, with the shape of its output."""
    found = _RUNNING[layer](x, shape)
    return found.clone() if found.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() else found


_attention.register_fake(lambda x, layer, shape: x.new_empty(shape))
ATTENTION: torch._ops.OpOverload = torch.ops.conv2attn.attention.default


class Program:
    """The record of a network's run on an image.

    Args:
        model: The network, in eval mode, on the CPU.
        image: [1, channels, *size], in its precision.

    Attributes:
        record: The record.

    Raises:
        ConversionError: It cannot be recorded.
    """

    def __init__(self, model: nn.Module, image: Tensor) -> None:
        self.model = model
        try:
            with _opaque(model):
                self.record = Record.of_run(model, (image,))
        except ConversionError as refusal:
            raise ConversionError(f"on images of {Size(*image.shape[2:])}: {refusal}") from refusal
        decompose(self.record.graph)

    @property
    def changes(self) -> tuple[str, ...]:
        """The network's own tensors that it writes to."""
        return self.record.writes

    @property
    def reads(self) -> tuple[str, ...]:
        """Where its run read values that depend on the image."""
        return self.record.reads

    def place(self, node: fx.Node) -> str:
        """The name of a problem's place: a module of torch's, an attention layer, or the operation."""
        if node.target is ATTENTION:
            return str(node.args[1])
        path = module_of(node)
        module = self.model.get_submodule(path)
        is_leaf = type(module).__module__.startswith("torch.nn.") and not list(module.children())
        return path if is_leaf else name_of(node)

    def layer(self, node: fx.Node) -> str:
        """The name of the innermost module that an operation is in, or its own."""
        if node.target is ATTENTION or not node.meta.get("nn_module_stack"):
            return self.place(node)
        return module_of(node) or name_of(node)


class Bounding(Walk):
    """A run of a program with bounds, or others' stand-ins, in place of the tensors that depend on the images.

    Args:
        program: The program.

    Attributes:
        problems: Operations without a known result, with the reason; those that follow from them are not listed.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program.record.graph, {name: one.detach() for name, one in program.record.tensors.items()})
        self.program = program
        self.problems: list[Problem] = []

    @abstractmethod
    def bounded(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The value that stands for the result of an operation on the images, or on constants that are computed."""

    @abstractmethod
    def constant(self, values: Tensor) -> Known:
        """The value that stands for a constant, [*shape] in double precision, of which something is computed."""

    @abstractmethod
    def attention(self, name: str, layer: SelfAttention, x: Any, node: fx.Node) -> Any:
        """The value that stands for an attention layer's output."""

    def values_for(self, images: Any) -> list[Any]:
        """The values that stand for the program's outputs, given the values that stand for the images."""
        found = tree_leaves(self.run(images))
        return [leaf for leaf in found if isinstance(leaf, Known | Tensor) or leaf is UNKNOWN]

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The value that stands for an operation's result."""
        try:
            with of_rule():
                return self._value(node, args, kwargs) if node.users else UNKNOWN
        except (UnboundedError, ConversionError) as reason:
            self.problems.append(Problem(self.program.place(node), str(reason)))
            return UNKNOWN

    def _value(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        target: Any = node.target
        if target is not operator.getitem and not isinstance(node.target, torch._ops.OpOverload):
            raise UnboundedError(f"no bound is known for {target}")
        operands = tree_leaves((args, kwargs))
        if any(operand is UNKNOWN for operand in operands):
            return UNKNOWN
        if target is operator.getitem:
            return args[0][args[1]]
        if target is ATTENTION:
            return self._attended(node, args[0])
        if name_of(node) in OF_SHAPES:
            args = without_values(node, args)
        elif any(isinstance(operand, Known) for operand in operands):
            if name_of(node) in NORMED and isinstance(args[0], Tensor):  # by a weight that is computed
                args, kwargs = started(node, args, kwargs, self.constant)
            return self.bounded(node, args, kwargs)
        if torch.Tag.nondeterministic_seeded in target.tags:
            raise UnboundedError(f"{name_of(node)} draws random numbers")
        args, kwargs = copies_of_written(node, args, kwargs)
        exact = exact_constant(node, args, kwargs)
        return self.bounded(node, *started(node, args, kwargs, self.constant)) if exact is None else exact

    def _attended(self, node: fx.Node, x: Any) -> Any:
        name = str(node.args[1])
        module, source = self.program.model.get_submodule(name), node.all_input_nodes[0].meta["val"]
        if not isinstance(module, SelfAttention) or not isinstance(x, Known):
            raise UnboundedError("its input does not depend on the images")
        dtype = cast(Tensor, value(module, "weight")).dtype
        if source.dtype != dtype:
            raise UnboundedError(f"its input is of {source.dtype}, the layer of {dtype}")
        rounded = [name for name in ("weight", "bias") if is_computed(module) and _rounds(module, name)]
        if rounded:
            raise UnboundedError(f"its {rounded[0]} is computed, with roundings that the layer's certificate has not")
        return self.attention(name, module, x, node)


def _rounds(module: nn.Module, name: str) -> bool:
    """Whether computing a layer's tensor rounds: pruning, say, does not."""
    held, wide = value(module, name), value(copy.deepcopy(module).double(), name)
    return held is not None and not (isinstance(wide, Tensor) and torch.equal(held.double(), wide))


@contextmanager
def _opaque(model: nn.Module) -> Iterator[None]:
    """Makes one operation of every call of an attention layer, behind and before its hooks.

    Raises:
        ConversionError: A layer has a ``forward`` of its own, of which its certificate says nothing.
    """
    layers = {module: name for name, module in model.named_modules() if isinstance(module, SelfAttention)}
    own = sorted(name for module, name in layers.items() if "forward" in vars(module))
    if own:
        raise ConversionError(f"{', '.join(own)} have a forward of their own, of which no certificate is known")
    try:
        for module, name in layers.items():
            _RUNNING[name] = functools.partial(_computed, module)
            vars(module)["forward"] = functools.partial(_called, name, module.spec)
        yield
    finally:
        _RUNNING.clear()
        for module in layers:
            vars(module).pop("forward", None)


def _computed(module: SelfAttention, x: Tensor, shape: Sequence[int]) -> Tensor:
    """A layer's own output, of a shape."""
    size, usual = list(shape[-module.spec.axes :]), module.spec.output_size(Size(*x.shape[-module.spec.axes :]))
    return type(module).forward(module, x, None if size == list(usual) else size)


def _called(name: str, spec: ConvSpec, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
    """Stand-in for an attention layer's ``forward``, which only gives the shape."""
    if x.ndim - spec.axes not in (1, 2) or x.shape[-spec.axes - 1] != spec.in_channels:
        raise GeometryError(f"the input of {name} must be {batch_shape(spec)}; got {list(x.shape)}")
    before = x.shape[-spec.axes :]
    chosen = spec if output_size is None else spec.with_output_size(before, output_size)
    shape = (*x.shape[: -spec.axes - 1], spec.out_channels, *chosen.output_size(Size(*before)))
    found: Tensor = ATTENTION(x, name, list(shape))
    return found
