"""Runs a model and what it was rewritten to beside each other, once, on a small input that is drawn.

ONNX Runtime runs both, without its own optimisations, so that equal operators give equal bits. Where it is missing, or
does not take the original, onnx's reference implementation does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from ..arguments import Size
from ..errors import ToolError, first_line
from .constants import load_model
from .run import Feeds, random_feeds, session

SIZES = (Size(16, 32), Size(64, 64), Size(224, 224), None)  # of inputs that leave them open: the first one taken
LARGEST = 2**31 - 2**20  # bytes of a model that is handed over in memory


class NotRunError(Exception):
    """No engine runs a model, or none gives the same numbers twice."""


@dataclass(frozen=True)
class Run:
    """A run of a model on drawn inputs.

    Attributes:
        engine: Makes what runs a model, of which it takes the path or the content.
        feeds: The inputs.
        outputs: The outputs, by name.
    """

    engine: Callable[[Path | ModelProto], Any]
    feeds: Feeds
    outputs: Mapping[str, Any]

    def of(self, model: Path | ModelProto, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Outputs of another model on the same inputs; of these names, or all. Raises whatever the engine does."""
        return run(self.engine(model), self.feeds, names)


def drawn_run(model: Path | ModelProto) -> Run:
    """Runs a model by the first engine that takes it.

    Raises:
        NotRunError: None does, or it gives other numbers every time.
    """
    reasons = []
    for engine in (runtime, Reference):
        try:
            feeds, outputs = _first_size(engine(model))
            again = run(engine(model), feeds)
        except Exception as error:  # a missing package, and whatever the engine raises
            reasons.append(first_line(error)[:200])
            continue
        if unlike(outputs, again) is not None:
            raise NotRunError("it gives other numbers every time")
        return Run(engine, feeds, outputs)
    raise NotRunError("; ".join(reasons))


def _first_size(made: Any) -> tuple[Feeds, dict[str, Any]]:
    """Inputs and outputs of the first size that a model takes; the error of the last one."""
    for size in SIZES:
        for count in (None, 1):
            feeds = random_feeds(made, size=size, count=count, seed=0)
            try:
                return feeds, run(made, feeds)
            except Exception:  # whatever the engine raises for a size that the model does not take
                if (size, count) == (SIZES[-1], 1):
                    raise
    raise NotRunError("there is no size")


