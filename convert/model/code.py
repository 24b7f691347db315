"""Names in a module's own code, and its graph by ``torch.fx``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torch import fx, nn

from ..errors import ConversionError

# Questions about an input or a mode: a trace answers them once, and perhaps wrongly, since it has no tensor to ask.
_QUESTIONS = ("isinstance", "is_tensor", "is_grad_enabled", "is_autocast_enabled", "is_inference_mode_enabled")


class _OwnCode(fx.Tracer):
    """Follows the code of one module; its children are single calls."""

    def __init__(self) -> None:
        super().__init__(param_shapes_constant=True)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Always."""
        return True


def words(module: nn.Module) -> frozenset[str]:
    """All names that the code of a module's ``forward`` uses, and the code of the functions that it names."""
    found: set[str] = set()
    seen: set[CodeType] = set()
    pending: list[Any] = [type(module).forward]
    while pending:
        function = inspect.unwrap(pending.pop())
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType) and code not in seen:
            seen.add(code)
            own = set(_own_words(code))
            found |= own
            pending += _functions(own, module, function.__globals__)
    return frozenset(found)


def _own_words(code: CodeType) -> Iterator[str]:
    """The names that a function's code and the functions inside it use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _own_words(constant)


def _functions(names: set[str], module: nn.Module, known: dict[str, Any]) -> list[FunctionType]:
    """The functions outside PyTorch that names stand for: global ones, the module's own, and those of packages."""
    named = [known[name] for name in names if name in known]
    places = [module, *(found for found in named if isinstance(found, ModuleType) and not _is_torch(found.__name__))]
    named += [inspect.getattr_static(place, name, None) for place in places for name in names]
    named = [getattr(found, "__func__", found) for found in named]  # unwraps a static method
    return [found for found in named if isinstance(found, FunctionType) and not _is_torch(found.__module__)]


def _is_torch(module: str | None) -> bool:
    return module is None or module.partition(".")[0] == "torch"


def graph_of(module: nn.Module) -> fx.GraphModule:
    """A module as a graph of the same function, which accepts arguments with defaults only at their defaults.

    The graph has the module's tensors, children and attributes. Another value for an argument that has a default fails
    when it is called.

    Raises:
        ConversionError: The code cannot be traced, or its trace may differ from it.
    """
    if "forward" in vars(module):
        raise ConversionError("its forward was replaced on the instance")
    asked = [question for question in _QUESTIONS if question in words(module)]
    if asked:
        raise ConversionError(f"its code asks {asked[0]}, which a trace cannot answer")
    before = dict(vars(module))
    try:
        graphs = [_trace(module, training=training) for training in (not module.training, module.training)]
    except Exception as error:  # other people's code, on what is not a tensor
        reason = str(error).partition("\n")[0]
        raise ConversionError(f"torch.fx cannot trace it: {reason}") from error
    if changed := [name for name, value in vars(module).items() if name not in before or value is not before[name]]:
        raise ConversionError(f"its code changes its {changed[0]}")
    if graphs[0].python_code("self").src != graphs[1].python_code("self").src:
        raise ConversionError("it computes something else in training")
    return _with_all_of(module, fx.GraphModule(module, graphs[1], type(module).__name__))


def _trace(module: nn.Module, *, training: bool) -> fx.Graph:
    parameters = inspect.signature(type(module).forward).parameters.values()
    defaults = {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}
    before = module.training
    try:
        module.training = training
        graph = _OwnCode().trace(module, defaults)
    finally:
        module.training = before
    for node in graph.find_nodes(op="placeholder"):  # fx numbers the arguments that keep their defaults
        name = str(node.target).rpartition("_")[0]
        node.target = name if name in defaults and node.target not in defaults else node.target
    return graph


def _with_all_of(module: nn.Module, graph: fx.GraphModule) -> fx.GraphModule:
    """Adds to a graph the tensors, children and attributes of its module that the code does not use."""
    for kind in ("_modules", "_parameters", "_buffers"):
        for name, value in getattr(module, kind).items():
            getattr(graph, kind).setdefault(name, value)
    graph._non_persistent_buffers_set = set(module._non_persistent_buffers_set)
    for name, value in vars(module).items():
        vars(graph).setdefault(name, value)
    return graph
