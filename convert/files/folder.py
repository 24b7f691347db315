"""The folder that a conversion is kept in.

    config.json         format version, content, architecture, one entry for each layer, source, versions
    model.safetensors   the converted model's state dict
    report.json         what the conversion did
    report.html         the same as a page for people, where one was given

Tensors that are one have their numbers under one name; the weights' metadata say which other names they have.
Its content is a network, which an architecture is needed to build, or the attention layers alone, which their
entries describe. Nothing in it is code, and reading it runs none.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from ..arguments import as_path
from ..attention.checked import checked_model
from ..attention.construction import SUPPORTED_DTYPES
from ..attention.layer import SelfAttention2d
from ..errors import (
    ArchitectureError,
    ArchitectureNeededError,
    CheckpointError,
    GeometryError,
    OutputError,
    UnsupportedLayerError,
)
from ..examples.networks import NETWORKS
from ..model.convert import convert_model
from ..model.report import Report
from ..spec import ConvSpec
from .architecture import build_architecture
from .checkpoint import Checkpoint, load_into, read_checkpoint
from .layers import Layers, layer_tree
from .migration import query_under_middle_tap
from .readers.common.beside import path_in
from .readers.common.geometry import StoredConvolution
from .readers.common.limits import MAX_HEADER, parse_json
from .shared import aliases, independent
from .writing.atomic import write_folder
from .writing.json_text import json_text
from .writing.ownership import CONFIG, FORMAT, PAGE, REPORT, WEIGHTS, is_ours

# Version 1 had no "content", which was always a network; before 3, queries sat elsewhere: ``migration.py``.
FORMAT_VERSION = 3
NETWORK_CONTENT, LAYERS_CONTENT = "network", "layers"
OWN_ARCHITECTURES = tuple(f"{factory.__module__}:{factory.__name__}" for factory in NETWORKS.values())


@dataclass(frozen=True)
class Architecture:
    """How a network is built: the factory, as ``build_architecture`` takes it, and its arguments.

    Raises:
        TypeError: The factory is not a string, or the arguments are no mapping.
    """

    spec: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (isinstance(self.spec, str) and isinstance(self.arguments, Mapping)):
            raise TypeError(f"an architecture is a string and a mapping; got {self}")

    def build(self) -> nn.Module:
        """Builds the network, with the weights its factory gives it."""
        return build_architecture(self.spec, self.arguments)


@dataclass(frozen=True)
class LayerEntry:
    """One layer's entry in config.json: what the state dict does not hold.

    Attributes:
        names: Fully qualified names of the layer.
        spec: Its geometry, as ``ConvSpec.to_json`` writes it.
        engine: How it computes.
        content_key_dim: Dimension of its content terms, or None if it has none.
        axis_offsets: Row and column offsets of its learned score tables, or None if its scores are quadratic.
        alpha_follows_dtype: As ``SelfAttention2d.alpha_follows_dtype``.

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

    def __post_init__(self) -> None:
        names = isinstance(self.names, list | tuple) and all(isinstance(name, str) for name in self.names)
        others = isinstance(self.spec, Mapping) and isinstance(self.engine, str)
        others = others and isinstance(self.alpha_follows_dtype, bool)
        dimensions = isinstance(self.content_key_dim, int | None) and isinstance(self.axis_offsets, list | tuple | None)
        if not (names and self.names and others and dimensions):
            raise TypeError(f"a layer is names, a geometry, an engine and dimensions or null; got {self}")
        ConvSpec.from_json(dict(self.spec))

    @classmethod
    def of(cls, names: tuple[str, ...], layer: SelfAttention2d) -> LayerEntry:
        """Describes a layer."""
        key_dim = None if layer.content is None else layer.content.key_weight.shape[1]
        tables = (
            None if layer.axis_scores is None else (layer.axis_scores.rows.shape[1], layer.axis_scores.columns.shape[1])
        )
        return cls(names, layer.spec.to_json(), layer.engine, key_dim, tables, layer.alpha_follows_dtype)

    def stored(self, name: str, checkpoint: Checkpoint) -> StoredConvolution:
        """The convolution that the layer was, by one of its names."""
        prefix = f"{name}." if name else ""
        bias = f"{prefix}bias" if f"{prefix}bias" in checkpoint.state_dict else None
        return StoredConvolution(f"{prefix}weight", bias, ConvSpec.from_json(dict(self.spec)))

    def configure(self, layer: SelfAttention2d, saved: Mapping[str, Tensor]) -> None:
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
        layer.engine = self.engine
        layer.alpha_follows_dtype = self.alpha_follows_dtype
        if self.content_key_dim is not None:
            key_weight = saved.get(f"{name}.content.key_weight".removeprefix("."))
            shape = (layer.num_heads, self.content_key_dim, layer.in_channels)
            if key_weight is None or key_weight.shape != shape:
                raise CheckpointError(f"layer {name} has no content terms of dimension {self.content_key_dim}")
            layer.add_content(self.content_key_dim)
        if self.axis_offsets is not None:
            rows, columns = (saved.get(f"{name}.axis_scores.{axis}".removeprefix(".")) for axis in ("rows", "columns"))
            if rows is None or columns is None or [rows.shape[-1], columns.shape[-1]] != list(self.axis_offsets):
                raise CheckpointError(f"layer {name} has no score tables of {self.axis_offsets} offsets")
            layer.set_axis_scores(rows, columns)


