"""The engines, and the choice between them."""

from __future__ import annotations

import torch

from ..errors import EngineError
from ..heads.values import AttentionLayer
from ..size import Size
from .base import Cost, Engine
from .factored import FactoredEngine
from .literal import LiteralEngine
from .sdpa import SdpaEngine
from .separable import SeparableEngine

__all__ = ["AUTO", "ENGINES", "Cost", "Engine", "check_engine_name", "choose_engine", "engine_error", "exact_engine"]

AUTO = "auto"
# From the most general to the most special.
ENGINES: dict[str, Engine] = {
    engine.name: engine for engine in (LiteralEngine(), SdpaEngine(), SeparableEngine(), FactoredEngine())
}


def check_engine_name(name: str) -> str:
    """Returns the name of an engine, or "auto".

    Raises:
        EngineError: There is no such engine.
    """
    if not isinstance(name, str) or (name != AUTO and name not in ENGINES):
        raise EngineError(f"there is no engine {name!r}; the engines are {AUTO}, {', '.join(ENGINES)}")
    return name


def choose_engine(layer: AttentionLayer, name: str, size: Size, *, batch: int = 1) -> Engine:
    """The engine that a forward call on inputs of this size uses.

    FLOPs do not tell what a number for every query and key costs in memory, and in time. So content, which takes about
    as many in each engine, is left to the literal engine only where no other is exact.

    Args:
        layer: The layer.
        name: What the user asked for: an engine, or "auto" for the exact one that takes the fewest FLOPs.
        size: Size of the input, without padding.
        batch: Number of inputs.

    Raises:
        EngineError: The engine asked for is not exact for the layer's parameters.
    """
    if name != AUTO:
        return exact_engine(layer, name)
    exact = [engine for engine in ENGINES.values() if engine.refusal(layer) is None]
    if layer.content is not None:
        exact = [engine for engine in exact if engine.name != LiteralEngine.name] or exact
    return min(exact, key=lambda engine: engine.cost(layer, size, batch=batch).flops)


def engine_error(layer: AttentionLayer, name: str) -> float:
    """The rounding error of an engine, see ``Engine.error``; of "auto" the largest of those that it may choose.

    What an engine refuses only while positions are trained, it may be chosen for later.
    """
    if name != AUTO:
        return ENGINES[name].error(layer)
    with torch.no_grad():
        return max(engine.error(layer) for engine in ENGINES.values() if engine.refusal(layer) is None)


def exact_engine(layer: AttentionLayer, name: str) -> Engine:
    """The engine of this name; for "auto" the first exact one, whatever the input's size.

    Raises:
        EngineError: The engine asked for is not exact for the layer's parameters.
    """
    if name == AUTO:
        return next(engine for engine in reversed(ENGINES.values()) if engine.refusal(layer) is None)
    reason = ENGINES[name].refusal(layer)
    if reason is not None:
        raise EngineError(f"the {name} engine is not exact for this layer: {reason}; engine 'auto' takes one that is")
    return ENGINES[name]