def run(made: Any, feeds: Feeds, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Outputs by name."""
    names = [port.name for port in made.get_outputs()] if names is None else list(names)
    return dict(zip(names, made.run(names, dict(feeds)), strict=True))


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """The first name whose values differ in any bit, or None; NaN is as NaN."""
    return next((name for name in one if not _is_same(one[name], other.get(name))), None)


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(_is_same, one, other))
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return type(one) is type(other) and bool(one == other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return one.tobytes() == other.tobytes() or np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


@contextmanager
def showing(model: ModelProto, names: Sequence[str]) -> Iterator[ModelProto]:
    """A model that gives inner values, too, while the context lasts."""
    known, count = {port.name for port in model.graph.output}, len(model.graph.output)
    model.graph.output.extend(ValueInfoProto(name=name) for name in dict.fromkeys(names) if name not in known)
    try:
        yield model
    finally:
        del model.graph.output[count:]


def first_difference(path: Path, model: ModelProto, ran: Run) -> NodeProto | None:
    """The first node of a file whose values another model that has them by the same names does not give."""
    original, _ = load_model(path)
    others = {name for node in model.graph.node for name in node.output}
    nodes = [node for node in original.graph.node if set(filter(None, node.output)) <= others]
    names = [name for node in nodes for name in node.output if name]
    try:
        with showing(original, names), showing(model, names):
            one, other = ran.of(original, names), ran.of(model, names)
    except Exception:  # whatever the engine raises for values that it does not give
        return None
    return next((node for node in nodes if unlike({n: one[n] for n in node.output if n}, other)), None)


def runtime(model: Path | ModelProto) -> Any:
    """ONNX Runtime, without its optimisations.

    Raises:
        ToolError: It is not installed, or the model is too large.
    """
    if isinstance(model, Path):
        return session(model, optimised=False)
    if model.ByteSize() > LARGEST:
        raise ToolError("it is larger than 2 GB")
    return session(model.SerializeToString(), optimised=False)


class Reference:
    """onnx's reference implementation, with the methods of ONNX Runtime's sessions that are used here."""

    def __init__(self, model: Path | ModelProto) -> None:
        self._model = load_model(model)[0] if isinstance(model, Path) else model
        opset = max((one.version for one in self._model.opset_import if one.domain in ("", "ai.onnx")), default=1)
        self._evaluator = ReferenceEvaluator(self._model, new_ops=_OLD if opset < 7 else _OLD[:1])

    def get_inputs(self) -> list[Any]:
        """Its inputs, without those that have a value."""
        held = {tensor.name for tensor in self._model.graph.initializer}
        return [_port(each) for each in self._model.graph.input if each.name not in held]

    def get_outputs(self) -> list[Any]:
        """Its outputs."""
        return [SimpleNamespace(name=each.name) for each in self._model.graph.output]

    def run(self, names: Sequence[str], feeds: Feeds) -> list[Any]:
        """The outputs of these names."""
        return list(self._evaluator.run(list(names), dict(feeds)))


def _port(port: ValueInfoProto) -> Any:
    kind = port.type.tensor_type
    shape = [each.dim_value or each.dim_param or None for each in kind.shape.dim]
    name = TensorProto.DataType.Name(kind.elem_type).lower() if kind.elem_type else "nothing"
    return SimpleNamespace(name=port.name, type=f"tensor({name})", shape=shape)


def _old(name: str, compute: Callable[[Any, Any], Any]) -> type[OpRun]:
    """An operator up to opset 6, whose second operand begins at ``axis``."""

    def _run(self: Any, a: NDArray[Any], b: NDArray[Any], axis: Any = None, broadcast: Any = None, **_: Any) -> Any:
        if broadcast and axis is not None:
            b = b.reshape(*b.shape, *[1] * (a.ndim - axis - b.ndim))
        return (compute(a, b),)

    return type(name, (OpRun,), {"op_domain": "", "_run": _run})


def _p_relu(x: NDArray[Any], slope: NDArray[Any]) -> NDArray[Any]:
    along = slope.reshape(-1, *[1] * (x.ndim - 2)) if slope.ndim == 1 else slope
    return np.where(x > 0, x, x * along).astype(x.dtype)


class BatchNormalization(OpRun):
    """Normalises by what it holds. Up to opset 13 onnx's own takes the statistics of its input instead."""

    op_domain = ""

    def _run(self, x: Any, scale: Any, b: Any, mean: Any, var: Any, epsilon: Any = None, **_: Any) -> Any:
        a, b, mean, var = (one.reshape(-1, *[1] * (x.ndim - 2)) for one in (scale, b, mean, var))
        return ((a * (x - mean) / np.sqrt(var + epsilon) + b).astype(x.dtype),)


class Dropout(OpRun):
    """Dropout of opset 6 in a network in use, which gives its operand."""

    op_domain = ""

    def _run(self, x: Any, **_: Any) -> Any:
        return (x,)


_OLD: list[type[OpRun]] = [
    *(BatchNormalization, Dropout),
    *(_old(name, compute) for name, compute in (("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply))),
    *(_old(name, compute) for name, compute in (("Div", np.divide), ("Pow", np.power), ("PRelu", _p_relu))),
    *(_old(name, compute) for name, compute in (("And", np.logical_and), ("Or", np.logical_or))),
    *(_old(name, compute) for name, compute in (("Xor", np.logical_xor), ("Equal", np.equal))),
    *(_old(name, compute) for name, compute in (("Greater", np.greater), ("Less", np.less))),
]
