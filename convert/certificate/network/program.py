"""A network as the program that ``torch.export`` gives, and one walk through it.

The program is closed: what the network's Python does beside it is not in it, and what it cannot hold is refused by
torch, in its own words. A call of an attention layer is one operation in it, ``conv2attn::attention``, whichever engine
computes the layer; its node's metadata (``nn_module_stack``) names the module, as every node's does.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils._pytree import tree_leaves

from ...attention.layer import SelfAttention
from ...errors import ConversionError, GeometryError, Problem, first_line
from ...size import Size
from ...spec import ConvSpec, batch_shape
from .rules.call import operator_name
from .rules.interval import Known, UnboundedError

Bound = Callable[[fx.Node, Any, Any], Any]
LayerRule = Callable[[str, SelfAttention, Any, fx.Node], Any]


class Unknown:
    """A tensor of which nothing is known."""


UNKNOWN = Unknown()


@torch.library.custom_op("conv2attn::attention", mutates_args=(), schema="(Tensor x, str layer, int[] shape) -> Tensor")
def _attention(x: Tensor, layer: str, shape: Sequence[int]) -> Tensor:
    """A layer's call in a program that bounds are carried through."""
    raise ConversionError(f"{layer} is not computed in a program that only bounds are carried through")


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
        exported: What torch made of it, for one image.

    Raises:
        ConversionError: torch cannot export it.
    """

    def __init__(self, model: nn.Module, size: Size, *, channels: int, dtype: torch.dtype) -> None:
        self.model = model
        try:
            with _opaque(model), torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
                warnings.simplefilter("ignore")  # torch's own, about its internals
                exported = torch.export.export(model, (torch.zeros(1, channels, *size, dtype=dtype, device="cpu"),))
                is_plain = not _shares_writes(exported)
                self.exported: ExportedProgram = exported if is_plain else exported.run_decompositions({})
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

    def walk(self, images: Any, *, bound: Bound, layer: LayerRule) -> tuple[list[Any], list[Problem]]:
        """What the outputs are, and the operations of which nothing is known.

        Args:
            images: What is known of the input.
            bound: From a node and its arguments to what is known of its result.
            layer: From an attention layer's name, the layer, what is known of its input, and its output's node.
        """
        known: dict[fx.Node, Any] = {}
        problems: list[Problem] = []
        for node, read_last in self._last_reads():
            if node.op == "placeholder":
                known[node] = self._input(node, images)
            elif node.op == "output":
                return [known[one] for one in tree_leaves(node.args) if isinstance(one, fx.Node)], problems
            elif node.op == "call_function" and node.users:
                try:
                    known[node] = self._value(node, known, bound, layer)
                except UnboundedError as reason:
                    problems.append(Problem(self._place(node), str(reason)))
                    known[node] = UNKNOWN
            for used in read_last:
                known.pop(used, None)
        raise ConversionError("the network has no output")

    def _last_reads(self) -> list[tuple[fx.Node, list[fx.Node]]]:
        """Nodes in order, each with those that nothing behind it reads."""
        nodes = list(self.exported.graph.nodes)
        places = {node: place for place, node in enumerate(nodes)}
        reads: list[list[fx.Node]] = [[] for _ in nodes]
        for node in nodes:
            reads[max((places[user] for user in node.users), default=places[node])].append(node)
        return list(zip(nodes, reads, strict=True))

    def _value(self, node: fx.Node, known: dict[fx.Node, Any], bound: Bound, layer: LayerRule) -> Any:
        target: Any = node.target
        if target is not operator.getitem and not isinstance(node.target, torch._ops.OpOverload):
            raise UnboundedError(f"no bound is known for {target}")
        args: Any = fx.node.map_arg(node.args, lambda one: known[one])
        kwargs: Any = fx.node.map_arg(node.kwargs, lambda one: known[one])
        operands = tree_leaves((args, kwargs))
        if any(operand is UNKNOWN for operand in operands):
            return UNKNOWN
        if target is operator.getitem:
            return args[0][args[1]]
        if target is ATTENTION:
            return self._attended(node, args[0], layer)
        if any(isinstance(operand, Known) for operand in operands):
            return bound(node, args, kwargs)
        if torch.Tag.nondeterministic_seeded in target.tags:
            raise UnboundedError(f"{name_of(node)} draws random numbers")
        if target._schema.is_mutable:
            raise UnboundedError(f"{name_of(node)} writes into a constant")
        return target(*args, **kwargs)

    def _attended(self, node: fx.Node, x: Any, layer: LayerRule) -> Any:
        name = str(node.args[1])
        module, source = self.model.get_submodule(name), node.all_input_nodes[0].meta["val"]
        if not isinstance(module, SelfAttention) or not isinstance(x, Known):
            raise UnboundedError("its input does not depend on the images")
        if source.dtype != module.weight.dtype:
            raise UnboundedError(f"its input is of {source.dtype}, the layer of {module.weight.dtype}")
        return layer(name, module, x, node)

    def _input(self, node: fx.Node, images: Any) -> Any:
        specs = {spec.arg.name: spec for spec in self.exported.graph_signature.input_specs}
        spec = specs[node.name]
        if spec.kind == InputKind.USER_INPUT:
            return images
        held = self.exported.state_dict if spec.target in self.exported.state_dict else self.exported.constants
        found = held.get(spec.target)
        return found.detach() if isinstance(found, Tensor) else UNKNOWN

    def _place(self, node: fx.Node) -> str:
        """What a problem is at: a module of torch's or an attention layer by its name, or the operation."""
        if node.target is ATTENTION:
            return str(node.args[1])
        stack = list(node.meta.get("nn_module_stack", {}).values())
        path = stack[-1][0] if stack else ""
        module = self.model.get_submodule(path)
        is_leaf = type(module).__module__.startswith("torch.nn.") and not list(module.children())
        return path if is_leaf else name_of(node)


