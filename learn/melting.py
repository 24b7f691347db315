"""From a CNN to attention whose positions train, for studying what they learn.

1. convert the layers that are chosen, if they are not attention yet
2. give each an alpha below the exact regime: one that is given, or one that is certified for a tolerance
3. let alpha and centres train

At step 0 the network's function is the CNN's within its certificate, and every new parameter has a gradient.

In an optimizer's groups positions have a larger rate and no decay. Decay pulls a parameter to 0: for a weight that
means "simpler", for alpha attention without a place, for a centre the query itself.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from ..convert.arguments import as_integer, as_number
from ..convert.certificate.layer import InputRange
from ..convert.certificate.tolerance import alpha_for
from ..convert.errors import ConversionError, OptionError
from ..convert.heads.regime import ONE_HOT_ALPHA
from ..convert.heads.values import POSITION
from ..convert.layer.checked import changeable_model
from ..convert.layer.layer import SelfAttention
from ..convert.network.convert import Filter, convert_model, is_convolution
from ..convert.network.copies import copied
from ..convert.network.modules import modules_of
from .training.recipe import Groups, plain_groups

MELTED_ALPHA = 4.0  # a head keeps 93 % of its attention; docs/melting.md has what that costs, and what others do
INPUT_RANGE = -1.0, 1.0
AT_REST = "attention is exactly one-hot at this alpha, and positions have no gradient: give a smaller alpha"


@torch.inference_mode(False)
def melt(
    model: nn.Module,
    *,
    tolerance: float | None = None,
    alpha: float | None = None,
    last: int | None = None,
    filter_fn: Filter | None = None,
    input_range: InputRange = INPUT_RANGE,
) -> nn.Module:
    """Makes a copy of a CNN that trains as attention.

    Args:
        model: A CNN, or a network that ``convert_model`` made of one.
        tolerance: Each layer gets an alpha (``alpha_for``) certified to keep it so near to its convolution.
        alpha: The alpha of all heads; by default, and without a tolerance, ``MELTED_ALPHA``. From the exact regime on
            the function stays as it is, bit for bit, and positions, which would have no gradient, rest, with a warning.
        last: Melt this many layers, the last ones that see several pixels; by default all layers.
        filter_fn: Called with each layer and its name; False leaves it as it is. Not with ``last``.
        input_range: What a tolerance is certified for: the smallest and largest value of every layer's input.

    Returns:
        The network, in the model's mode; ``parameter_groups`` gives what an optimizer takes.

    Raises:
        ConversionError: By the tolerance attention would be exactly one-hot, and have no gradient; alpha is not
            positive, or both are given; no layer is chosen or one cannot be converted; a layer's scores are learned
            tables.
        OptionError: ``alpha`` and ``tolerance``, or ``last`` and ``filter_fn``, are both given.

    Examples:
        >>> cnn = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU())
        >>> [name for name, _ in c2a.melt(cnn, alpha=4.0).named_parameters()]
        ['0.weight', '0.bias', '0.log_alpha', '0.centers']
    """
    if alpha is not None and tolerance is not None:
        raise OptionError("alpha and tolerance both say how soft attention is; give one of them")
    model = copied(changeable_model(model))
    filter_fn = _chosen(model, last=last, filter_fn=filter_fn)
    if not any(isinstance(module, SelfAttention) for module in model.modules()):
        model = convert_model(model, filter_fn=filter_fn, inplace=True).model
    chosen = [(name, layer) for name, layer in attention_layers(model) if filter_fn is None or filter_fn(layer, name)]
    if not chosen:
        raise ConversionError("nothing would be melted: no attention layer of the model is chosen")
    check = partial(_alpha, alpha=alpha, tolerance=tolerance, input_range=input_range)
    alphas = [check(name, layer) for name, layer in chosen]  # before anything changes
    for (_, layer), value in zip(chosen, alphas, strict=True):
        layer.set_positions(alpha=value)
        if not layer.regime.is_exact:
            layer.train_positions()
    if all(layer.regime.is_exact for _, layer in chosen):
        warnings.warn(AT_REST, stacklevel=2)
    return model


def _chosen(model: nn.Module, *, last: int | None, filter_fn: Filter | None) -> Filter | None:
    """The layers to melt, as a filter; None for all."""
    if last is None:
        return filter_fn
    if filter_fn is not None:
        raise OptionError("last and filter_fn both choose the layers to melt; give one of them")
    seeing: list[str] = []  # layers that look at more than one pixel
    for name, module in model.named_modules():
        if isinstance(module, SelfAttention) or is_convolution(module):
            spec: Any = module.spec if isinstance(module, SelfAttention) else module
            if math.prod(spec.kernel_size) > 1:
                seeing.append(name)
    if len(seeing) < as_integer(last, "last", least=1):
        raise ConversionError(f"last must be at most {len(seeing)}, the layers that see several pixels; got {last}")
    return lambda _, name: name in seeing[-last:]


def attention_layers(model: nn.Module) -> Iterator[tuple[str, SelfAttention]]:
    """The attention layers of a model, a shared one once, with their first names."""
    for names, layer in modules_of(model, SelfAttention).items():
        yield names[0], layer


def _alpha(
    name: str, layer: SelfAttention, alpha: float | None, tolerance: float | None, input_range: InputRange
) -> float:
    if layer.axis_scores is not None:
        raise ConversionError(f"the layer {name!r} has learned tables of scores, which alpha and centers do not enter")
    if tolerance is not None:
        found, largest = alpha_for(tolerance, layer, input_range), ONE_HOT_ALPHA[layer.regime.dtype]
        if found >= largest:
            raise ConversionError(
                f"the tolerance {tolerance:g} needs alpha {found:g} in layer {name!r}; allow more: from alpha "
                f"{largest:g} on attention is exactly one-hot in {layer.regime.dtype}, and positions have no gradient"
            )
        return found
    found = MELTED_ALPHA if alpha is None else as_number(alpha, "alpha")
    if not 0 < found < math.inf:
        raise ConversionError(f"alpha must be positive and finite; got {found:g}")
    return found


POSITION_RATE = 10.0  # times the learning rate: a step of Adam's is about the rate, and positions are in pixels


def parameter_groups(model: nn.Module, lr: float, weight_decay: float, *, spare_lr: float | None = None) -> Groups:
    """Parameter groups for ``torch.optim``: weights that decay; biases and scales; positions; spare heads last.

    Args:
        model: A network, melted, grafted or neither.
        lr: Learning rate; alpha, centres and spare heads' v have ``POSITION_RATE`` times it.
        weight_decay: Of weights of at least two dimensions, content's projections included.
        spare_lr: Learning rate of spare heads; by default ``lr``. Their groups come last, so that those of the CNN are
            the groups that it had before the graft.

    Raises:
        ConversionError: A parameter requires a gradient that is always 0: alpha and centres of attention that is
            exactly one-hot, or in whose place learned tables are.

    Examples:
        >>> model = c2a.melt(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()), alpha=4.0)
        >>> optimizer = torch.optim.AdamW(c2a.parameter_groups(model, lr=1e-3, weight_decay=0.01))
    """
    # a parameter whose gradient is always 0 is no parameter to train
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
    apart = [parameter for _, layer in attention_layers(model) for parameter in _positions(layer)]
    faster = POSITION_RATE * lr
    groups = plain_groups(model, weight_decay=weight_decay, apart=apart, apart_lr=faster)
    spare = {id(p): p for _, layer in attention_layers(model) for p in layer.spare_parameters()}
    for group in groups:
        group["params"] = [each for each in group["params"] if id(each) not in spare]
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad and id(p) in spare}
    places = [p for name, p in trained.items() if name.endswith(POSITION)]
    others = [p for name, p in trained.items() if not name.endswith(POSITION)]
    new: Groups = [
        {"params": [p for p in others if p.ndim > 1], "weight_decay": weight_decay, "lr": spare_lr or lr},
        {"params": [p for p in others if p.ndim <= 1], "weight_decay": 0.0, "lr": spare_lr or lr},
        {"params": places, "weight_decay": 0.0, "lr": faster},
    ]
    return [{"lr": lr, **each} for each in (*groups, *new) if each["params"]]


def _positions(layer: SelfAttention) -> list[nn.Parameter]:
    return [parameter for name, parameter in layer.named_parameters() if name in ("log_alpha", "centers")]
