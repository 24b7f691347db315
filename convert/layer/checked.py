"""Models and layers that callers pass, checked once where they come in.

Raises:
    ConversionError: By every function here, for something else; the message says what it is and what to do instead.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from ..errors import ConversionError
from ..heads.regime import Regime
from ..heads.values import LayerValues
from ..subclasses.computed import COMPUTABLE, is_computed, value


def checked_model(model: Any, name: str = "model") -> nn.Module:
    """A network whose layers can be looked at."""
    if not isinstance(model, nn.Module):
        raise ConversionError(f"{name} must be a torch.nn.Module; got {passed(model)}")
    if isinstance(model, torch.jit.ScriptModule):
        raise ConversionError(
            f"{name} must be a torch.nn.Module in Python; got TorchScript, whose layers are compiled: take the module "
            "that was scripted or traced, or load its state dict into a new one"
        )
    return model


def changeable_model(model: Any) -> nn.Module:
    """A network whose layers can be replaced: one that no wrapper shards or synchronises the parameters of."""
    checked = checked_model(model)
    for name, module in checked.named_modules():
        wrapper = _wrapper(module)
        if wrapper is not None:
            raise ConversionError(
                f"{name or 'the model'} is wrapped in {wrapper}, which keeps its own record of the parameters: convert "
                "or restore the model first, then wrap it"
            )
    return checked


def checked_layer(layer: Any) -> LayerValues:
    """The values of a self-attention layer as it is now; weights that something computes are as in eval mode."""
    if isinstance(layer, LayerValues):
        return layer
    regime = getattr(layer, "regime", None) if isinstance(layer, nn.Module) else None
    if not isinstance(regime, Regime):
        raise ConversionError(
            f"layer must be a self-attention layer, as attention_from_conv makes it; got {passed(layer)}"
        )
    if any(parameter.is_meta for parameter in layer.parameters()):
        raise ConversionError("the layer has no values, as on the meta device")
    values: LayerValues = cast(Any, layer).values()
    if not is_computed(layer):
        return values
    weight, bias = (value(layer, name) for name in COMPUTABLE)
    return values._replace(weight=cast(torch.Tensor, weight), bias=bias)


def _wrapper(module: nn.Module) -> str | None:
    distributed = sys.modules.get("torch.distributed.fsdp")  # a wrapped model has imported it
    wrappers: tuple[type, ...] = (nn.parallel.DistributedDataParallel,)
    if distributed is not None:
        wrappers += (distributed.FullyShardedDataParallel, distributed.FSDPModule)
    return next((kind.__name__ for kind in wrappers if isinstance(module, kind)), None)


def passed(value: Any) -> str:
    """Says what was passed in place of a model or layer, and what to do instead."""
    kind = type(value).__name__
    if isinstance(value, tuple) and hasattr(value, "model"):
        return f"a {kind}: pass its .model"
    if isinstance(value, Mapping):
        return f"a {kind}: a state dict is weights without their network, so load it into one first (load_state_dict)"
    if isinstance(value, str | bytes | Path):
        return f"the {kind} {value!r:.80}: load the network first"
    if isinstance(value, torch.export.ExportedProgram):
        return (
            f"an {kind}, whose layers are compiled: take the module that was exported, or give its file to the command "
            "line"
        )
    if isinstance(value, type):
        return f"the class {value.__name__}" + (f": pass {value.__name__}()" if issubclass(value, nn.Module) else "")
    return f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"
