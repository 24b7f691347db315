"""What a ``config.json`` says: the content, the architecture, and an entry for each layer; nothing in it is code."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..attention.computed import is_computed
from ..attention.layer import SelfAttention
from ..attention.read import OfSubclass
from ..errors import CheckpointError, GeometryError
from ..heads.axis_scores import AXES
from ..spec import CONVOLUTIONS, ConvSpec
from .architecture import Architecture
from .checkpoint import Checkpoint, charge_heads, charge_modules
from .readers.common.beside import path_in
from .readers.common.geometry import StoredConvolution
from .readers.common.limits import Budget, read_json
from .writing.ownership import CONFIG, FORMAT, is_ours

# Version 1 had no "content", which was always a network; before 3, queries sat elsewhere: ``migration.py``.
FORMAT_VERSION = 3
_LAYER, _LAYER_STEPS = 8000, 1000  # bytes and steps that an attention layer takes beside its convolution
NETWORK_CONTENT, LAYERS_CONTENT = "network", "layers"
# The project's own examples, which no file chooses the code of.
OWN_ARCHITECTURES = tuple(
    f"conv2attn.convert.examples.networks:{name}" for name in ("plain_cnn", "residual_cnn", "mobile_cnn")
)


@dataclass(frozen=True)
class LayerEntry:
    """One layer's entry in config.json: what the state dict does not hold.

    Attributes:
        names: Fully qualified names of the layer.
        spec: Its geometry, as ``ConvSpec.to_json`` writes it.
        engine: How it computes.
        content_key_dim: Dimension of its content terms, or None if it has none.
        axis_offsets: Offsets of its learned score tables along each axis, or None if its scores are quadratic.
        alpha_follows_dtype: As ``SelfAttention.alpha_follows_dtype``.
        content_gated: Whether they are behind a gate.
        kind: What the convolution was where it is not a plain one of PyTorch's, so that only the architecture makes it.
        trains_positions: As ``SelfAttention.trains_positions``.

    Raises:
        TypeError: A value is of another type.
        GeometryError: The geometry describes no convolution.
    """

    names: Sequence[str]
    spec: Mapping[str, Any]
    engine: str
    content_key_dim: int | None
    axis_offsets: Sequence[int] | None
    alpha_follows_dtype: bool = True
    kind: str | None = None
    content_gated: bool = False
    trains_positions: bool = False

    def __post_init__(self) -> None:
        names = isinstance(self.names, list | tuple) and all(isinstance(name, str) for name in self.names)
        others = isinstance(self.spec, Mapping) and isinstance(self.engine, str)
        others = others and isinstance(self.kind, str | None)
        flags = self.alpha_follows_dtype, self.content_gated, self.trains_positions
        others = others and all(isinstance(flag, bool) for flag in flags)
        dimensions = isinstance(self.content_key_dim, int | None) and isinstance(self.axis_offsets, list | tuple | None)
        if not (names and self.names and others and dimensions):
            raise TypeError(f"a layer is names, a geometry, an engine and dimensions or null; got {self}")
        ConvSpec.from_json(dict(self.spec))

    @classmethod
    def of(cls, names: tuple[str, ...], layer: SelfAttention) -> LayerEntry:
        """Describes a layer."""
        key_dim = None if layer.content is None else layer.content.key_weight.shape[1]
        tables = None if layer.axis_scores is None else tuple(table.shape[1] for table in layer.axis_scores.tables)
        kind = _kind(layer)
        gated = layer.content is not None and layer.content.gate is not None
        follows, trains = layer.alpha_follows_dtype, layer.trains_positions
        return cls(names, layer.spec.to_json(), layer.engine, key_dim, tables, follows, kind, gated, trains)

    def to_json(self) -> dict[str, Any]:
        """The entry as plain data; what few layers have is left out of the others'."""
        rare = "kind", "content_gated", "trains_positions"
        return {key: value for key, value in asdict(self).items() if value or key not in rare}

    def stored(self, name: str, checkpoint: Checkpoint) -> StoredConvolution:
        """The convolution that the layer was made from, as the checkpoint stores it under one of the layer's names."""
        prefix = f"{name}." if name else ""
        bias = f"{prefix}bias" if f"{prefix}bias" in checkpoint.state_dict else None
        return StoredConvolution(f"{prefix}weight", bias, ConvSpec.from_json(dict(self.spec)))

    def configure(self, layer: SelfAttention, saved: Mapping[str, Tensor]) -> None:
        """Makes a newly converted layer what the entry says.

        Args:
            layer: The layer.
            saved: The weights it will get, by name.

        Raises:
            CheckpointError: The layer, or the weights of its content terms, are not what the entry says.
            EngineError: There is no such engine.
        """
        name = self.names[0]
        if layer.spec.to_json() != self.spec:
            raise CheckpointError(f"layer {name} is {self.spec}, in the architecture {layer.spec.to_json()}")
        made = _kind(layer)
        if self.kind != made:
            own, theirs = (kind or "PyTorch's own class" for kind in (self.kind, made))
            raise CheckpointError(f"layer {name} was of {own}, in the architecture it is of {theirs}")
        layer.engine = self.engine
        layer.alpha_follows_dtype = self.alpha_follows_dtype
        if self.trains_positions:
            layer.train_positions()
        if self.content_key_dim is not None:
            key_weight = saved.get(f"{name}.content.key_weight".removeprefix("."))
            shape = (layer.num_heads, self.content_key_dim, layer.in_channels)
            if key_weight is None or key_weight.shape != shape:
                raise CheckpointError(f"layer {name} has no content terms of dimension {self.content_key_dim}")
            layer.add_content(self.content_key_dim, gated=self.content_gated)
        if self.axis_offsets is not None:
            names = AXES[-layer.spec.axes :]
            tables = [saved.get(f"{name}.axis_scores.{axis}".removeprefix(".")) for axis in names]
            found = [table for table in tables if table is not None and table.ndim]
            if len(found) < len(tables) or [table.shape[-1] for table in found] != list(self.axis_offsets):
                raise CheckpointError(f"layer {name} has no score tables of {self.axis_offsets} offsets")
            layer.set_axis_scores(*found)


