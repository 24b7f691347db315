"""A network's program: the operations of one run, as they were recorded.

Questions about given inputs need no program that holds for all inputs. So a run is recorded, with torch's own recorder
(``make_fx``): operations with their attributes as the network calls them, before torch takes them apart, each with the
innermost module that it runs in. Caches among outputs, loops over values and parts that were traced before are recorded
as well. A record is of this run: branches were taken, sizes were chosen and what Python or NumPy computed are numbers
(``reads`` names them), and where torch has a fused path for a whole module, the record has its operations.

A record is closed: no operation changes what another one reads. A run notes which tensors share memory; an operation
that writes gives a new value, and what shares the memory and is read later gets the numbers that were written, by index
(``closed.py``). So a walk may hold, widen and replace values as it likes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._guards import TracingContext, tracing
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from ..context import eagerly, same_generators, silently, without_stack_traces
from ..errors import ConversionError, first_line
from ..inputs import named_tensors, same_values
from .closed import close
from .walk import AUTOCAST, MODULES, NOTHING, VALUE, Walk, arguments_of, called, module_of, name_of

Taken = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
"""Takes outputs by name, or parts of them."""
_COMPILED = "_orig_mod."
_READS = frozenset(("item", "_local_scalar_dense", "equal", "allclose", "is_nonzero"))
_OUT_OF_TORCH = {
    Tensor.numpy: "numpy",
    Tensor.__array__: "numpy",
    Tensor.tolist: "tolist",
    Tensor.__dlpack__: "dlpack",
    Tensor.data_ptr: "data_ptr",
}


class Program:
    """The operations of one run of a network.

    Attributes:
        graph: torch's graph. Its inputs are the tensors of the call, in their order; its outputs those of the network.
        tensors: The network's own tensors, as they were before the run, by the names of the graph's nodes.
        names: The names of those that have one in the network, by the names of the graph's nodes.
        results: The outputs of the run that was recorded, by name.
        reads: Where the run read values that depend on its inputs, for people; what followed is of this run.
        draws: Operations that drew random numbers.
        writes: The network's own tensors that the run changed; they were put back.
        given: Operations whose results modules gave, by the module's name, with ``#2`` and so on where it was called
            again, and by where the tensor lies in its output.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        tensors: Mapping[str, Tensor],
        *,
        names: Mapping[str, str],
        writes: Sequence[str],
        results: Mapping[str, Tensor],
    ) -> None:
        self.graph, self.tensors, self.names = graph, dict(tensors), dict(names)
        self.results, self.writes = dict(results), tuple(writes)
        self.reads: tuple[str, ...] = ()
        self.given: dict[str, fx.Node] = {}
        self.draws = tuple(name_of(node) for node in self.nodes if _draws(node))

    @classmethod
    def of_run(
        cls,
        network: Callable[..., Any] | ExportedProgram,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] = NOTHING,
        *,
        taken: Taken = dict,
    ) -> Program:
        """Runs a network once on copies of inputs, and records it. The network is left as it was.

        Args:
            network: A module, a function of tensors, or a program of torch.export or fx.
            args: Arguments by place; tensors in containers, too.
            kwargs: Arguments by name.
            taken: Takes the outputs, or parts of them, that are recorded; all of them by default.

        Raises:
            ConversionError: It does not run, gives no tensor, or torch cannot record it.
        """
        return _Recorder(network, args, kwargs, taken).program()

    @property
    def nodes(self) -> list[fx.Node]:
        """The operations, in the order in which they ran."""
        return [node for node in self.graph.graph.nodes if node.op == "call_function"]

    def inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any] = NOTHING) -> list[Tensor]:
        """The tensors of a call, as the graph takes them."""
        leaves = tree_leaves((args, dict(kwargs)))
        return [one.detach() for one in leaves if isinstance(one, Tensor)]

    def outputs(self, found: Sequence[Any]) -> dict[str, Any]:
        """The values of the graph's outputs, by their names."""
        return dict(zip(self.results, found, strict=True))

    @torch.no_grad()
    def replayed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any] = NOTHING) -> dict[str, Tensor]:
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

    def tensor(self, node: fx.Node) -> Any:
        """The network's own tensor that a node of the graph stands for."""
        return self.tensors.get(node.name, getattr(self.graph, str(node.target), None))

    def dependent(self) -> set[fx.Node]:
        """The operations whose results depend on the tensors of the call."""
        found = set(self.graph.graph.find_nodes(op="placeholder"))
        for node in self.graph.graph.nodes:
            if not found.isdisjoint(node.all_input_nodes):
                found.add(node)
        return found


class Noted(Walk):
    """A run that keeps every operation's result, as the network computes it, in its own precision."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.graph, program.tensors)
        self.values: dict[fx.Node, Any] = {}

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The operation's own result."""
        self.values[node] = called(node, args, kwargs)
        return self.values[node]


