"""A network as the program that ``torch.export`` gives, and a walk through it.

The program is closed: what the network's Python does beside it is not in it, and what it cannot hold is refused by
torch, in its own words. A call of an attention layer is one operation in it, ``conv2attn::attention``, whichever engine
computes the layer; its node's metadata (``nn_module_stack``) names the module, as every node's does.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import sys
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils._pytree import tree_leaves

from ...arguments import Size
from ...context import without_stack_traces
from ...errors import ConversionError, GeometryError, Problem, first_line
from ...layer.layer import SelfAttention
from ...spec import ConvSpec, batch_shape
from ...subclasses.computed import is_computed, value
from .call import operator_name
from .constants import NORMED, OF_SHAPES, exact_constant, started, without_values
from .decomposed import decompose
from .interval import Known, UnboundedError, of_rule
from .writes import without_shared_writes

UNKNOWN = object()  # a tensor of which nothing is known


@torch.library.custom_op("conv2attn::attention", mutates_args=(), schema="(Tensor x, str layer, int[] shape) -> Tensor")
def _attention(x: Tensor, layer: str, shape: Sequence[int]) -> Tensor:
    """A layer's call in a program that is only walked through."""
    raise ConversionError(f"{layer} is not computed in a program that bounds are carried through")


_attention.register_fake(lambda x, layer, shape: x.new_empty(shape))
ATTENTION: torch._ops.OpOverload = torch.ops.conv2attn.attention.default


class Program:
    """An exported network.

    Args:
        model: The network, in eval mode, on the CPU.
        size: Size of its images.
        channels: Their channels.
        dtype: Their precision.

    Attributes:
        exported: torch's program, for one image.

    Raises:
        ConversionError: torch cannot export it.
    """

    def __init__(self, model: nn.Module, size: Size, *, channels: int, dtype: torch.dtype) -> None:
        self.model = model
        try:
            with (
                _opaque(model),
                torch.no_grad(),
                without_stack_traces(),
                warnings.catch_warnings(action="ignore"),  # torch's own, about its internals
                contextlib.redirect_stdout(sys.stderr),
            ):
                exported = torch.export.export(model, (torch.zeros(1, channels, *size, dtype=dtype, device="cpu"),))
                self.exported: ExportedProgram = without_shared_writes(exported)
                decompose(self.exported.graph_module)
        except Exception as error:  # whatever the network's code and torch's exporter raise
            reason = first_line(error)[:300]
            raise ConversionError(f"torch cannot export the network on images of {size}: {reason}") from error

    @property
    def changes(self) -> list[str]:
        """Buffers, parameters and images that it writes to."""
        signature = self.exported.graph_signature
        parameters = getattr(signature, "parameters_to_mutate", {})
        return sorted(
            {*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values(), *parameters.values()}
        )

    def inputs(self, images: Any) -> list[Any]:
        """The graph's inputs: the images, and the network's own tensors."""
        return inputs_of(self.exported, images)

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


def inputs_of(exported: ExportedProgram, images: Any) -> list[Any]:
    """The inputs of an exported program's graph: the images, and the network's own tensors."""
    held = {**exported.constants, **exported.state_dict}
    specs = exported.graph_signature.input_specs
    own = [held.get(spec.target) for spec in specs]
    return [
        images if spec.kind == InputKind.USER_INPUT else one.detach() if isinstance(one, Tensor) else UNKNOWN
        for spec, one in zip(specs, own, strict=True)
    ]


def module_of(node: fx.Node) -> str:
    """The name of the innermost module that an operation is in; "" for the network's own code."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack else ""


class Walk(fx.Interpreter):
    """One run of an exported graph; ``operation`` says what stands for each operation's result.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.extra_traceback = False

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The value that stands for an operation's result: here, what the network itself computes."""
        target: Any = node.target
        return target(*args, **kwargs)

    def run_node(self, n: fx.Node) -> Any:
        """The value that stands for a node's result."""
        if n.op != "call_function":
            return super().run_node(n)
        return self.operation(n, *self.fetch_args_kwargs_from_env(n))


class Bounding(Walk):
    """A run of a program with bounds, or others' stand-ins, in place of the tensors that depend on the images.

    Args:
        program: The program.

    Attributes:
        problems: Operations without a known result, with the reason; those that follow from them are not listed.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program.exported.graph_module)
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
        found = tree_leaves(self.run(*self.program.inputs(images)))
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
        if target._schema.is_mutable:
            raise UnboundedError(f"{name_of(node)} writes into a constant")
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


def name_of(node: fx.Node) -> str:
    """An operation's name, without its namespace and overload."""
    target = node.target
    return operator_name(target) if isinstance(target, torch._ops.OpOverload) else str(target)


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
            vars(module)["forward"] = functools.partial(_called, name, module.spec)
        yield
    finally:
        for module in layers:
            vars(module).pop("forward", None)


def _called(name: str, spec: ConvSpec, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
    """Stand-in for an attention layer's ``forward``, which only gives the shape."""
    if x.ndim - spec.axes not in (1, 2) or x.shape[-spec.axes - 1] != spec.in_channels:
        raise GeometryError(f"the input of {name} must be {batch_shape(spec)}; got {list(x.shape)}")
    before = x.shape[-spec.axes :]
    chosen = spec if output_size is None else spec.with_output_size(before, output_size)
    shape = (*x.shape[: -spec.axes - 1], spec.out_channels, *chosen.output_size(Size(*before)))
    found: Tensor = ATTENTION(x, name, list(shape))
    return found
