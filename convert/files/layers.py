"""The convolutions that a file describes, as a tree of modules by their names.

Where no code for a network is given, this tree stands for it: it has the network's convolutions under their names,
computes nothing as a whole, and is converted, written and loaded like any network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from torch import Tensor, nn

from ..attention.supported import ForeignConvolution
from ..errors import CheckpointError, ConversionError
from ..padded import convolution as new_convolution
from ..padded import has_class
from ..spec import Convolution, ConvSpec
from .readers.described import DescribedConvolution

_MAX_DEPTH = 64  # modules in modules


class Layers(nn.Module):
    """Layers by name, each to be called by itself: ``layers.get_submodule("stem.conv")(x)``."""

    def forward(self, x: Tensor) -> Tensor:
        """Refuses: how the layers are connected is not known."""
        raise ConversionError(
            "only the layers were converted, since the file does not say how they are connected; the architecture "
            "makes a network of them"
        )


def layer_tree(convolutions: Mapping[str, DescribedConvolution], tensors: Mapping[str, Tensor]) -> nn.Module:
    """Builds the convolutions, over the tensors that they are given.

    Args:
        convolutions: By name; "" is a convolution that is the whole network.
        tensors: Their weights and biases, by key.

    Returns:
        A ``Layers``, or the convolution whose name is "". Names of one geometry over the same tensors share a module.

    Raises:
        CheckpointError: A name cannot be a module's, or lies within another layer; a tensor is missing or does not
            have the shape of the geometry.
    """
    modules: dict[str, nn.Module] = {}
    known: dict[tuple[object, ...], nn.Module] = {}
    for name, stored in convolutions.items():
        parts = (id(tensors.get(stored.weight)), None if stored.bias is None else id(tensors.get(stored.bias)))
        key = (stored.spec, stored.problem, stored.note, *parts)
        if key not in known or stored.spec is None:
            known[key] = layer_module(name, stored, tensors)
        modules[name] = known[key]
    if "" in modules:
        if len(modules) > 1:
            raise CheckpointError("one of several layers has no name")
        return modules[""]
    root = Layers()
    for name, module in modules.items():
        _add(root, name, module)
    return root


def convolution(spec: ConvSpec, weight: Tensor, bias: Tensor | None) -> Convolution:
    """A convolution with these parameters, which are not copied.

    Raises:
        CheckpointError: The parameters do not have the shapes of the geometry.
    """
    is_bias = (bias is None) != spec.bias and (bias is None or bias.shape == (spec.out_channels,))
    if weight.shape != spec.weight_shape or not is_bias:
        shapes = [list(weight.shape), None if bias is None else list(bias.shape)]
        raise CheckpointError(f"weight and bias have the shapes {shapes}, wanted those of the geometry {spec}")
    if not has_class(spec):
        raise CheckpointError(f"no class of convolutions has the padding of {spec}")
    conv = new_convolution(spec, device="meta")
    conv.weight = nn.Parameter(weight, requires_grad=weight.is_floating_point())
    if bias is not None:
        conv.bias = nn.Parameter(bias, requires_grad=bias.is_floating_point())
    return conv.eval()


def layer_module(name: str, stored: DescribedConvolution, tensors: Mapping[str, Tensor]) -> Convolution:
    """A convolution over the tensors that it is given; a stand-in where it cannot be converted.

    Raises:
        CheckpointError: A tensor is missing or does not have the shape of the geometry.
    """
    if stored.spec is None:
        return cast(Convolution, ForeignConvolution(stored.problem or "its geometry is not known"))
    if stored.weight not in tensors or (stored.bias is not None and stored.bias not in tensors):
        raise CheckpointError(f"the weights of the layer {name!r} are missing")
    bias = None if stored.bias is None else tensors[stored.bias]
    try:
        return convolution(stored.spec, tensors[stored.weight], bias)
    except CheckpointError as error:
        raise CheckpointError(f"layer {name!r}: {error}") from error


def _add(root: nn.Module, name: str, module: nn.Module) -> None:
    """Puts a module under its dotted name, with a ``Layers`` for each part before the last."""
    *parents, last = name.split(".")
    if len(parents) >= _MAX_DEPTH:
        raise CheckpointError(f"the layer {name[:100]!r} lies more than {_MAX_DEPTH} modules deep")
    place = root
    try:
        for part in parents:
            if part not in place._modules:
                place.add_module(part, Layers())
            place = place.get_submodule(part)
            if not isinstance(place, Layers):
                raise CheckpointError(f"the layer {name[:100]!r} lies within another layer")
        if last in place._modules:
            raise CheckpointError(f"the layer {name[:100]!r} holds other layers")
        place.add_module(last, module)
    except (KeyError, AttributeError) as error:
        raise CheckpointError(f"the layer {name[:100]!r} has a name that no module can have") from error
