"""The folder that a conversion is kept in.

    config.json         format version, architecture, one entry for each layer, source, versions
    model.safetensors   the converted model's state dict
    report.json         what the conversion did

Nothing in it is code, and reading it runs none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from conv2attn.convert.architecture import build_architecture
from conv2attn.convert.atomic import write_folder
from conv2attn.convert.attention import SelfAttention2d
from conv2attn.convert.checkpoint import Checkpoint, load_into, read_checkpoint
from conv2attn.convert.errors import CheckpointError, OutputError
from conv2attn.convert.model import convert_model
from conv2attn.convert.report import Report

FORMAT_VERSION = 1
CONFIG, WEIGHTS, REPORT = "config.json", "model.safetensors", "report.json"
OWN_ARCHITECTURES = "conv2attn.convert.examples.networks:"


@dataclass(frozen=True)
class Architecture:
    """How a network is built: the factory, as ``build_architecture`` takes it, and its arguments."""

    spec: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def build(self) -> nn.Module:
        """Builds the network, with the weights its factory gives it."""
        return build_architecture(self.spec, self.arguments)


def save_converted(
    model: nn.Module,
    folder: str | Path,
    *,
    report: Report | None = None,
    architecture: Architecture | None = None,
    source: Checkpoint | None = None,
    force: bool = False,
) -> None:
    """Writes a converted model, so that a killed run leaves the old folder or the new one.

    Args:
        model: A model with self-attention layers, perhaps trained further.
        folder: Where to; its parent must exist.
        report: What the conversion did; by default what the model shows now.
        architecture: How the CNN was built, for those who load the folder.
        source: The checkpoint that the weights came from.
        force: Replace a folder that conv2attn wrote.

    Raises:
        OutputError: The folder exists or cannot be written, or the model has state that is not a tensor.
    """
    report = report or Report.of(model)
    config = {
        "format": "conv2attn",
        "format_version": FORMAT_VERSION,
        "architecture": None if architecture is None else asdict(architecture),
        "layers": [layer_config(layer.names, _layer(model, layer.name)) for layer in report.layers],
        "source": None if source is None else {"file": source.path.name, "sha256": source.sha256},
        "versions": {name: metadata.version(name) for name in ("conv2attn", "torch")},
    }
    tensors = _independent(model.state_dict())

    def write(temporary: Path) -> None:
        save_file(tensors, temporary / WEIGHTS, metadata={"format": "pt", "conv2attn": str(FORMAT_VERSION)})
        for name, data in ((CONFIG, config), (REPORT, report.to_json())):
            (temporary / name).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")

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
    folder = Path(folder)
    config = _read_config(folder)
    network = architecture if isinstance(architecture, nn.Module) else _architecture(config, architecture).build()
    entries = {name: entry for entry in config["layers"] for name in entry["names"]}
    model, report = convert_model(network, filter_fn=lambda _, name: name in entries, skip_unsupported=True)
    for layer in report.layers:
        _configure(_layer(model, layer.name), entries.pop(layer.name))
        for name in layer.names:
            entries.pop(name, None)
    if entries:
        raise CheckpointError(f"{folder} holds attention layers that the architecture lacks: {', '.join(entries)}")
    checkpoint = read_checkpoint(folder / WEIGHTS)
    _match_dtypes(model, checkpoint.state_dict)
    load_into(model, checkpoint)
    return model.eval()


def layer_config(names: tuple[str, ...], layer: SelfAttention2d) -> dict[str, Any]:
    """One layer's entry in config.json: what the state dict does not hold."""
    return {
        "names": list(names),
        "spec": layer.spec.to_json(),
        "engine": layer.engine,
        "content_key_dim": None if layer.content is None else layer.content.key_weight.shape[1],
    }


def _configure(layer: SelfAttention2d, entry: dict[str, Any]) -> None:
    """Makes a newly converted layer what an entry of config.json says."""
    if layer.spec.to_json() != entry["spec"]:
        raise CheckpointError(
            f"layer {entry['names'][0]} is {entry['spec']}, in the architecture {layer.spec.to_json()}"
        )
    layer.engine = entry["engine"]
    if entry["content_key_dim"] is not None:
        layer.add_content(entry["content_key_dim"])


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(
            f"{folder} is not a converted model: {CONFIG} cannot be read ({error.strerror})"
        ) from error
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON") from error
    if not isinstance(config, dict) or config.get("format") != "conv2attn":
        raise CheckpointError(f"{path} does not describe a model that conv2attn converted")
    if config.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {config.get('format_version')}; this version reads {FORMAT_VERSION}"
        )
    return config


def _architecture(config: dict[str, Any], given: Architecture | None) -> Architecture:
    if given is not None:
        return given
    recorded = config["architecture"]
    if recorded is None:
        raise CheckpointError("the folder names no architecture; pass architecture=")
    if not recorded["spec"].startswith(OWN_ARCHITECTURES):
        raise CheckpointError(
            f"the folder names the architecture {recorded['spec']}, but building it would run code that a file "
            "chose; pass architecture= yourself"
        )
    return Architecture(**recorded)


def _layer(model: nn.Module, name: str) -> SelfAttention2d:
    layer = model.get_submodule(name)
    if not isinstance(layer, SelfAttention2d):
        raise CheckpointError(f"{name} is no attention layer")
    return layer


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
