"""Keeps libraries' own ``save_pretrained`` from writing a converted network, which would come back without attention.

transformers' ``from_pretrained`` builds the CNN and loads what it knows of the weights, so positions that were trained
would be lost without an error. ``save_converted`` and ``HubNetwork`` keep them.
"""

from __future__ import annotations

from typing import Any, NoReturn

from torch import nn

from ..errors import ConversionError

_NAME = "save_pretrained"


def refuse_to_save(*_: Any, **__: Any) -> NoReturn:
    """Stands in for ``save_pretrained`` on a converted network.

    Raises:
        ConversionError: Always.
    """
    raise ConversionError(
        "save_pretrained would write weights that from_pretrained loads into convolutions, without attention: "
        "save_converted or HubNetwork keeps a converted network, restore_model gives the CNN back"
    )


def guard(model: nn.Module) -> None:
    """Refuses ``save_pretrained`` of a converted network and its parts, where their classes have it."""
    for module in model.modules():
        if callable(getattr(type(module), _NAME, None)):
            vars(module)[_NAME] = refuse_to_save


def unguard(model: nn.Module) -> None:
    """Undoes ``guard``, for a network of convolutions again."""
    for module in model.modules():
        if vars(module).get(_NAME) is refuse_to_save:
            del vars(module)[_NAME]