def save_converted(
    model: nn.Module,
    folder: str | Path,
    *,
    report: Report | None = None,
    architecture: Architecture | None = None,
    source: Checkpoint | None = None,
    page: str | None = None,
    force: bool = False,
) -> None:
    """Writes a converted model, so that a killed run leaves the old folder or the new one.

    Args:
        model: A model with self-attention layers, perhaps trained further.
        folder: Where to; its parent must exist.
        report: What the conversion did; by default what the model shows now.
        architecture: How the CNN was built, for those who load the folder.
        source: The checkpoint that the weights came from; the folder must not hold it.
        page: An HTML page about the conversion, to keep with it (``proofs/show/page/write.py`` makes one).
        force: Replace a folder that conv2attn wrote.

    Raises:
        OutputError: The folder exists or cannot be written, the model has no self-attention layer, state that is not
            a tensor or tensors without values, or the architecture's arguments are not JSON.
        ConversionError: The model is not an ``nn.Module`` in Python, or the folder is not a path.
    """
    model, folder = checked_model(model), as_path(folder, "folder")
    if report is not None and not isinstance(report, Report):
        raise OutputError(f"report must be a Report, as Conversion.report is; got {type(report).__name__}")
    without = [name for name, tensor in model.state_dict(keep_vars=True).items() if getattr(tensor, "is_meta", False)]
    if without:
        raise OutputError(f"the model has tensors without values, on the meta device: {', '.join(without[:10])}")
    report = report or Report.of(model)
    if not report.layers:
        raise OutputError("the model has no self-attention layer to keep; convert it first")
    content = LAYERS_CONTENT if isinstance(model, Layers | SelfAttention2d) else NETWORK_CONTENT
    state = _tensors(model.state_dict() if content == NETWORK_CONTENT else _layers_state(model, report))
    shared = aliases(state)
    tensors = independent({name: value for name, value in state.items() if name not in shared})
    config = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "content": content,
        "architecture": None if architecture is None else asdict(architecture),
        "layers": [asdict(LayerEntry.of(layer.names, _layer(model, layer.name))) for layer in report.layers],
        "tensors": list(state),
        "source": None if source is None else {"file": _valid(source.path.name), "sha256": source.sha256},
        "versions": {name: metadata.version(name) for name in ("conv2attn", "torch")},
    }
    texts = {CONFIG: _json(config), REPORT: json_text(report.to_json()) + "\n"} | ({} if page is None else {PAGE: page})

    def write(temporary: Path) -> None:
        write_safetensors(tensors, temporary / WEIGHTS, {FORMAT: str(FORMAT_VERSION), **shared})
        for name, text in texts.items():
            (temporary / name).write_text(text, encoding="utf-8")

    write_folder(folder, write, force=force, sources=() if source is None else source.files)


def load_converted(folder: str | Path, *, architecture: nn.Module | Architecture | None = None) -> nn.Module:
    """Reads a converted model.

    Args:
        folder: What ``save_converted`` wrote.
        architecture: The CNN's architecture: a new network, or how to build one. The folder may name one, but
            building it runs code, so it is only built from there for the project's own example networks. A folder
            of layers alone needs none.

    Returns:
        The converted model, in eval mode, with the weights, dtypes and engines that were saved. Layers alone are a
        module that holds each under its name, ``get_submodule(name)``.

    Raises:
        CheckpointError: The folder is not a converted model, or does not fit the architecture.
        ArchitectureNeededError: No architecture is given, and the folder needs one.
        ArchitectureError: The architecture cannot be built.
    """
    if not isinstance(architecture, nn.Module | Architecture | None):
        raise ArchitectureError(f"architecture must be a network or an Architecture; got {type(architecture).__name__}")
    config, checkpoint = read_folder(as_path(folder, "folder"))
    network = _network(config, checkpoint, architecture)
    model = convert_like(network, config.layers, checkpoint, inplace=network is not architecture)
    match_dtypes(model, checkpoint.state_dict)
    load_into(model, checkpoint)
    return model.eval()


