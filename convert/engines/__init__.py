"""The engines, and the choice between them."""

from __future__ import annotations

from ..errors import EngineError, UnknownEngineError
from ..heads.values import LayerValues
from .base import Cost, Engine
from .factored import FactoredEngine
from .literal import LiteralEngine
from .sdpa import SdpaEngine
from .separable import SeparableEngine

__all__ = ["AUTO", "ENGINES", "Cost", "Engine", "check_engine_name", "choose_engine", "engine_error"]

AUTO = "auto"
# From the most general to the most special.
ENGINES: dict[str, Engine] = {
    engine.name: engine for engine in (LiteralEngine(), SdpaEngine(), SeparableEngine(), FactoredEngine())
}


def check_engine_name(name: str) -> str:
    """Returns the name of an engine, or "auto".

    Raises:
        UnknownEngineError: There is no such engine.
    """
    if not isinstance(name, str) or (name != AUTO and name not in ENGINES):
        raise UnknownEngineError(f"there is no engine {name!r}; the engines are {AUTO}, {', '.join(ENGINES)}")
    return name


def engine_error(layer: LayerValues, name: str) -> float:
    """The rounding error of an engine, see ``Engine.error``; of "auto" the largest of those that are exact."""
    if name != AUTO:
        return ENGINES[name].error(layer)
    return max(engine.error(layer) for engine in ENGINES.values() if engine.refusal(layer) is None)


def choose_engine(layer: LayerValues, name: str) -> Engine:
    """The engine that forward calls use, whatever the input's size.

    Args:
        layer: The layer.
        name: What the user asked for: an engine, or "auto" for the most special one that is exact for the layer, which
            is the fastest.

    Raises:
        EngineError: The engine asked for is not exact for the layer's parameters.
    """
    if name == AUTO:
        return next(engine for engine in reversed(ENGINES.values()) if engine.refusal(layer) is None)
    reason = ENGINES[name].refusal(layer)
    if reason is not None:
        raise EngineError(f"the {name} engine is not exact for this layer: {reason}; engine 'auto' takes one that is")
    return ENGINES[name]
