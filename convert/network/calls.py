"""Convolutions that are called as functions (``F.conv2d``) become modules, which can then be converted.

A module whose code names a convolution is traced by ``torch.fx``, with its children as single calls; nothing else of
the model changes. A graph, as ``torch.fx.symbolic_trace`` and ``torch.export.export(...).module()`` make it, is taken
as it is. In the graph, each call whose kernel is a tensor of the module becomes a module of PyTorch.
"""

from __future__ import annotations

import inspect
import itertools
import operator
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from ..errors import ConversionError, Problem
from ..layer.layer import SelfAttention
from ..spec import CONVOLUTIONS, Convolution, ConvSpec
from ..subclasses.padded import convolution
from .modules import names_by_module, replace

_PLAIN = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
_ANY = ("input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups")
_KINDS = [f"conv{kind}{axes}d" for kind in ("", "_transpose") for axes in (1, 2, 3)]
_NAMES = frozenset((*_KINDS, "convolution"))
_aten = torch.ops.aten
_FUNCTIONS: dict[Any, tuple[str, ...]] = {
    **{getattr(torch, name): _TRANSPOSED if "transpose" in name else _PLAIN for name in _KINDS},
    **{
        getattr(getattr(_aten, name), overload): _TRANSPOSED if "transpose" in name else _PLAIN
        for name in _KINDS
        for overload in getattr(_aten, name).overloads()
        if overload != "out"
    },
    torch.convolution: _ANY,
    _aten.convolution.default: _ANY,
}


class Traced(NamedTuple):
    """A model whose calls are modules, and the calls that could not become modules."""

    model: nn.Module
    left: tuple[Problem, ...]


def calls_as_modules(model: nn.Module) -> Traced:
    """Gives each convolution that a model calls as a function a module of its own.

    The model is changed, and new if its root was traced; its parameters stay the same objects. Each call that stays one
    is given with the reason.
    """
    left: list[Problem] = []
    for names in reversed(names_by_module(model, _may_call)):  # children first
        module = model.get_submodule(names[0])
        try:
            graph = module if isinstance(module, fx.GraphModule) else graph_of(module)
        except ConversionError as error:
            left.append(Problem(names[0], f"it calls a convolution as a function, and {error}"))
            continue
        if _calls(graph.graph):
            _rewrite(graph, names[0], left)
            if graph is not module:
                model = replace(model, names, module, graph)
    return Traced(model, tuple(left))


def calls_of_integers(module: fx.GraphModule) -> list[str]:
    """Calls of convolutions, by name, whose kernel is computed from stored bytes, as quantised weights are."""
    stored = {node for node in module.graph.find_nodes(op="get_attr") if _is_bytes(module, node)}
    return [node.name for node in _calls(module.graph) if stored & _ancestors(_given(node).get("weight"))]


def _is_bytes(module: nn.Module, node: fx.Node) -> bool:
    found = operator.attrgetter(str(node.target))(module)
    return isinstance(found, Tensor) and found.dtype in (torch.int8, torch.uint8)


def _ancestors(node: Any) -> set[fx.Node]:
    found, pending = set[fx.Node](), [node] if isinstance(node, fx.Node) else []
    while pending:
        if (one := pending.pop()) not in found:
            found.add(one)
            pending += one.all_input_nodes
    return found


def _given(node: fx.Node) -> dict[str, Any]:
    return dict(zip(_FUNCTIONS[node.target], node.args, strict=False)) | node.kwargs


def _may_call(module: nn.Module) -> bool:
    """Whether a module is a graph, or its code names a convolution; False for convolutions themselves."""
    if isinstance(module, fx.GraphModule):
        return True
    is_own = isinstance(module, SelfAttention | nn.modules.conv._ConvNd) or type(module).__module__.startswith("torch.")
    return not is_own and not _NAMES.isdisjoint(words(module))


def _calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function" and node.target in _FUNCTIONS]


def _rewrite(module: fx.GraphModule, name: str, left: list[Problem]) -> None:
    for node in _calls(module.graph):
        try:
            _make_module(module, node)
        except ConversionError as error:
            left.append(Problem(f"{name}.{node.name}".removeprefix("."), f"it is called as a function: {error}"))
    module.recompile()