def convert_like(
    network: nn.Module, entries: Sequence[LayerEntry], saved: Checkpoint, *, inplace: bool = False
) -> nn.Module:
    """Converts the layers of a CNN that were attention when it was saved.

    Args:
        network: The CNN; what its weights are does not matter.
        entries: The attention layers.
        saved: The weights that the converted network will get, under the network's names.
        inplace: Change the network instead of a copy.

    Raises:
        CheckpointError: The network lacks one of the layers, or it is another there.
        EngineError: There is no such engine.
    """
    wanted = {name: entry for entry in entries for name in entry.names}
    try:
        model, report = convert_model(
            network, filter_fn=lambda _, name: name in wanted, inplace=inplace, skip_unsupported=True
        )
    except UnsupportedLayerError as error:
        raise CheckpointError(f"{saved.path} does not fit the architecture: {error}") from error
    for layer in report.layers:
        wanted[layer.name].configure(_layer(model, layer.name), saved.state_dict)
    lacking = wanted.keys() - {name for layer in report.layers for name in layer.names}
    if lacking:
        listed = ", ".join(sorted(lacking))
        raise CheckpointError(f"{saved.path} holds attention layers that the architecture lacks: {listed}")
    return model


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
    """Whether a folder is one that ``save_converted`` wrote, of any version."""
    return (folder / CONFIG).is_file() and is_ours(folder / CONFIG)


def read_folder(folder: Path) -> tuple[Config, Checkpoint]:
    """Reads the description and the weights of a converted model.

    Raises:
        CheckpointError: The folder is not a converted model, is damaged, or was written by a later version.
    """
    version, config = _read_config(folder)
    checkpoint = read_checkpoint(path_in(folder, WEIGHTS))
    if checkpoint.metadata.get(FORMAT) != str(version):
        raise CheckpointError(f"{folder} is damaged: {CONFIG} and {WEIGHTS} are not of one version")
    checkpoint = _in_order(checkpoint, config)
    _check_dtypes(config, checkpoint)
    if version < 3:
        state = dict(checkpoint.state_dict)
        for entry in config.layers:
            for name in entry.names:
                query_under_middle_tap(name, ConvSpec.from_json(dict(entry.spec)), state)
        checkpoint = replace(checkpoint, state_dict=state)
    return config, checkpoint


def _in_order(checkpoint: Checkpoint, config: Config) -> Checkpoint:
    """The weights in the order of the model's state dict, where the folder tells it."""
    if config.tensors is None:
        return checkpoint
    state = checkpoint.state_dict
    if state.keys() != set(config.tensors):
        raise CheckpointError(f"{checkpoint.path.parent} is damaged: {CONFIG} lists other tensors than {WEIGHTS} holds")
    return replace(checkpoint, state_dict={key: state[key] for key in config.tensors})


def _check_dtypes(config: Config, checkpoint: Checkpoint) -> None:
    """Refuses layers with weights of a dtype that no layer has, or whose bias is of another than their weight."""
    layers = {name for entry in config.layers for name in entry.names}
    for key, tensor in checkpoint.state_dict.items():
        layer, _, part = key.rpartition(".")
        owners = {layer, layer.rpartition(".")[0]} & layers
        if owners and tensor.dtype not in SUPPORTED_DTYPES:
            raise CheckpointError(
                f"{checkpoint.path} has {key[:100]!r} of {tensor.dtype}, which no attention layer has"
            )
        weight = checkpoint.state_dict.get(f"{key.removesuffix('bias')}weight", tensor)
        if part == "bias" and layer in owners and tensor.dtype != weight.dtype:
            raise CheckpointError(f"{checkpoint.path} has {key[:100]!r} of another dtype than the layer's weight")


