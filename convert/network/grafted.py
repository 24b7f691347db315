"""A network with spare heads, whose own methods and loads know of them.

- Methods that fold layers together (``fuse`` and the like) run where every layer with spare heads is still there
  afterwards, scaled with its batch norm, and are refused where one would be left out.
- A load of the CNN's state dict puts W_out back to 0 (``layer/spare.py``); one warning names all the layers.

Both go with copies and pickles of the network. They know their module by the call alone, so that a copy's are its own.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

from torch import nn

from ..errors import ConversionError
from ..layer.layer import SelfAttention
from .copies import copied
from .modules import modules_of, names_by_module

FOLDING = ("fuse", "fuse_convs", "reparameterize", "switch_to_deploy")  # of ultralytics, timm and RepVGG


def equip(model: nn.Module) -> None:
    """Makes a network's methods and loads know of its spare heads, or forget them where it has none."""
    for module in model.modules():
        has_heads = any(map(has_spare_heads, module.modules()))
        for name in FOLDING:
            if has_heads and callable(getattr(type(module), name, None)):
                vars(module)[name] = partial(fold, module, name)
            elif isinstance(own := vars(module).get(name), partial) and own.func is fold:
                del vars(module)[name]
    hooks = model._load_state_dict_post_hooks
    for key in [key for key, hook in hooks.items() if hook is warn_of_heads_put_back]:
        del hooks[key]
    if any(map(has_spare_heads, model.modules())):
        model.register_load_state_dict_post_hook(warn_of_heads_put_back)


def has_spare_heads(module: nn.Module) -> bool:
    """Whether a module is an attention layer with spare heads, at 0 or trained."""
    return isinstance(module, SelfAttention) and module.spare is not None


def fold(module: nn.Module, name: str, *arguments: Any, **named: Any) -> Any:
    """Calls a method of a module's class that folds layers together, after a trial on a copy.

    A batch norm is folded into a layer by new weights, which is right for heads in front of the taps. A new convolution
    in the layer's place, or in place of several branches, would be one without the heads.

    Args:
        module: The module, with spare heads below it.
        name: The method.
        *arguments: As the method takes them.
        **named: Likewise.

    Returns:
        The method's result.

    Raises:
        ConversionError: The method leaves out a layer with spare heads, or some stand beside their taps.
    """
    method = getattr(type(module), name)
    layers = {names[0]: layer for names, layer in modules_of(module, SelfAttention).items() if has_spare_heads(layer)}
    lost = [each for each, layer in layers.items() if layer.spare is not None and layer.spare.beside]
    if not lost:
        trial = copied(module)
        result = method(trial, *arguments, **named)
        kept = names_by_module(result if isinstance(result, nn.Module) else trial, has_spare_heads)
        if len(kept) < len(layers):
            lost = [name for name in layers if not any(name in names for names in kept)]
    if lost:
        raise ConversionError(
            f"{name} would leave out the spare heads of {', '.join(lost)}: ungraft(model) takes off those that are 0, "
            "ungraft(model, all=True) all of them"
        )
    return method(module, *arguments, **named)


def warn_of_heads_put_back(model: nn.Module, _keys: Any) -> None:
    """Warns once, after a load, of all the layers whose trained heads it put back to 0."""
    layers = modules_of(model, SelfAttention)
    put_back = [names[0] or "the model itself" for names, layer in layers.items() if layer.was_put_back()]
    if put_back:
        warnings.warn(
            f"the state dict has no spare heads for {', '.join(put_back)}: their W_out is 0 now, and what computes is "
            "the CNN that was loaded",
            stacklevel=4,  # whoever calls load_state_dict
        )