def _draws(node: fx.Node) -> bool:
    """Whether an operation draws random numbers; dropout that does not train draws none."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    given = arguments_of(node)
    return bool(given.get("train", True)) and given.get("dropout_p") != 0.0


class _Names:
    """The module that runs, for each operation that is recorded.

    Args:
        network: The network; for a function, the modules that it calls.
    """

    def __init__(self, network: Any) -> None:
        self.named: dict[int, tuple[str, type]] = {}
        self.stack: list[tuple[str, type]] = []
        self.given: dict[str, fx.Node] = {}
        self._calls: Counter[str] = Counter()
        self._last: fx.Node | None = None
        self._mode: Any = None
        self._late: dict[int, Any] = {}
        if isinstance(network, nn.Module):
            self._add(network)

    def _add(self, network: nn.Module) -> None:
        for name, module in network.named_modules():
            self.named.setdefault(id(module), (name.replace(_COMPILED, ""), type(module)))

    @property
    def _graph(self) -> fx.Graph | None:
        return None if self._mode is None else self._mode.tracer.graph

    def starts(self, mode: Any) -> None:
        """Operations follow, which torch's recorder notes."""
        self._mode = mode
        self._last = next(iter(reversed(mode.tracer.graph.nodes)), None)

    def note(self) -> None:
        """Names the operations since the last time."""
        if self._graph is None:
            return
        node = self._graph._root if self._last is None else self._last
        while node._next is not self._graph._root:
            node = node._next
            node.meta[MODULES] = {name: (name, kind) for name, kind in self.stack}
        self._last = None if node is self._graph._root else node

    def enter(self, module: nn.Module, args: Any) -> None:
        """A module begins."""
        self.note()
        if id(module) not in self.named and not self.stack:
            self._add(module)  # which a function calls
        if id(module) in self.named:
            self.stack.append(self.named[id(module)])
            if module._forward_hooks:  # which may replace its result
                self._late[id(module)] = module.register_forward_hook(self._leave_late)

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        """A module ends, but for hooks of its own."""
        if id(module) in self._late:
            return
        self.note()
        if id(module) in self.named and self.stack:
            self._gave(self.named[id(module)][0], output)
            self.stack.pop()

    def _leave_late(self, module: nn.Module, args: Any, output: Any) -> None:
        self._late.pop(id(module)).remove()
        self.leave(module, args, output)

    def end(self) -> None:
        """Nothing follows, even where a module's code failed."""
        for handle in self._late.values():
            handle.remove()

    def _gave(self, name: str, output: Any) -> None:
        """Notes what a module gave."""
        self._calls[name] += 1
        again = f"{name}#{self._calls[name]}" if self._calls[name] > 1 else name
        with suppress(ConversionError):  # it gave no tensor
            for part, one in named_tensors(output).items() if self._mode is not None and name else ():
                node = _node_of(one, self._mode)
                if node is not None:
                    self.given[f"{again}.{part}" if part else again] = node

    @contextmanager
    def at(self, node: fx.Node) -> Iterator[None]:
        """Operations of a node of a program that was made before, which knows its module."""
        known = list((node.meta.get(MODULES) or {}).values())
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
        """The program's result."""
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
        taken: As for ``Program.of_run``.
    """

    def __init__(self, network: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], taken: Taken) -> None:
        self._taken = taken
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
        close(graph, tensors, [self._leaves[place].detach() for place in self._places])
        results = {name: one.detach().clone() for name, one in self._results.items()}
        program = Program(graph, tensors, names=names, writes=changed, results=results)
        program.reads = self._reads(program)
        graph.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
        left = set(program.nodes)
        program.given = {name: node for name, node in self._names.given.items() if node in left}
        return program

    def _recorded(self, given: list[Tensor]) -> fx.GraphModule:
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx  # imports sympy: seconds

        def run(*tensors: Tensor) -> list[Tensor]:
            mode = get_proxy_mode()
            self._names.starts(mode)
            with _Values(mode) as values:
                found = self._taken(named_tensors(self._run(tensors)))
            self._names.note()
            self._results, self._read = found, values.read
            return list(found.values())

        module = nn.modules.module
        handles = [
            module.register_module_forward_pre_hook(self._names.enter),
            module.register_module_forward_hook(self._names.leave, always_call=True),
        ]
        devices = sorted({one.device.index or 0 for one in given if one.is_cuda})
        traced = make_fx(run, _AS_IN_A_RUN, "real", pre_dispatch=True, _error_on_data_dependent_ops=False)
        try:
            # One mode for the shapes of all results; otherwise torch makes one for each.
            with same_generators(devices), eagerly(), _within_traces(), tracing(TracingContext(FakeTensorMode())):
                return traced(*given)
        finally:
            self._names.end()
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
        found = list(self._read)
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
        return any(isinstance(one, fx.Node) and one.meta[VALUE].dtype == torch.bool for one in node.args[1])  # type: ignore[union-attr]
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


def _within_traces() -> AbstractContextManager[object]:
    """Lets compiled functions run as they are written under torch's recorder, which they otherwise refuse."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    found: AbstractContextManager[object] = torch._dynamo.config.patch(error_on_nested_fx_trace=False)
    return found


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
                node.meta[AUTOCAST] = (kind, dtype)
    for node in list(graph.graph.nodes):
        if node.op == "call_function" and name_of(node) == "_enter_autocast":
            graph.graph.erase_node(node)
