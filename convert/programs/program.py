"""A network's program: the operations of one run, as they were recorded.

Questions about given inputs need no program that holds for all inputs. So a run is recorded, with torch's own recorder
(``make_fx``): operations with their attributes as the network calls them, before torch takes them apart, each with the
innermost module that it runs in. Caches among outputs, loops over values and parts that were traced before are recorded
as well. A record is of this run: branches were taken, sizes were chosen and what Python or NumPy computed are numbers
(``reads`` names them), and where torch has a fused path for a whole module, the record has its operations.

A record is closed: no operation changes what another one reads. A run notes which tensors share memory; an operation
that writes gives a new value, and what shares the memory and is read later gets the numbers that were written, by index
(``_closed``). So a walk may hold, widen and replace values as it likes.
"""

from __future__ import annotations

import contextlib
import io
import logging
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch._guards import TracingContext, tracing
from torch.export import ExportedProgram
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from ..context import without_stack_traces
from ..errors import ConversionError, first_line
from ..inputs import named_tensors, same_values

_MODULES = "nn_module_stack"  # torch's own name of what an operation is in
_VALUE = "val"
_AUTOCAST = "autocast"
_COMPILED = "_orig_mod."
_READS = frozenset(("item", "_local_scalar_dense", "equal", "allclose", "is_nonzero"))
_OUT_OF_TORCH = {
    Tensor.numpy: "numpy",
    Tensor.__array__: "numpy",
    Tensor.tolist: "tolist",
    Tensor.__dlpack__: "dlpack",
    Tensor.data_ptr: "data_ptr",
}
_NO_KWARGS: Mapping[str, Any] = MappingProxyType({})


class Program:
    """The operations of one run of a network.

    Attributes:
        graph: torch's graph. Its inputs are the tensors of the call, in their order; its outputs those of the network.
        tensors: The network's own tensors, as they were before the run, by the names of the graph's nodes.
        names: The names of those that have one in the network, by the names of the graph's nodes.
        outputs_by: The names of the outputs.
        results: The outputs of the run that was recorded, by name.
        reads: Where the run read values that depend on its inputs, for people; what followed is of this run.
        draws: Operations that drew random numbers.
        writes: The network's own tensors that the run changed; they were put back.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        tensors: Mapping[str, Tensor],
        outputs_by: Sequence[str],
        *,
        names: Mapping[str, str] = _NO_KWARGS,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
    ) -> None:
        self.graph, self.tensors, self.names = graph, dict(tensors), dict(names)
        self.outputs_by, self.reads, self.writes = tuple(outputs_by), tuple(reads), tuple(writes)
        self.results: dict[str, Tensor] = {}
        self.draws = tuple(name_of(node) for node in self.nodes if _draws(node))

    @classmethod
    def of_run(
        cls,
        network: Callable[..., Any] | ExportedProgram,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] = _NO_KWARGS,
    ) -> Program:
        """Runs a network once on copies of inputs, and records it. The network is left as it was.

        Args:
            network: A module, a function of tensors, or a program of torch.export or fx.
            args: Arguments by place; tensors in containers, too.
            kwargs: Arguments by name.

        Raises:
            ConversionError: It does not run, gives no tensor, or torch cannot record it.
        """
        return _Recorder(network, args, kwargs).program()

    @property
    def nodes(self) -> list[fx.Node]:
        """The operations, in the order in which they ran."""
        return [node for node in self.graph.graph.nodes if node.op == "call_function"]

    def inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any] = _NO_KWARGS) -> list[Tensor]:
        """The tensors of a call, as the graph takes them."""
        leaves = tree_leaves((args, dict(kwargs)))
        return [one.detach() for one in leaves if isinstance(one, Tensor)]

    def outputs(self, found: Sequence[Any]) -> dict[str, Any]:
        """The values of the graph's outputs, by their names."""
        return dict(zip(self.outputs_by, found, strict=True))

    @torch.no_grad()
    def replayed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any] = _NO_KWARGS) -> dict[str, Tensor]:
        """The outputs of the operations, in the network's own precision, by name."""
        with silently():
            return self.outputs(Walk(self.graph, self.tensors).run(*self.inputs(args, kwargs)))

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

    def dependent(self) -> set[fx.Node]:
        """The operations whose results depend on the tensors of the call."""
        found = set(self.graph.graph.find_nodes(op="placeholder"))
        for node in self.graph.graph.nodes:
            if not found.isdisjoint(node.all_input_nodes):
                found.add(node)
        return found


