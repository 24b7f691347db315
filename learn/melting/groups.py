"""The parameters of a melted network in an optimizer's groups: positions do not decay, and go faster.

Decay pulls a parameter to 0. For a weight that means "simpler"; for alpha it means attention without a place, for a
centre the query itself. So alpha and centres never decay.
"""

from __future__ import annotations

from torch import nn

from ...convert.errors import ConversionError
from ...convert.layer.layer import SelfAttention
from ..training.recipe import Groups, plain_groups
from .melt import attention_layers

POSITION_RATE = 10.0  # times the learning rate: a step of Adam's is about the rate, and positions are in pixels


def parameter_groups(model: nn.Module, lr: float, weight_decay: float, *, position_lr: float | None = None) -> Groups:
    """Parameter groups for ``torch.optim``: weights that decay; biases and scales; alpha and centres.

    Args:
        model: A network, melted or not.
        lr: Learning rate.
        weight_decay: Of weights of at least two dimensions, content's projections included.
        position_lr: Learning rate of alpha and centres; by default ``POSITION_RATE`` times ``lr``.

    Raises:
        ConversionError: A parameter requires a gradient that is always 0: alpha and centres of attention that is
            exactly one-hot, or in whose place learned tables are.
    """
    _check_gradients(model)
    apart = [parameter for _, layer in attention_layers(model) for parameter in _positions(layer)]
    faster = POSITION_RATE * lr if position_lr is None else position_lr
    return [{"lr": lr, **each} for each in plain_groups(model, weight_decay=weight_decay, apart=apart, apart_lr=faster)]


def _check_gradients(model: nn.Module) -> None:
    still = [
        name
        for name, layer in attention_layers(model)
        if any(parameter.requires_grad for parameter in _positions(layer))
        and (layer.axis_scores is not None or (layer.regime.is_exact and layer.content is None))
    ]
    if still:
        raise ConversionError(
            f"alpha and centers of {', '.join(still[:10])} are to be trained, and have no gradient: attention there is "
            "exactly one-hot, or goes by learned tables; melt(model) makes it soft, requires_grad_(False) leaves "
            "positions out"
        )


def _positions(layer: SelfAttention) -> list[nn.Parameter]:
    """The parameters of a layer's positions, where they are trained."""
    return [parameter for name, parameter in layer.named_parameters() if name in ("log_alpha", "centers")]
