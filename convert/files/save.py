"""Writes the folder that a conversion is kept in.

    config.json         format version, content, architecture, one entry for each layer, source, versions
    model.safetensors   the converted model's state dict
    report.json         what the conversion did
    report.html         the same as a page for people, where one was given
    model.onnx          the network as a program that runs by itself, where one was given (``export/onnx/``)

Tensors that are one have their numbers under one name; the weights' metadata say which other names they have.
Its content is a network, which an architecture is needed to build, or the attention layers alone, which their
entries describe.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..arguments import as_path
from ..attention.checked import checked_model
from ..attention.layer import SelfAttention
from ..errors import (
    OutputError,
)
from ..model.report import Report
from .architecture import Architecture
from .certified import CertifiedReport
from .checkpoint import Checkpoint
from .config import FORMAT_VERSION, LAYERS_CONTENT, NETWORK_CONTENT, LayerEntry, attention_named
from .layers import Layers
from .shared import aliases, independent
from .writing.atomic import write_folder
from .writing.json_text import as_unicode, check_unicode, json_text
from .writing.ownership import CONFIG, FORMAT, PAGE, PROGRAM, REPORT, WEIGHTS
from .writing.safetensors import write_safetensors

_AROUND = 20  # characters of a text that is refused, which an error shows


def save_converted(
    model: nn.Module,
    folder: str | Path,
    *,
    report: Report | CertifiedReport | None = None,
    architecture: Architecture | None = None,
    source: Checkpoint | None = None,
    page: str | None = None,
    program: Callable[[Path], None] | None = None,
    force: bool = False,
) -> None:
    """Writes a converted model, so that a killed run leaves the old folder or the new one.

    Args:
        model: A model with self-attention layers, perhaps trained further.
        folder: Where to; its parent must exist.
        report: What the conversion did, perhaps with bounds; by default what the model shows now. Bounds that are not
            given are made, for inputs from -1 to 1.
        architecture: How the CNN was built, for those who load the folder.
        source: The checkpoint that the weights came from; the folder must not hold it.
        page: An HTML page about the conversion, to keep with it (``proofs/show/page/write.py`` makes one).
        program: Writes the network as an ONNX file, at the path that it is given.
        force: Replace a folder that conv2attn wrote.

    Raises:
        OutputError: The folder exists or cannot be written, the model has no self-attention layer, state that is not
            a tensor or tensors without values, or the architecture's arguments are not JSON, or a text is not Unicode.
        ConversionError: The model is not an ``nn.Module`` in Python, or the folder is not a path.
    """
    model, folder = checked_model(model), as_path(folder, "folder")
    if not isinstance(report, Report | CertifiedReport | None):
        raise OutputError(f"report must be a Report, as Conversion.report is; got {type(report).__name__}")
    without = [name for name, tensor in model.state_dict().items() if getattr(tensor, "is_meta", False)]
    if without:
        raise OutputError(f"the model has tensors without values, on the meta device: {', '.join(without[:10])}")
    report = Report.of(model) if report is None else report
    converted = report.report if isinstance(report, CertifiedReport) else report
    if not converted.layers:
        raise OutputError("the model has no self-attention layer to keep; convert it first")
    content = LAYERS_CONTENT if isinstance(model, Layers | SelfAttention) else NETWORK_CONTENT
    entries = [LayerEntry.of(layer.names, attention_named(model, layer.name)) for layer in converted.layers]
    kinds = sorted({entry.kind for entry in entries if entry.kind is not None})
    if content == LAYERS_CONTENT and kinds:
        raise OutputError(f"layers alone are kept of PyTorch's own convolutions only; there are {', '.join(kinds)}")
    state = _tensors(model.state_dict() if content == NETWORK_CONTENT else _layers_state(model, converted))
    shared = aliases(state)
    tensors = independent({name: value for name, value in state.items() if name not in shared})
    config = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "content": content,
        "architecture": None if architecture is None else asdict(architecture),
        "layers": [entry.to_json() for entry in entries],
        "tensors": list(state),
        "source": None if source is None else {"file": as_unicode(source.path.name), "sha256": source.sha256},
        "versions": {name: metadata.version(name) for name in ("conv2attn", "torch")},
    }
    certified = report if isinstance(report, CertifiedReport) else CertifiedReport.of(model, report)
    told = certified.to_json()
    texts = {CONFIG: _json(config), REPORT: json_text(told) + "\n"}
    _check_unicode([config, told])
    if page is not None:
        texts[PAGE] = page

    def write(temporary: Path) -> None:
        write_safetensors(tensors, temporary / WEIGHTS, {FORMAT: str(FORMAT_VERSION), **shared})
        for name, text in texts.items():
            (temporary / name).write_text(text, encoding="utf-8")
        if program is not None:
            program(temporary / PROGRAM)

    write_folder(folder, write, force=force, sources=() if source is None else source.files)


def _layers_state(model: nn.Module, report: Report) -> dict[str, Tensor]:
    """The state of the converted layers alone, under the names they have in the model."""
    names = [name for layer in report.layers for name in layer.names]
    states = {name: attention_named(model, name).state_dict() for name in names}
    return {f"{name}.{key}".removeprefix("."): value for name in names for key, value in states[name].items()}


def check_architecture(architecture: Architecture | None) -> None:
    """Refuses an architecture that ``save_converted`` would refuse.

    Raises:
        OutputError: Its arguments are not JSON, or its name or they are no text that could be read again.
    """
    if architecture is not None:
        _json(asdict(architecture))
        _check_unicode(asdict(architecture))


def _json(data: dict[str, Any]) -> str:
    try:
        return json.dumps(data, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise OutputError(f"the conversion cannot be written as JSON: {error}") from error


def _check_unicode(data: object) -> None:
    try:
        check_unicode(data)
    except UnicodeEncodeError as error:
        text = ascii(error.object[max(0, error.start - _AROUND) : error.end + _AROUND])
        raise OutputError(f"the conversion cannot be written: {text} is not text in Unicode") from error


def _tensors(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """A state dict that holds nothing but tensors."""
    odd = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if odd:
        raise OutputError(f"the model has state that is not a tensor and cannot be written: {', '.join(odd[:10])}")
    return dict(state)