def _read_config(folder: Path) -> tuple[int, Config]:
    path = folder / CONFIG
    try:
        with (path_in(folder, CONFIG) if path.exists() else path).open("rb") as file:
            text = file.read(MAX_HEADER + 1)
    except OSError as error:
        raise CheckpointError(
            f"{folder} is not a converted model: {CONFIG} cannot be read ({error.strerror})"
        ) from error
    config = parse_json(text, str(path))
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise CheckpointError(f"{path} does not describe a model that conv2attn converted")
    version = _version(config, path)
    try:
        content = NETWORK_CONTENT if version == 1 else config["content"]
        recorded = config["architecture"]
        architecture = None if recorded is None else Architecture(**recorded)
        layers = tuple(LayerEntry(**entry) for entry in config["layers"])
        described = Config(content, architecture, layers, config.get("tensors"))
    except (KeyError, TypeError, GeometryError) as error:
        raise CheckpointError(f"{path} is malformed: {error}") from error
    if content not in (NETWORK_CONTENT, LAYERS_CONTENT):
        raise CheckpointError(f"{path} is malformed: there is no content {content!r:.100}")
    return version, described


def _version(config: Mapping[str, Any], path: Path) -> int:
    """The version of the form, if it is one that is read."""
    version, versions = config.get("format_version"), config.get("versions")
    if type(version) is not int or version < 1:
        raise CheckpointError(f"{path} has the format version {version!r:.100}, which is none")
    if version > FORMAT_VERSION:
        writer = versions.get("conv2attn") if isinstance(versions, Mapping) else None
        needed = f"conv2attn {writer:.20}" if isinstance(writer, str) else "a later conv2attn"
        raise CheckpointError(
            f"{path} has format version {version}, which needs {needed}; "
            f"conv2attn {metadata.version('conv2attn')} reads up to {FORMAT_VERSION}"
        )
    return version


def _network(config: Config, checkpoint: Checkpoint, given: nn.Module | Architecture | None) -> nn.Module:
    """The CNN to convert: what the caller names, the layers' own tree, or one of the project's examples."""
    if isinstance(given, nn.Module):
        return given
    if given is None and config.content == LAYERS_CONTENT:
        stored = {name: entry.stored(name, checkpoint) for entry in config.layers for name in entry.names}
        return layer_tree(stored, checkpoint.state_dict)
    return _architecture(config, given).build()


def _architecture(config: Config, given: Architecture | None) -> Architecture:
    if given is not None:
        return given
    if config.architecture is None:
        raise ArchitectureNeededError("the folder names no architecture, and holds a network that needs one")
    if config.own_architecture is None:
        raise ArchitectureNeededError(
            f"the folder names the architecture {config.architecture.spec}, but building it would run code that a "
            "file chose; it must be given"
        )
    return config.own_architecture


def _layer(model: nn.Module, name: str) -> SelfAttention2d:
    layer = model.get_submodule(name)
    if not isinstance(layer, SelfAttention2d):
        raise CheckpointError(f"{name} is no attention layer")
    return layer


def write_safetensors(tensors: dict[str, Tensor], path: Path, metadata: Mapping[str, str]) -> None:
    """Writes tensors and texts as safetensors, with the permissions of any new file.

    Raises:
        OSError: The file system failed.
        OutputError: Something else did.
    """
    path.touch()
    permissions = stat.S_IMODE(path.stat().st_mode)  # the library's own file is for its owner alone
    try:
        save_file(tensors, path, metadata={"format": "pt", **metadata})
    except SafetensorError as error:
        found = re.search(r"\(os error (\d+)\)", str(error))
        if found is not None:  # as the file system says it, so that the target is named
            raise OSError(int(found[1]), os.strerror(int(found[1]))) from error
        raise OutputError(f"{path.name} cannot be written: {error}") from error
    path.chmod(permissions)


def _layers_state(model: nn.Module, report: Report) -> dict[str, Tensor]:
    """The state of the converted layers alone, under the names they have in the model."""
    names = [name for layer in report.layers for name in layer.names]
    states = {name: _layer(model, name).state_dict() for name in names}
    return {f"{name}.{key}".removeprefix("."): value for name in names for key, value in states[name].items()}


def _valid(text: str) -> str:
    """A file's name as Unicode, with escapes for bytes that are none."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _json(data: dict[str, Any]) -> str:
    try:
        return json.dumps(data, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise OutputError(f"the conversion cannot be written as JSON: {error}") from error


def _tensors(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """A state dict that holds nothing but tensors."""
    odd = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if odd:
        raise OutputError(f"the model has state that is not a tensor and cannot be written: {', '.join(odd[:10])}")
    return dict(state)


def match_dtypes(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Gives each floating-point tensor of the model the precision it was saved with."""
    for name, tensor in model.state_dict(keep_vars=True).items():
        if name in saved and tensor.is_floating_point() and saved[name].is_floating_point():
            tensor.data = tensor.data.to(saved[name].dtype)