def name_of(node: fx.Node) -> str:
    """An operation's name, without its namespace and overload."""
    target = node.target
    return operator_name(target) if isinstance(target, torch._ops.OpOverload) else str(target)


def _shares_writes(exported: ExportedProgram) -> bool:
    """Whether something written to may be read under another name; decomposing makes every write a new tensor.

    Otherwise a write's result is what is read from then on, as the node of the write.
    """
    places = {node: place for place, node in enumerate(exported.graph.nodes)}
    for node in places:
        if _schema(node) is not None and _schema(node).is_mutable:
            written = node.all_input_nodes[0]
            others = [user for user in written.users if user is not node]
            late = any(places[user] > places[node] for user in others)
            if late or any(map(_is_view, [written, *others])) or written.op != "call_function":
                return True
    return False


def _schema(node: fx.Node) -> Any:
    return node.target._schema if isinstance(node.target, torch._ops.OpOverload) else None


def _is_view(node: fx.Node) -> bool:
    """Whether a node's result may share the memory of its operand, which it leaves as it is."""
    schema = _schema(node)
    shared = schema is not None and any(result.alias_info is not None for result in schema.returns)
    return node.target is operator.getitem or (shared and not schema.is_mutable)


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
    """What stands for an attention layer's ``forward``: it gives the shape."""
    if x.ndim - spec.axes not in (1, 2) or x.shape[-spec.axes - 1] != spec.in_channels:
        raise GeometryError(f"the input of {name} must be {batch_shape(spec)}; got {list(x.shape)}")
    before = x.shape[-spec.axes :]
    chosen = spec if output_size is None else spec.with_output_size(before, output_size)
    shape = (*x.shape[: -spec.axes - 1], spec.out_channels, *chosen.output_size(Size(*before)))
    found: Tensor = ATTENTION(x, name, list(shape))
    return found
