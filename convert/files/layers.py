"""The convolutions that a file describes, as a tree of modules by their names.

Where no code for a network is given, this tree stands for it: it has the network's convolutions under their names,
computes nothing as a whole, and is converted, written and loaded like any network.

Raises:
    CheckpointError: By the functions here, for a tensor that is missing or does not have the shape of the geometry.
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


class Layers(nn.Module):
    """Layers by name, each to be called by itself: ``layers.get_submodule("stem.conv")(x)``."""

    def forward(self, x: Tensor) -> Tensor:
        """Refuses: how the layers are connected is not known."""
        raise ConversionError(
            "only the layers were converted, since the file does not say how they are connected; the architecture "
            "makes a network of them"
        )


def layer_tree(convolutions: Mapping[str, DescribedConvolution], tensors: Mapping[str, Tensor]) -> nn.Module:
    """Builds the convolutions, by name, over their weights and biases, by key; "" is the name of a whole network.

    Returns:
        A ``Layers``, or the convolution whose name is "". Names of one geometry over the same tensors share a module.

    Raises:
        CheckpointError: No module can have a name.
    """
    modules: dict[str, nn.Module] = {}
    known: dict[tuple[object, ...], nn.Module] = {}
    for name, stored in convolutions.items():
        parts = (id(tensors.get(stored.weight)), None if stored.bias is None else id(tensors.get(stored.bias)))
        key = (stored.spec, stored.problem, stored.note, *parts)
        if key not in known or stored.spec is None:
            known[key] = layer_module(name, stored, tensors)
        modules[name] = known[key]
    if list(modules) == [""]:
        return modules[""]
    root = Layers()
    for name, module in modules.items():
        *parents, last = name.split(".")
        place: nn.Module = root
        try:
            for part in parents:
                if part not in place._modules:
                    place.add_module(part, Layers())
                place = place.get_submodule(part)
            place.add_module(last, module)
        except (KeyError, AttributeError) as error:
            raise CheckpointError(f"the layer {name[:100]!r} has a name that no module can have") from error
    return root


def layer_module(name: str, stored: DescribedConvolution, tensors: Mapping[str, Tensor]) -> Convolution:
    """A convolution over the tensors that it is given; a stand-in where it cannot be converted."""
    if stored.spec is None:
        return cast(Convolution, ForeignConvolution(stored.problem or "its geometry is not known"))
    if stored.weight not in tensors or (stored.bias is not None and stored.bias not in tensors):
        raise CheckpointError(f"the weights of the layer {name!r} are missing")
    weight, bias = tensors[stored.weight], None if stored.bias is None else tensors[stored.bias]
    shapes = [list(weight.shape), None if bias is None else list(bias.shape)]
    if shapes != [list(stored.spec.weight_shape), [stored.spec.out_channels] if stored.spec.bias else None]:
        wanted = f"wanted those of the geometry {stored.spec}"
        raise CheckpointError(f"layer {name!r}: weight and bias have the shapes {shapes}, {wanted}")
    if not has_class(stored.spec):
        raise CheckpointError(f"layer {name!r}: no class of convolutions has the padding of {stored.spec}")
    return convolution(stored.spec, weight, bias)


def convolution(spec: ConvSpec, weight: Tensor, bias: Tensor | None) -> Convolution:
    """A convolution in eval mode with these parameters, which are not copied."""
    conv = new_convolution(spec, device="meta")
    conv.weight = nn.Parameter(weight, requires_grad=weight.is_floating_point())
    if bias is not None:
        conv.bias = nn.Parameter(bias, requires_grad=bias.is_floating_point())
    return conv.eval()