class Walk(fx.Interpreter):
    """One run through a program; ``operation`` says what stands for each operation's result.

    Values are let go after their last use.

    Args:
        graph: The program's.
        tensors: What stands for the network's own tensors, by the names of the graph's nodes, where it is another.
    """

    def __init__(self, graph: fx.GraphModule, tensors: Mapping[str, Any] = _NO_KWARGS) -> None:
        super().__init__(graph)
        self.extra_traceback = False
        self._tensors = tensors

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The value that stands for an operation's result: here, what the network itself computes."""
        return called(node, args, kwargs)

    def run_node(self, n: fx.Node) -> Any:
        """The value that stands for a node's result."""
        if n.op == "get_attr" and n.name in self._tensors:
            return self._tensors[n.name]
        if n.op != "call_function":
            return super().run_node(n)
        return self.operation(n, *self.fetch_args_kwargs_from_env(n))


class Noted(Walk):
    """A run that keeps every operation's result, as the network computes it, in its own precision."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.graph, program.tensors)
        self.values: dict[fx.Node, Any] = {}

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The operation's own result."""
        self.values[node] = called(node, args, kwargs)
        return self.values[node]


def called(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """An operation's result as the network computes it; one that writes gets copies of what it writes to."""
    target: Any = node.target
    kind = node.meta.get(_AUTOCAST)
    with contextlib.nullcontext() if kind is None else torch.autocast(kind[0], kind[1]):
        args, kwargs = copies_of_written(node, args, kwargs)
        return target(*args, **kwargs)


def copies_of_written(node: fx.Node, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """An operation's arguments with copies in place of those that it writes to."""
    written = written_arguments(node)
    if not written:
        return args, kwargs
    names = [one.name for one in node.target._schema.arguments]  # type: ignore[union-attr]
    placed = (one.clone() if name in written else one for name, one in zip(names, args, strict=False))
    return tuple(placed), {name: one.clone() if name in written else one for name, one in kwargs.items()}


def written_arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments that an operation writes to, by name."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return {}
    writes = [one.name for one in target._schema.arguments if one.alias_info is not None and one.alias_info.is_write]
    given = arguments_of(node)
    return {name: given[name] for name in writes if given[name] is not None}


def module_of(node: fx.Node) -> str:
    """The name of the innermost module that an operation is in; "" for the network's own code."""
    stack = list((node.meta.get(_MODULES) or {}).values())
    return str(stack[-1][0]) if stack else ""


def operator_name(target: torch._ops.OpOverload) -> str:
    """An operator's name, without its namespace and overload; one that writes into its operand has the other's name."""
    name = str(target._schema.name).rpartition("::")[2]
    return name.removesuffix("_") if target._schema.is_mutable else name


def name_of(node: fx.Node) -> str:
    """An operation's name, without its namespace and overload."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return operator_name(target)
    return str(getattr(target, "__name__", target))


@contextmanager
def silently() -> Iterator[None]:
    """Without what torch's tracers print, log and warn of, which is about their internals."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _draws(node: fx.Node) -> bool:
    """Whether an operation draws random numbers; dropout that does not train draws none."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    given = arguments_of(node)
    return bool(given.get("train", True)) and given.get("dropout_p") != 0.0


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """Arguments of an operation by name, with defaults; by their places where it is none of torch's operators."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return {str(place): value for place, value in enumerate(node.args)} | dict(node.kwargs)
    schema = target._schema.arguments
    given = dict(zip((one.name for one in schema), node.args, strict=False)) | dict(node.kwargs)
    return {one.name: given.get(one.name, one.default_value) for one in schema}


class _Names:
    """The module that runs, for each operation that is recorded.

    Args:
        network: The network; for a function, the modules that it calls.
    """

    def __init__(self, network: Any) -> None:
        self.named: dict[int, tuple[str, type]] = {}
        self.stack: list[tuple[str, type]] = []
        self._last: fx.Node | None = None
        self._graph: fx.Graph | None = None
        if isinstance(network, nn.Module):
            self._add(network)

    def _add(self, network: nn.Module) -> None:
        for name, module in network.named_modules():
            self.named.setdefault(id(module), (name.replace(_COMPILED, ""), type(module)))

    def starts(self, graph: fx.Graph) -> None:
        """Operations follow."""
        self._graph, self._last = graph, next(iter(reversed(graph.nodes)), None)

    def note(self) -> None:
        """Names the operations since the last time."""
        if self._graph is None:
            return
        node = self._graph._root if self._last is None else self._last
        while node._next is not self._graph._root:
            node = node._next
            node.meta[_MODULES] = {name: (name, kind) for name, kind in self.stack}
        self._last = None if node is self._graph._root else node

    def enter(self, module: nn.Module, args: Any) -> None:
        """A module begins."""
        self.note()
        if id(module) not in self.named and not self.stack:
            self._add(module)  # which a function calls
        if id(module) in self.named:
            self.stack.append(self.named[id(module)])

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        """A module ends."""
        self.note()
        if id(module) in self.named and self.stack:
            self.stack.pop()

    @contextmanager
    def at(self, node: fx.Node) -> Iterator[None]:
        """Operations of a node of a program that was made before, which knows its module."""
        known = list((node.meta.get(_MODULES) or {}).values())
        self.note()
        before, self.stack = self.stack, [(str(name), kind) for name, kind in known] or self.stack
        try:
            yield
        finally:
            self.note()
            self.stack = before


class _Values(TorchFunctionMode):
    """Notes which tensors' values go where torch does not follow."""

    def __init__(self, mode: Any) -> None:
        super().__init__()
        self._mode, self.read = mode, list[tuple[fx.Node, str]]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The function, noted."""
        if func in _OUT_OF_TORCH and args and isinstance(args[0], Tensor):
            node = _node_of(args[0], self._mode)
            if node is not None:
                self.read.append((node, _OUT_OF_TORCH[func]))
        return func(*args, **(kwargs or {}))


def _node_of(tensor: Tensor, mode: Any) -> fx.Node | None:
    """The operation that gave a tensor, if it was recorded."""
    slot = mode.tracer.tensor_tracker.get(tensor)
    return None if slot is None else slot.proxy.node


class _Placed(fx.Interpreter):
    """A run of a program that was made before, whose operations know their modules."""

    def __init__(self, graph: fx.GraphModule, names: _Names) -> None:
        super().__init__(graph)
        self.extra_traceback, self._names = False, names

    def run_node(self, n: fx.Node) -> Any:
        """The result of a node."""
        with self._names.at(n):
            return super().run_node(n)

    def given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """Arguments as the program takes them, one after another."""
        spec: Any = getattr(self.module, "_in_spec", None)
        if spec is not None:
            by_name = spec.child(1).context or []
            if not by_name and kwargs:
                by_name, args = [], (*args, *kwargs.values())
            return tree_leaves((args, [kwargs[name] for name in by_name if name in kwargs]))
        names = [str(node.target) for node in self.graph.find_nodes(op="placeholder")]
        return [*args, *(kwargs[name] for name in names[len(args) :] if name in kwargs)]

    def called(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What the program gives."""
        found = self.run(*self.given(args, kwargs), enable_io_processing=False)
        spec: Any = getattr(self.module, "_out_spec", None)
        return found if spec is None else tree_unflatten(tree_leaves(found), spec)


def _dropout(input: Tensor, p: float, train: bool) -> Any:
    """Dropout that does not train gives its operand itself, of which torch's recorder makes a copy."""
    return NotImplemented if train and p != 0 else input


_AS_IN_A_RUN: dict[Any, Callable[..., Any]] = {torch.ops.aten.dropout.default: _dropout}


class _Recorder:
    """Records one run of a network.

    Args:
        network: As for ``Program.of_run``.
        args: Arguments by place.
        kwargs: Arguments by name.
    """

    def __init__(self, network: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._network = network.module() if isinstance(network, ExportedProgram) else network
        self._names = _Names(self._network)
        self._leaves, self._spec = tree_flatten((args, dict(kwargs)))
        self._places = [place for place, one in enumerate(self._leaves) if isinstance(one, Tensor)]
        self._results: dict[str, Tensor] = {}
        self._read: list[tuple[fx.Node, str]] = []

    def program(self) -> Program:
        """The record, closed."""
        own, changed = own_tensors(self._network), list[str]()
        given = [self._leaves[place].detach().clone() for place in self._places]
        try:
            with left_alone(own, changed) as before, torch.no_grad(), silently(), without_stack_traces():
                graph = self._recorded(given)
        except Exception as error:  # whatever the network's code and torch's recorder raise
            raise ConversionError(f"torch cannot record a run of it: {first_line(error)[:300]}") from error
        called = {id(one): name for name, one in own.items()}
        held = {node.name: getattr(graph, str(node.target)) for node in graph.graph.find_nodes(op="get_attr")}
        names = {name: called[id(one)] for name, one in held.items() if id(one) in called}
        # As they are, parameters too: whether one requires gradients decides how torch multiplies by it.
        tensors = {n: before.get(names.get(n, ""), one) for n, one in held.items()}
        _plain(graph)
        _closed(graph, tensors, [self._leaves[place].detach() for place in self._places])
        program = Program(graph, tensors, list(self._results), names=names, writes=changed)
        program.results = {name: one.detach().clone() for name, one in self._results.items()}
        program.reads = self._reads(program)
        graph.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
        return program

    def _recorded(self, given: list[Tensor]) -> fx.GraphModule:
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx  # imports sympy: seconds

        def run(*tensors: Tensor) -> list[Tensor]:
            mode = get_proxy_mode()
            self._names.starts(mode.tracer.graph)  # type: ignore[union-attr]
            with _Values(mode) as values:
                found = named_tensors(self._run(tensors))
            self._names.note()
            self._results, self._read = found, values.read
            return list(found.values())

        module = nn.modules.module
        handles = [
            module.register_module_forward_pre_hook(self._names.enter),
            module.register_module_forward_hook(self._names.leave, always_call=True),
        ]
        traced = make_fx(run, _AS_IN_A_RUN, "real", pre_dispatch=True, _error_on_data_dependent_ops=False)
        try:
            # One mode for the shapes of all results; otherwise torch makes one for each.
            with _same_generators(given), _eagerly(), tracing(TracingContext(FakeTensorMode())):
                return traced(*given)
        finally:
            for handle in handles:
                handle.remove()

    def _run(self, tensors: Sequence[Tensor]) -> Any:
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = tree_unflatten(leaves, self._spec)
        if isinstance(self._network, fx.GraphModule):
            return _Placed(self._network, self._names).called(args, kwargs)
        return self._network(*args, **kwargs)

    def _reads(self, program: Program) -> tuple[str, ...]:
        """Where values were read that depend on the inputs."""
        depends = program.dependent()
        alive = set(program.graph.graph.nodes)
        found = [(node, how) for node, how in self._read if node in alive]
        for node in program.nodes:
            if _reads_values(node):
                found += [(one, name_of(node)) for one in node.all_input_nodes if one in depends][:1]
        texts = (f"{module_of(node) or node.name} ({how})" for node, how in found if node in depends)
        return tuple(dict.fromkeys(texts))


def _reads_values(node: fx.Node) -> bool:
    """Whether an operation's result is no tensor, or has a size that depends on values."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    name, tags = name_of(node), {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    if name == "index":  # places choose as many numbers as they are, masks as many as are true
        return any(isinstance(one, fx.Node) and one.meta[_VALUE].dtype == torch.bool for one in node.args[1])  # type: ignore[union-attr]
    return name in _READS or not tags.isdisjoint(target.tags)


def own_tensors(network: Any) -> dict[str, Tensor]:
    """A network's tensors by name: parameters, buffers, and those that are plain attributes of its modules."""
    if not isinstance(network, nn.Module):
        return {}
    found: dict[str, Tensor] = {}
    for name, module in network.named_modules():
        plain = {key: one for key, one in vars(module).items() if isinstance(one, Tensor)}
        for key, one in {**module._parameters, **module._buffers, **plain}.items():
            if isinstance(one, Tensor) and not one.is_meta:
                found.setdefault(f"{name}.{key}".removeprefix(".").replace(_COMPILED, ""), one)
    return found


@contextmanager
def left_alone(own: Mapping[str, Tensor], changed: list[str]) -> Iterator[dict[str, Tensor]]:
    """Puts back what runs write into a network's own tensors, and lists the names of these.

    Yields:
        Copies of the tensors as they were; of those that are changed, if any, the only ones in the end.
    """
    before = {name: one.detach().clone().requires_grad_(one.requires_grad) for name, one in own.items()}
    try:
        yield before
    finally:
        with torch.no_grad():
            for name, one in own.items():
                if same_values(one, before[name]):
                    del before[name]
                else:
                    one.copy_(before[name])
                    changed.append(name)


@contextmanager
def _same_generators(given: Sequence[Tensor]) -> Iterator[None]:
    """All generators of random numbers go on where they were."""
    python, numbers = random.getstate(), np.random.get_state()
    devices = sorted({one.device.index or 0 for one in given if one.is_cuda})
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numbers)


@contextmanager
def _eagerly() -> Iterator[None]:
    """Runs what ``torch.compile`` compiles as it is written."""
    with contextlib.ExitStack() as stack:
        if "torch._dynamo" in sys.modules:  # else nothing is compiled, and the import takes seconds
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(torch._dynamo.config.patch(error_on_nested_fx_trace=False))
        yield


def _plain(graph: fx.GraphModule) -> None:
    """Takes out switches of gradients and autocast; operations note the autocast that they ran under."""
    autocasts: list[fx.Node] = []
    for node in list(graph.graph.nodes):
        name = name_of(node) if node.op == "call_function" else ""
        if name == "_enter_autocast":
            autocasts.append(node)
        elif name == "_exit_autocast":
            autocasts = [one for one in autocasts if one is not node.args[0]]
            graph.graph.erase_node(node)
        elif name == "_set_grad_enabled":
            graph.graph.erase_node(node)
        elif autocasts:
            kind, dtype, is_on, _ = (*autocasts[-1].args, None, None, None)[:4]
            if is_on:
                node.meta[_AUTOCAST] = (kind, dtype)
    for node in list(graph.graph.nodes):
        if node.op == "call_function" and name_of(node) == "_enter_autocast":
            graph.graph.erase_node(node)


class _Sharing(fx.Interpreter):
    """A run that notes where each result lies: in which memory, and where in it."""

    def __init__(self, graph: fx.GraphModule, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(graph)
        self.extra_traceback, self._tensors = False, tensors
        self._kept: list[Any] = []
        self.memory: dict[fx.Node, int] = {}
        self.layout: dict[fx.Node, tuple[tuple[int, ...], tuple[int, ...], int]] = {}

    def run_node(self, n: fx.Node) -> Any:
        """The result of a node."""
        if n.op == "get_attr":
            found = self._tensors[n.name]
        elif n.op == "call_function" and n.meta.get(_AUTOCAST) is not None:
            with torch.autocast(*n.meta[_AUTOCAST]):
                found = super().run_node(n)
        else:
            found = super().run_node(n)
        if isinstance(found, Tensor) and found.layout == torch.strided:
            where = StorageWeakRef(found.untyped_storage())
            self._kept.append(where)  # so that its number is not used again
            self.memory[n] = where.cdata
            self.layout[n] = (tuple(found.shape), found.stride(), int(found.storage_offset()))
        return found


def _closed(graph: fx.GraphModule, tensors: Mapping[str, Tensor], given: Sequence[Tensor]) -> None:
    """Gives what shares memory with a tensor that is written to, and is read later, the numbers that were written.

    With T written to and W the result, a tensor N in the same memory becomes, number by number, that of W which lies at
    the same place, or its own.

    Raises:
        ConversionError: An operation writes to several tensors.
    """
    writers = [node for node in graph.graph.nodes if node.op == "call_function" and written_arguments(node)]
    if not writers:
        return
    run = _Sharing(graph, {name: one.detach().clone() for name, one in tensors.items()})
    with torch.no_grad(), silently(), torch.random.fork_rng(devices=[]):
        run.run(*(one.clone() for one in given))
    order = {node: place for place, node in enumerate(graph.graph.nodes)}
    for node in writers:
        (target, *others) = written_arguments(node).values()
        if others or not isinstance(target, fx.Node):
            raise ConversionError(f"torch's record of {name_of(node)} writes to several tensors at once")
        _written(graph, run, order, target, node)


def _written(graph: fx.GraphModule, run: _Sharing, order: dict[fx.Node, int], target: fx.Node, node: fx.Node) -> None:
    """What shares a target's memory reads the result of the operation that wrote to it, from then on."""
    memory = run.memory.get(target)
    others = [one for one, where in run.memory.items() if where == memory and order[one] < order[node]]
    for one in others:
        later = [user for user in one.users if order[user] > order[node]]
        if not later:
            continue
        now = node if run.layout[one] == run.layout[target] else _overlaid(graph, run, order, one, target, node)
        if now is None:  # they share no number
            continue
        for user in later:
            user.replace_input_with(one, now)
        run.memory[now], run.layout[now] = run.memory[one], run.layout[one]


def _overlaid(
    graph: fx.GraphModule, run: _Sharing, order: dict[fx.Node, int], one: fx.Node, target: fx.Node, node: fx.Node
) -> fx.Node | None:
    """A tensor with the numbers of a result that lie in the same places of memory, or None if there are none."""
    places = [_places(*run.layout[each]) for each in (one, target)]
    size = 1 + max((int(each.max()) for each in places if each.numel()), default=0)
    found = torch.full((size,), -1, dtype=torch.long, device="cpu")
    found[places[1].flatten()] = torch.arange(places[1].numel(), device="cpu")
    chosen = found[places[0]]
    if not bool((chosen >= 0).any()):
        return None
    aten, result, made = torch.ops.aten, one.meta[_VALUE], list[fx.Node]()
    held = {"written": chosen >= 0, "places": chosen.clamp(min=0).flatten()}

    def called(target: Any, *args: Any, like: Any) -> fx.Node:
        found = graph.graph.call_function(target, args) if target is not None else graph.graph.get_attr(*args)
        found.meta = {_MODULES: node.meta.get(_MODULES), _VALUE: like}
        order[found] = order[node]
        made.append(found)
        return found

    with graph.graph.inserting_before(node.next):
        for kind, value in held.items():
            name = f"{node.name}_{one.name}_{kind}"
            graph.register_buffer(name, value.to(result.device), persistent=False)
            called(None, name, like=value)
        flat = called(aten.reshape.default, node, [-1], like=node.meta[_VALUE].reshape(-1))
        taken = called(aten.index_select.default, flat, 0, made[1], like=result.reshape(-1))
        shaped = called(aten.reshape.default, taken, list(chosen.shape), like=result)
        return called(aten.where.self, made[0], shaped, one, like=result)


def _places(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Tensor:
    """The place in memory of each number of a tensor."""
    found = torch.full((), offset, dtype=torch.long, device="cpu")
    for size, stride in zip(shape, strides, strict=True):
        found = found.unsqueeze(-1) + torch.arange(size, device="cpu") * stride
    return found
