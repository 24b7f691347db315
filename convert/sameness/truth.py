"""The program of a network in float64: every number as wide as a double, whatever precision the network asks for.

Casts to floating types are lifted to float64, as are the tensors that a network creates and the numbers that it holds.
Casts to integers stay: they are part of the function. The program is the one that ``torch.export`` gives, without
writes, so that a value that was read once is the same ever after.
"""

from __future__ import annotations

import io
import logging
import operator
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from ..certificate.network.program import Walk, module_of, name_of
from ..context import without_stack_traces
from ..errors import ConversionError, untraceable
from ..inputs import named_tensors

CASTS = ("_to_copy", "to", "type_as", "convert_element_type")
_PARTS = "same(network.backbone, other.backbone, inputs)"
_LIFTED = {torch.complex64: torch.complex128, torch.complex32: torch.complex128}


def lift(value: Any) -> Any:
    """A tensor of floating-point numbers in float64, and float64 in place of a floating dtype; else the value."""
    if isinstance(value, Tensor):
        return value.to(lift(value.dtype))
    if isinstance(value, torch.dtype):
        return torch.float64 if value.is_floating_point else _LIFTED.get(value, value)
    return value


def lifted_arguments(values: Any) -> Any:
    """Arguments of an operation with every tensor and dtype lifted."""
    return tree_map(lift, values)


