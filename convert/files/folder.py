"""The folder of a converted network: config.json, model.safetensors, report.json and perhaps report.html, model.onnx.

``config.json`` says what the tensors do not: how the CNN is built, and each attention layer's geometry and other names.
The content is a network, which an architecture is needed to build, or the attention layers alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import as_path
from ..errors import CheckpointError, OutputError, close_names
from ..layer.checked import checked_model, passed
from ..layer.layer import SelfAttention
from ..network.report import LayerRecord, Report
from ..plain import as_unicode, from_plain, json_text, path_in, read_object
from ..tensors import aliases, independent, write_safetensors
from ..write import CONFIG, FORMAT, PAGE, PROGRAM, REPORT, WEIGHTS, is_ours, write_folder
from .architecture import Architecture, with_classes
from .layers import Layers, attention_named, described, state_key
from .preprocessing import Preprocessing
from .readers import digest, read_safetensors, readable
from .state import complete_state, extra_state_of, packed, tensors_of, unpacked
from .weights import Checkpoint

FORMAT_VERSION = 4
NETWORK_CONTENT, LAYERS_CONTENT = "network", "layers"
NETWORK = "network"
"""The folder of a network, in the folder of the run that it came from."""


@dataclass(frozen=True)
class Config:
    """The description in a config.json.

    Attributes:
        content: NETWORK_CONTENT or LAYERS_CONTENT.
        architecture: Recipe of the network, or None if it is unknown.
        layers: Its attention layers.
        tensors: Keys of its tensors in the order of the model's state dict, which no safetensors file keeps.
        preprocessing: Preprocessing in training, or None if it is unknown.
        class_versions: Versions of the classes of its modules, by which they read a state dict, but for those of
            torch.nn and for 1; None in folders that do not tell.
        extra_state: Keys among ``tensors`` of its modules' extra state, which the file has as bytes; None where there
            is none.
    """

    content: str
    architecture: Architecture | None
    layers: tuple[LayerRecord, ...]
    tensors: tuple[str, ...]
    preprocessing: Preprocessing | None = None
    class_versions: dict[str, int] | None = None
    extra_state: tuple[str, ...] | None = None


def converted_in(path: Path) -> Path:
    """The folder of the network that a run of ``melt`` ended with, if the path is that run's; else the path."""
    inner = path / NETWORK
    return inner if inner.is_dir() and not is_ours(path) and is_ours(inner) else path


def read_folder(folder: Path) -> tuple[Config, Checkpoint]:
    """Reads the description and the weights of a converted model, with its layers' convolutions; no code.

    Raises:
        CheckpointError: The folder is not a converted model, is damaged, or is of another version.
    """
    config, path = read_config(folder), folder / CONFIG
    weights = path_in(folder, WEIGHTS)
    if not weights.is_file():
        raise CheckpointError(f"{folder} is damaged: it has no {WEIGHTS}")
    with readable(weights):
        tensors, sha256 = read_safetensors(weights), digest([weights])
    if tensors.keys() != set(config.tensors):
        raise CheckpointError(f"{folder} is damaged: {CONFIG} lists other tensors than {WEIGHTS} holds")
    extra_state = {key: unpacked(key, tensors[key]) for key in config.extra_state or () if key in tensors}
    state = {key: tensors[key] for key in config.tensors if key not in extra_state}
    layers = {name: described(record, name, state) for record in config.layers for name in record.names}
    versions = {name: {"version": version} for name, version in (config.class_versions or {}).items()}
    found = Checkpoint(folder, state, sha256, layers, (path, weights), versions=versions or None)
    return config, replace(found, extra_state=extra_state, order=config.tensors)


