"""The folder that a conversion is kept in.

    config.json         format version, architecture, one entry for each layer, source, versions
    model.safetensors   the converted model's state dict
    report.json         what the conversion did
    report.html         the same as a page for people, where one was given

Nothing in it is code, and reading it runs none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from conv2attn.convert.architecture import build_architecture
from conv2attn.convert.atomic import FORMAT, write_folder
from conv2attn.convert.attention import SelfAttention2d
from conv2attn.convert.checkpoint import Checkpoint, load_into, read_checkpoint
from conv2attn.convert.errors import CheckpointError, OutputError, UnsupportedLayerError
from conv2attn.convert.examples.networks import NETWORKS
from conv2attn.convert.model import convert_model
from conv2attn.convert.report import Report

FORMAT_VERSION = 1
CONFIG, WEIGHTS, REPORT, PAGE = "config.json", "model.safetensors", "report.json", "report.html"
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

    Raises:
        TypeError: A value is of another type.
    """

    names: Sequence[str]
    spec: Mapping[str, Any]
    engine: str
    content_key_dim: int | None
    axis_offsets: Sequence[int] | None

    def __post_init__(self) -> None:
        names = isinstance(self.names, list | tuple) and all(isinstance(name, str) for name in self.names)
        others = isinstance(self.spec, Mapping) and isinstance(self.engine, str)
        dimensions = isinstance(self.content_key_dim, int | None) and isinstance(self.axis_offsets, list | tuple | None)
        if not (names and self.names and others and dimensions):
            raise TypeError(f"a layer is names, a geometry, an engine and dimensions or null; got {self}")

    @classmethod
    def of(cls, names: tuple[str, ...], layer: SelfAttention2d) -> LayerEntry:
        """Describes a layer."""
        key_dim = None if layer.content is None else layer.content.key_weight.shape[1]
        tables = (
            None if layer.axis_scores is None else (layer.axis_scores.rows.shape[1], layer.axis_scores.columns.shape[1])
        )
        return cls(names, layer.spec.to_json(), layer.engine, key_dim, tables)

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
        source: The checkpoint that the weights came from.
        page: An HTML page about the conversion, to keep with it (``proofs/viewer/page.py`` makes one).
        force: Replace a folder that conv2attn wrote.

    Raises:
        OutputError: The folder exists or cannot be written, the model has no self-attention layer or state that
            is not a tensor, or the architecture's arguments are not JSON.
    """
    report = report or Report.of(model)
    if not report.layers:
        raise OutputError("the model has no self-attention layer to keep; convert it first")
    config = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "architecture": None if architecture is None else asdict(architecture),
        "layers": [asdict(LayerEntry.of(layer.names, _layer(model, layer.name))) for layer in report.layers],
        "source": None if source is None else {"file": source.path.name, "sha256": source.sha256},
        "versions": {name: metadata.version(name) for name in ("conv2attn", "torch")},
    }
    texts = {CONFIG: _json(config), REPORT: _json(report.to_json())} | ({} if page is None else {PAGE: page})
    tensors = _independent(model.state_dict())

    def write(temporary: Path) -> None:
        save_file(tensors, temporary / WEIGHTS, metadata={"format": "pt", FORMAT: str(FORMAT_VERSION)})
        for name, text in texts.items():
            (temporary / name).write_text(text, encoding="utf-8")

    write_folder(Path(folder), write, force=force)


def load_converted(folder: str | Path, *, architecture: nn.Module | Architecture | None = None) -> nn.Module:
    """Reads a converted model.

    Args:
        folder: What ``save_converted`` wrote.
        architecture: The CNN's architecture: a new network, or how to build one. The folder may name one, but
            building it runs code, so it is only built from there for the project's own example networks.

    Returns:
        The converted model, in eval mode, with the weights, dtypes and engines that were saved.

    Raises:
        CheckpointError: The folder is not a converted model, or does not fit the architecture.
        ArchitectureError: The architecture cannot be built.
    """
    config = _read_config(Path(folder))
    checkpoint = read_checkpoint(Path(folder) / WEIGHTS)
    network = architecture if isinstance(architecture, nn.Module) else _architecture(config, architecture).build()
    entries = {name: entry for entry in config.layers for name in entry.names}
    try:
        model, report = convert_model(
            network,
            filter_fn=lambda _, name: name in entries,
            inplace=network is not architecture,
            skip_unsupported=True,
        )
    except UnsupportedLayerError as error:
        raise CheckpointError(f"{folder} does not fit the architecture: {error}") from error
    for layer in report.layers:
        entries[layer.name].configure(_layer(model, layer.name), checkpoint.state_dict)
    lacking = entries.keys() - {name for layer in report.layers for name in layer.names}
    if lacking:
        raise CheckpointError(
            f"{folder} holds attention layers that the architecture lacks: {', '.join(sorted(lacking))}"
        )
    _match_dtypes(model, checkpoint.state_dict)
    load_into(model, checkpoint)
    return model.eval()


@dataclass(frozen=True)
class _Config:
    """What is read of a config.json."""

    architecture: Architecture | None
    layers: tuple[LayerEntry, ...]


def _read_config(folder: Path) -> _Config:
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(
            f"{folder} is not a converted model: {CONFIG} cannot be read ({error.strerror})"
        ) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise CheckpointError(f"{path} does not describe a model that conv2attn converted")
    if config.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {config.get('format_version')}; this version reads {FORMAT_VERSION}"
        )
    try:
        recorded = config["architecture"]
        architecture = None if recorded is None else Architecture(**recorded)
        return _Config(architecture, tuple(LayerEntry(**entry) for entry in config["layers"]))
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is malformed: {error}") from error


def _architecture(config: _Config, given: Architecture | None) -> Architecture:
    if given is not None:
        return given
    if config.architecture is None:
        raise CheckpointError("the folder names no architecture; pass architecture=")
    if config.architecture.spec not in OWN_ARCHITECTURES:
        raise CheckpointError(
            f"the folder names the architecture {config.architecture.spec}, but building it would run code that a "
            "file chose; pass architecture= yourself"
        )
    return config.architecture


def _layer(model: nn.Module, name: str) -> SelfAttention2d:
    layer = model.get_submodule(name)
    if not isinstance(layer, SelfAttention2d):
        raise CheckpointError(f"{name} is no attention layer")
    return layer


def _json(data: dict[str, Any]) -> str:
    try:
        return json.dumps(data, indent=2) + "\n"
    except (TypeError, ValueError) as error:
        raise OutputError(f"the conversion cannot be written as JSON: {error}") from error


def _independent(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a state dict on the CPU, contiguous, none sharing memory, as safetensors wants them."""
    odd = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if odd:
        raise OutputError(f"the model has state that is not a tensor and cannot be written: {', '.join(odd[:10])}")
    seen: set[int] = set()
    tensors = {}
    for name, value in state.items():
        tensor = value.detach().cpu().contiguous()
        if tensor.untyped_storage().data_ptr() in seen:
            tensor = tensor.clone()
        seen.add(tensor.untyped_storage().data_ptr())
        tensors[name] = tensor
    return tensors


def _match_dtypes(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Gives each floating-point tensor of the model the precision it was saved with."""
    for name, tensor in model.state_dict(keep_vars=True).items():
        if name in saved and tensor.is_floating_point() and saved[name].is_floating_point():
            tensor.data = tensor.data.to(saved[name].dtype)