@contextmanager
def _silently() -> Iterator[None]:
    """Without what torch's exporter prints, logs and warns of, which is about its internals."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@dataclass(frozen=True)
class Graph:
    """A network's program.

    Attributes:
        exported: torch's program, without writes.
    """

    exported: ExportedProgram

    @classmethod
    def of(cls, network: nn.Module | ExportedProgram, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Graph:
        """The program that a network runs on inputs of these shapes.

        Raises:
            ConversionError: torch cannot export it.
        """
        try:
            with torch.no_grad(), _silently(), without_stack_traces():
                if not isinstance(network, ExportedProgram):
                    network = torch.export.export(network, args, dict(kwargs), strict=False)
                return cls(network.run_decompositions({}))
        except Exception as error:  # whatever the network's code and torch's exporter raise
            raise ConversionError(f"torch cannot export it: {untraceable(error, _PARTS)}") from error

    @property
    def nodes(self) -> list[fx.Node]:
        """The operations, in the order in which they run."""
        return [node for node in self.exported.graph.nodes if node.op == "call_function"]

    @cached_property
    def tensors(self) -> dict[str, Any]:
        """The network's own tensors by the names of the graph's inputs."""
        held = {**self.exported.constants, **self.exported.state_dict}
        specs = self.exported.graph_signature.input_specs
        return {spec.arg.name: held.get(spec.target) for spec in specs if spec.kind != InputKind.USER_INPUT}

    def inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, wide: bool = True) -> list[Any]:
        """The graph's inputs: the network's own tensors and the call's, lifted where ``wide``."""
        specs = self.exported.graph_signature.input_specs
        own = [spec.arg.name for spec in specs if spec.kind == InputKind.USER_INPUT]
        is_named = kwargs.keys() <= set(own)
        placed = tree_flatten((args, {} if is_named else dict(kwargs)))[0]
        given = iter([*placed, *(kwargs[name] for name in own if is_named and name in kwargs)])
        found = [next(given) if spec.kind == InputKind.USER_INPUT else self.tensors[spec.arg.name] for spec in specs]
        return [lift(_detached(one)) for one in found] if wide else [_detached(one) for one in found]

    def outputs(self, found: Any) -> dict[str, Tensor]:
        """The tensors that the network returns, by their names, from the values of the graph's outputs."""
        specs = self.exported.graph_signature.output_specs
        own = [value for value, spec in zip(found, specs, strict=True) if spec.kind == OutputKind.USER_OUTPUT]
        spec = self.exported.call_spec.out_spec
        return named_tensors(own if spec is None else tree_unflatten(own, spec))

    def unlifted(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[fx.Node, Any]:
        """Each operation's result as the network computes it, in its own precision."""
        noted = _Noted(self.exported.graph_module)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            noted.run(*self.inputs(args, kwargs, wide=False))
        return noted.values

    def path(self, node: fx.Node) -> str:
        """The innermost module that an operation is in; "" for the network's own code."""
        return module_of(node)

    @cached_property
    def module_ends(self) -> dict[str, fx.Node]:
        """The last operation of each innermost module, by the module's name."""
        return {self.path(node): node for node in self.nodes if self.path(node)}

    @property
    def reads_quantised(self) -> bool:
        """Whether some operation stores integers in place of real numbers, or reads such."""
        return any("quantize" in name_of(node) for node in self.nodes)


def real(value: Tensor) -> Tensor:
    """Complex numbers as pairs of real ones; other tensors as they are."""
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


class Lifted(Walk):
    """One run of a program in float64.

    Args:
        graph: The program.
        watched: Operations whose results are kept, in ``seen``.
    """

    def __init__(self, graph: Graph, watched: frozenset[fx.Node] = frozenset()) -> None:
        super().__init__(graph.exported.graph_module)
        self.graph_of, self.watched = graph, watched
        self.seen: dict[fx.Node, Any] = {}

    def outputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
        """The network's outputs, by name; complex numbers as pairs."""
        with torch.no_grad(), plainly():
            found = self.graph_of.outputs(self.run(*self.graph_of.inputs(args, kwargs)))
        return {name: real(one) for name, one in found.items()}

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The result of an operation."""
        found = self.result(node, args, kwargs)
        if node in self.watched:
            self.seen[node] = found
        return found

    def result(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The result of an operation, of lifted arguments."""
        return evaluated(node, args, kwargs)


class _Noted(Walk):
    """A run that keeps every operation's result."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.values: dict[fx.Node, Any] = {}

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The operation's own result."""
        self.values[node] = super().operation(node, args, kwargs)
        return self.values[node]


class _Inner(Walk):
    """A part of a program that stands in a context, such as one without gradients, in float64."""

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The result of an operation, of lifted arguments."""
        return evaluated(node, args, kwargs)


def evaluated(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """The result of an operation in float64."""
    args, kwargs = lifted_arguments((args, kwargs))
    if node.target is operator.getitem:
        return args[0][args[1]]
    inner = [place for place, one in enumerate(args) if isinstance(one, fx.GraphModule)]
    if inner and str(node.target).startswith("wrap_with"):
        return _Inner(args[inner[0]]).run(*args[inner[0] + 1 :])
    target: Any = node.target
    if target is torch.ops.aten.view.default:
        target = torch.ops.aten.reshape.default  # a lifted or moved tensor may lie otherwise in memory
    if is_cast(node) and _dtype(node) is not None and _dtype(node).is_floating_point:  # type: ignore[union-attr]
        return lift(args[0].to(torch.float64))
    return lifted_arguments(target(*args, **kwargs))


def is_cast(node: fx.Node) -> bool:
    """Whether an operation only changes the type of its numbers."""
    return isinstance(node.target, torch._ops.OpOverload) and name_of(node) in CASTS


def _dtype(node: fx.Node) -> torch.dtype | None:
    value = first_of(node.meta.get("val"))
    return value.dtype if isinstance(value, Tensor) else None


def node_dtype(node: fx.Node) -> torch.dtype | None:
    """The type of floating-point numbers that the network itself gives there, or None for other numbers."""
    found = _dtype(node)
    return found if found is not None and found.is_floating_point else None


def first_of(value: Any) -> Any:
    """The first of several results, or the only one."""
    return value[0] if isinstance(value, list | tuple) and value else value


@contextmanager
def plainly() -> Iterator[None]:
    """Attention by matrix products and a softmax, whose roundings are known, without warnings."""
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
        warnings.simplefilter("ignore")
        yield
