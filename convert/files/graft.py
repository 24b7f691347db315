"""Puts converted layers into a network in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import nn

from ..arguments import as_path
from ..attention.checked import changeable_model
from ..attention.layer import SelfAttention
from ..attention.reader import geometry
from ..errors import OptionError, Problem, UnsupportedLayerError, listed
from ..model.convert import convert_model, is_convolution, plan_conversion
from ..model.report import LayerRecord
from ..names import names_by_module
from ..spec import Convolution
from .attention import attention_named, configure, state_key
from .checkpoint import Opening
from .folder import LAYERS_CONTENT
from .open import open_conversion


def graft(
    model: nn.Module, folder: str | Path, *, names: Mapping[str, str] | None = None, inplace: bool = False
) -> nn.Module:
    """Puts the layers of a folder of layers alone into a network, each in the place of the convolution of its name.

    Geometries and dtypes must be those of the network's convolutions; values are the folder's, mode, device,
    requires_grad, hooks and sharing the network's. Layers that the folder lacks stay as they are. A layer computes what
    the file that it came from says: where an exporter folded a batch normalisation into its weights (``report.json``
    notes it), the network must not have that any more.

    Args:
        model: The network; a root that is itself a convolution is replaced as well.
        folder: A folder of layers without their network, as ``save_converted`` writes it.
        names: The network's names of layers, by those in the folder, where they differ.
        inplace: Change the model instead of a copy. Use the returned model all the same: the root may be new.

    Returns:
        The network with the layers.

    Raises:
        UnsupportedLayerError: Layers do not fit into the network, all of them with their reasons; it is unchanged.
        CheckpointError: The folder is not a converted model, or damaged.
        OptionError: The folder holds a network, or ``names`` names a layer that it lacks, or one place twice.
        ConversionError: The model is not an ``nn.Module`` in Python, cannot be copied, or is wrapped for training on
            several devices.
    """
    places = _places(as_path(folder, "folder"), names or {})
    problems = list(_misfits(changeable_model(model), places))
    if problems:
        count = "1 layer does" if len(problems) == 1 else f"{len(problems)} layers do"
        raise UnsupportedLayerError(f"{count} not fit into the network: {'; '.join(map(str, problems))}", problems)
    grafted = convert_model(model, filter_fn=lambda _, name: name in places, inplace=inplace).model
    for name, layer in places.items():
        saved = {state_key(name, key): value for key, value in layer.state_dict().items()}
        placed = attention_named(grafted, name)
        configure(LayerRecord.of((name,), layer), placed, saved)
        placed.load_state_dict(layer.state_dict())
    return grafted


def _places(folder: Path, names: Mapping[str, str]) -> dict[str, SelfAttention]:
    """The layers of a folder, by their names in the network."""
    network = open_conversion(folder, Opening())
    if network.content != LAYERS_CONTENT:
        raise OptionError(f"{folder} holds a network; load_converted(folder, architecture=...) gives all of it")
    stored = {name: layer for record, layer in network.stored_layers() for name in record.names}
    if unknown := names.keys() - stored.keys():
        raise OptionError(f"names must be of layers in {folder}, which lacks {listed(sorted(map(repr, unknown)))}")
    places: dict[str, SelfAttention] = {}
    for name, layer in stored.items():
        place = names.get(name, name)
        if place in places:
            raise OptionError(f"names gives two layers of {folder} the place {place!r}")
        places[place] = layer
    return places


def _misfits(model: nn.Module, places: Mapping[str, SelfAttention]) -> Iterator[Problem]:
    """Why layers do not fit into the places of a network, of each place once."""
    modules = dict(model.named_modules(remove_duplicate=False))
    plan = plan_conversion(model, filter_fn=lambda _, name: name in places)
    unsupported = {problem.name: problem.reason for problem in plan.unsupported}
    first_names = {name: group[0] for group in names_by_module(model, is_convolution) for name in group}
    for name, layer in places.items():
        module, first = modules.get(name), first_names.get(name, name)
        if module is None:
            reason = "the network has no module of this name"
        elif isinstance(module, SelfAttention):
            reason = "it is attention already; restore_model gives the network's convolutions back"
        elif first in unsupported:
            reason = unsupported[first]
        elif not isinstance(module, Convolution):
            reason = f"it is {type(module).__name__} there, not a convolution"
        elif places[first] is not layer:
            reason = f"it is one with {first!r} in the network, and another layer in the folder"
        elif (spec := geometry(module)) != layer.spec:
            theirs, ours = (f"{each}, {'with' if each.bias else 'without'} bias" for each in (spec, layer.spec))
            reason = f"it is {theirs} in the network; {ours} in the folder"
        elif (dtype := module.weight.dtype) != layer.weight.dtype:
            reason = f"its weights are {dtype} in the network, {layer.weight.dtype} in the folder"
        else:
            continue
        yield Problem(name, reason)