@dataclass(frozen=True)
class Config:
    """What is read of a config.json.

    Attributes:
        content: What the folder holds.
        architecture: How the network is built, or None if that is not known.
        layers: Its attention layers.
        tensors: Keys of its tensors in the order of the model's state dict, which no safetensors file keeps; None where
            that is not known.

    Raises:
        TypeError: The keys are no list of texts.
    """

    content: str
    architecture: Architecture | None
    layers: tuple[LayerEntry, ...]
    tensors: Sequence[str] | None = None

    def __post_init__(self) -> None:
        listed = self.tensors is None or isinstance(self.tensors, list | tuple)
        if not (listed and all(isinstance(key, str) for key in self.tensors or ())):
            raise TypeError("the tensors are no list of texts")

    @property
    def own_architecture(self) -> Architecture | None:
        """The architecture, if it is one of the project's examples, whose code no file chooses; else None."""
        known = self.architecture is not None and self.architecture.spec in OWN_ARCHITECTURES
        return self.architecture if known else None


def is_converted(folder: Path) -> bool:
    """Whether a folder is one that ``save_converted`` wrote, of any version.

    Raises:
        CheckpointError: What would tell is a link that leaves the folder, or may not be read.
    """
    try:
        if not (folder / CONFIG).is_file():
            return False
    except PermissionError as error:
        raise CheckpointError(f"{folder} is not readable, or lies in a folder that is not") from error
    path = path_in(folder, CONFIG)
    if not os.access(path, os.R_OK):
        raise CheckpointError(f"{path}, which says whether {folder} is a converted model, is not readable")
    return is_ours(path)


def read_config(folder: Path, budget: Budget | None = None) -> tuple[int, Config]:
    """Reads the version and the description of a converted model.

    Args:
        folder: The folder.
        budget: What reading the folder may take; by default it is all of that. Charged for the layers, too.

    Raises:
        CheckpointError: The folder is not a converted model, or was written by a later version.
    """
    path, budget = folder / CONFIG, Budget() if budget is None else budget
    try:
        config = read_json(path_in(folder, CONFIG) if path.exists() else path, budget)
    except OSError as error:
        raise CheckpointError(
            f"{folder} is not a converted model: {CONFIG} cannot be read ({error.strerror})"
        ) from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise CheckpointError(f"{path} does not describe a model that conv2attn converted")
    version = _version(config, path)
    try:
        content = NETWORK_CONTENT if version == 1 else config["content"]
        recorded = config["architecture"]
        architecture = None if recorded is None else Architecture(**recorded)
        budget.spend(memory=_LAYER * len(config["layers"]), steps=_LAYER_STEPS * len(config["layers"]))
        layers = tuple(LayerEntry(**entry) for entry in config["layers"])
        charge_modules((name for entry in layers for name in entry.names), budget)
        charge_heads((ConvSpec.from_json(dict(entry.spec)) for entry in layers for _ in entry.names), budget)
        described = Config(content, architecture, layers, config.get("tensors"))
    except (KeyError, TypeError, GeometryError) as error:
        raise CheckpointError(f"{path} is malformed: {error}") from error
    if content not in (NETWORK_CONTENT, LAYERS_CONTENT):
        raise CheckpointError(
            f"{path} is malformed: its content is {content!r:.100}, not {NETWORK_CONTENT!r} or {LAYERS_CONTENT!r}"
        )
    if not layers:
        raise CheckpointError(f"{path} is malformed: it lists no attention layer")
    return version, described


def _version(config: Mapping[str, Any], path: Path) -> int:
    """The version of the form, if it is one that is read."""
    version, versions = config.get("format_version"), config.get("versions")
    if type(version) is not int or version < 1:
        raise CheckpointError(
            f"{path} has the unknown format version {version!r:.100}; versions are 1 to {FORMAT_VERSION}"
        )
    if version > FORMAT_VERSION:
        writer = versions.get("conv2attn") if isinstance(versions, Mapping) else None
        needed = f"conv2attn {writer:.20}" if isinstance(writer, str) else "a later conv2attn"
        raise CheckpointError(
            f"{path} has format version {version}, which needs {needed}; "
            f"conv2attn {metadata.version('conv2attn')} reads up to {FORMAT_VERSION}"
        )
    return version


def _kind(layer: SelfAttention) -> str | None:
    """What the convolution was where it was not a plain one of PyTorch's, or None."""
    if isinstance(layer, OfSubclass):
        return layer.origin.name
    spec = layer.spec
    return f"parametrised {CONVOLUTIONS[spec.axes, spec.transposed].__name__}" if is_computed(layer) else None


def attention_named(model: nn.Module, name: str) -> SelfAttention:
    """The attention layer of a model that has this name.

    Raises:
        CheckpointError: It is something else.
    """
    layer = model.get_submodule(name)
    if not isinstance(layer, SelfAttention):
        raise CheckpointError(f"{name} is not a self-attention layer; got {type(layer).__name__}")
    return layer