def _make_module(module: fx.GraphModule, node: fx.Node) -> None:
    given = _given(node)
    x, *sources = (given.pop(name, None) for name in ("input", "weight", "bias"))
    transposed = given.pop("transposed", "transpose" in str(node.target))
    weight = _tensor(module, sources[0], "kernel")
    bias = None if sources[1] is None else _tensor(module, sources[1], "bias")
    conv = _convolution(weight, bias, transposed, given).train(module.training)
    graph, attributes = module.graph, [source for source in sources if isinstance(source, fx.Node)]
    with graph.inserting_before(node):
        path = _owner(module, attributes) or _free_name(module, conv)
        call = graph.create_node("call_module", path, (x,))
    node.replace_all_uses_with(call)
    graph.erase_node(node)
    for source in dict.fromkeys(attributes):
        if not source.users:
            graph.erase_node(source)
    used = {str(other.target) for other in graph.find_nodes(op="get_attr")}
    for target in {str(source.target) for source in attributes} - used:
        owner, _, name = target.rpartition(".")
        if not graph.find_nodes(op="call_module", target=owner):  # whose tensors are in use
            delattr(module.get_submodule(owner), name)
    module.add_submodule(path, conv)


def _tensor(module: nn.Module, source: Any, name: str) -> Tensor:
    if not isinstance(source, fx.Node) or source.op != "get_attr":
        raise ConversionError(f"its {name} is computed from others")
    found: Tensor = operator.attrgetter(str(source.target))(module)
    return found


def _convolution(weight: Tensor, bias: Tensor | None, transposed: bool, given: dict[str, Any]) -> Convolution:
    """The convolution that a call computes, with these very parameters."""
    computed = [name for name, value in given.items() if any(isinstance(leaf, fx.Node) for leaf in tree_leaves(value))]
    axes, groups = weight.ndim - 2, given.pop("groups", 1)
    if computed or (axes, transposed) not in CONVOLUTIONS:
        raise ConversionError(f"its {computed[0]} is computed" if computed else f"its kernel has shape {weight.shape}")
    inputs, outputs = (1, groups) if transposed else (groups, 1)
    spec = ConvSpec(
        in_channels=weight.shape[transposed ^ 1] * inputs,
        out_channels=weight.shape[transposed] * outputs,
        kernel_size=tuple(weight.shape[2:]),
        groups=groups,
        bias=bias is not None,
        transposed=transposed,
        **{name: _along(axes, value) for name, value in given.items()},
    )
    conv = convolution(spec, device="meta")
    conv.weight = _parameter(weight)
    conv.bias = None if bias is None else _parameter(bias)
    return conv


def _along(axes: int, value: Any) -> Any:
    numbers = (value,) if isinstance(value, int) else value
    return numbers if isinstance(numbers, str) else tuple(numbers) * (axes if len(numbers) == 1 else 1)


def _parameter(tensor: Tensor) -> nn.Parameter:
    return tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor, requires_grad=False)


def _owner(module: fx.GraphModule, sources: Sequence[fx.Node]) -> str | None:
    """The module that holds just the kernel and bias of a call, and is not used for anything else."""
    (path, *others) = {str(source.target).rpartition(".")[0] for source in sources}
    if others or not path or module.graph.find_nodes(op="call_module", target=path):
        return None
    held = [name for name, _ in module.get_submodule(path).named_parameters()]
    names = [str(source.target).rpartition(".")[2] for source in sources]
    used = [node for node in module.graph.find_nodes(op="get_attr") if str(node.target).startswith(f"{path}.")]
    is_own = names == ["weight", "bias"][: len(names)] == held and set(used) == set(sources)
    return path if is_own and all(len(source.users) == 1 for source in sources) else None


def _free_name(module: nn.Module, conv: Convolution) -> str:
    """A free name such as ``conv2d``, or ``conv2d_1`` where that is taken."""
    name = f"conv{'_transpose' if conv.transposed else ''}{len(conv.kernel_size)}d"
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))
    return next(name for name in names if not hasattr(module, name))


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
    # the graph also gets what the module's code does not use
    graph = fx.GraphModule(module, graphs[1], type(module).__name__)
    for kind in ("_modules", "_parameters", "_buffers"):
        for name, value in getattr(module, kind).items():
            getattr(graph, kind).setdefault(name, value)
    graph._non_persistent_buffers_set = set(module._non_persistent_buffers_set)
    for name, value in vars(module).items():
        vars(graph).setdefault(name, value)
    return graph


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