def read_config(folder: Path) -> Config:
    """Reads the description of a converted model.

    Raises:
        CheckpointError: As by ``read_folder``.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is a file, not a folder" if folder.exists() else _no_folder(folder))
    path = folder / CONFIG
    said: dict[str, Any] = read_object(path) if path.is_file() else {}
    if said.get("format") != FORMAT:
        raise CheckpointError(f"{folder} is not a converted model: it has no {CONFIG} that conv2attn wrote")
    if said.get("format_version") != FORMAT_VERSION:
        version, own = said.get("format_version"), metadata.version("conv2attn")
        raise CheckpointError(f"{path} has format version {version!r:.100}; conv2attn {own} reads {FORMAT_VERSION}")
    try:
        return from_plain(Config, {each.name: said.get(each.name) for each in fields(Config)})
    except ValueError as error:
        raise CheckpointError(f"{path} is malformed: {error}") from error


def _no_folder(folder: Path) -> str:
    beside = [each.name for each in folder.parent.iterdir()] if folder.parent.is_dir() else []
    return f"there is no folder {folder}{close_names(folder.name, beside)}"


def save_converted(
    model: nn.Module,
    folder: str | Path,
    *,
    report: Report | None = None,
    architecture: Architecture | str | None = None,
    preprocessing: Preprocessing | None = None,
    source: Checkpoint | None = None,
    page: str | None = None,
    program: Callable[[Path], None] | None = None,
    force: bool = False,
) -> None:
    """Writes a converted model, so that a killed run leaves the old folder or the new one.

    Args:
        model: A model with self-attention layers, perhaps trained further.
        folder: Where to; its parent must exist.
        report: The report of the conversion; by default what the model shows now. The folder has certificates, which
            ``conv2attn check`` checks, if it is that of ``certify_report(model, report)``.
        architecture: Recipe of the CNN, for those who load the folder; its name alone (``timm:resnet18``) suffices.
        preprocessing: Preprocessing of the CNN in training, likewise.
        source: The checkpoint that the weights came from; the folder must not hold it.
        page: An HTML page about the conversion, to keep with it (``page/write.py`` makes one).
        program: Writes the network as an ONNX file, at the path that it is given.
        force: Replace a folder that conv2attn wrote.

    Raises:
        OutputError: The folder exists or cannot be written, the model has no self-attention layer or state that is
            neither tensors nor plain data, its class's ``state_dict`` renames or changes what its modules hold, or the
            architecture's arguments are not JSON.
        ConversionError: The model is not an ``nn.Module`` in Python, or the folder is not a path.

    Examples:
        >>> cnn = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU())
        >>> c2a.save_converted(c2a.convert_model(cnn).model, "attention")
        >>> model = c2a.load_converted("attention", architecture=cnn)
    """
    # check the arguments
    model, folder = checked_model(model), as_path(folder, "folder")
    architecture = with_classes(architecture, model) if isinstance(architecture, str) else architecture
    if not isinstance(architecture, Architecture | None):
        kind = architecture if isinstance(architecture, type) else type(architecture)
        got = f"the class {kind.__name__}" if kind is architecture else passed(architecture)
        raise OutputError(
            f"architecture must be a name, such as 'timm:resnet18' or 'FILE.py:{kind.__name__}'; got {got}"
        )
    if not isinstance(report, Report | None):
        raise OutputError(f"report must be a Report, as Conversion.report is; got {type(report).__name__}")
    report = Report.of(model) if report is None else report
    if not report.layers:
        raise OutputError("the model has no self-attention layer to keep: convert it first, convert_model(model)")
    # all contents of the folder, then the folder
    config, state = _described(model, report, architecture, preprocessing, source)
    bytes_of = {key: packed(key, value) for key, value in extra_state_of(state).items()}
    shared = aliases(tensors_of(state))
    written = json.loads(json_text(report.to_json()))  # as it will be read
    written["sha256"] = checksum(written, json.loads(_json(config)), tensors_of(state))
    texts = {CONFIG: _json(config), REPORT: json_text(written) + "\n"} | ({} if page is None else {PAGE: page})
    tensors = independent({name: value for name, value in {**state, **bytes_of}.items() if name not in shared})

    def write(temporary: Path) -> None:
        write_safetensors(tensors, temporary / WEIGHTS, {FORMAT: str(FORMAT_VERSION), **shared})
        for name, text in texts.items():
            (temporary / name).write_text(text, encoding="utf-8")
        if program is not None:
            program(temporary / PROGRAM)

    write_folder(folder, write, force=force, sources=() if source is None else source.files)


def _described(
    model: nn.Module,
    report: Report,
    architecture: Architecture | None,
    preprocessing: Preprocessing | None,
    source: Checkpoint | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    records = [LayerRecord.of(layer.names, attention_named(model, layer.name)) for layer in report.layers]
    is_part = isinstance(model, Layers | SelfAttention)
    kinds = sorted({record.kind for record in records if record.kind is not None})
    if is_part and kinds:
        raise OutputError(
            f"only layers of PyTorch's own convolutions can be saved without a network; got {', '.join(kinds)}"
        )
    layers = {name: attention_named(model, name).state_dict() for record in records for name in record.names}
    own = {state_key(name, key): value for name, state in layers.items() for key, value in state.items()}
    state = _with_values(own) if is_part else complete_state(model)
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "content": LAYERS_CONTENT if is_part else NETWORK_CONTENT,
        "architecture": None if architecture is None else asdict(architecture.resolved()),
        "preprocessing": None if preprocessing is None else preprocessing.to_json(),
        "layers": [record.to_json() for record in records],
        "tensors": list(state),
        "class_versions": {} if is_part else _class_versions(model),
        **({"extra_state": list(extra)} if (extra := extra_state_of(state)) else {}),
        "source": None if source is None else {"file": as_unicode(source.path.name), "sha256": source.sha256},
        "versions": {name: metadata.version(name) for name in ("conv2attn", "torch")},
    }, state


def _class_versions(model: nn.Module) -> dict[str, int]:
    """The versions of the classes of a network's modules, but for those of torch.nn and for 1."""
    own = ((name, each) for name, each in model.named_modules() if not type(each).__module__.startswith("torch.nn."))
    versions = ((name, getattr(each, "_version", 1)) for name, each in own)
    return {name: version for name, version in versions if isinstance(version, int) and version != 1}


def _json(data: Mapping[str, Any]) -> str:
    try:
        return json.dumps(data, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise OutputError(f"the conversion cannot be written as JSON: {error}") from error


def _with_values(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    if empty := [name for name, value in state.items() if value.is_meta]:
        raise OutputError(f"the model has tensors without values, on the meta device: {', '.join(empty[:10])}")
    return dict(state)


_UNCHECKED = ("attention", "comparison", "network", "sha256", "version")
_UNCHECKED_OF_LAYERS = ("engine", "literal")


def checksum(report: Mapping[str, Any], config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """A SHA-256 over report, config and tensors of a folder, so that a change of what they say of layers can be seen.

    It is no signature: whoever changes a folder on purpose can write a new one. It leaves out what nothing checks:
    engines, versions, measurements, and the bound of the whole network.
    """
    said = {key: value for key, value in report.items() if key not in _UNCHECKED}
    if isinstance(said.get("layers"), list):
        said["layers"] = [_without(layer, _UNCHECKED_OF_LAYERS) for layer in said["layers"]]
    text = json.dumps([said, _without(config, ("versions",))], sort_keys=True)
    found = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        found.update(f"\0{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode("utf-8", "surrogatepass"))
        found.update(tensor.flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def _without(data: Any, names: tuple[str, ...]) -> Any:
    return {key: value for key, value in data.items() if key not in names} if isinstance(data, Mapping) else data
