"""Folders as a conversion writes them, whose description asks for much, or for what their weights do not hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import nn

from conv2attn.convert import convert_model, save_converted
from conv2attn.convert.files.config import FORMAT_VERSION
from conv2attn.convert.files.tensors import write_safetensors


def layers_folder(folder: Path, entries: Iterable[Sequence[str]]) -> None:
    """A folder of layers alone, each the same 1x1 convolution; all share their tensors.

    Args:
        folder: Where to.
        entries: The names of each layer.
    """
    layer = convert_model(nn.Conv2d(1, 1, 1, bias=False)).model
    save_converted(layer, folder)
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    entries = list(entries)
    own = config["layers"][0]
    config["layers"] = [{**own, "names": list(names)} for names in entries]
    del config["tensors"]
    kept, *others = [name for names in entries for name in names]
    tensors = {f"{kept}.{key}": value for key, value in layer.state_dict().items()}
    aliases = {f"{name}.{key}": f"{kept}.{key}" for name in others for key in layer.state_dict()}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").unlink()
    write_safetensors(tensors, folder / "model.safetensors", {"conv2attn": str(config["format_version"]), **aliases})


def deep(folder: Path) -> None:
    """One layer under 5,000 names of sixty parts."""
    layers_folder(folder, [[f"m{number}" + ".a" * 60 for number in range(5_000)]])


def wide(folder: Path) -> None:
    """One layer under 20,000 names."""
    layers_folder(folder, [[str(number) for number in range(20_000)]])


def many(folder: Path) -> None:
    """20,000 layers over one weight."""
    layers_folder(folder, [[str(number)] for number in range(20_000)])


def one_name(folder: Path) -> None:
    """20,000 layers of one name."""
    layers_folder(folder, [["a"]] * 20_000)


def several(folder: Path) -> None:
    """1,500 layers over one weight: as many as any network has."""
    layers_folder(folder, [[f"stage.{number}"] for number in range(1_500)])


def large_kernel(folder: Path) -> None:
    """A hundred layers of other paddings over one kernel of 90,000 taps, in 1.4 MB."""
    layer = convert_model(nn.Conv2d(1, 1, 300, bias=False)).model
    save_converted(layer, folder)
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    own = config["layers"][0]
    config["layers"] = [
        {**own, "names": [f"a{number}"], "spec": {**own["spec"], "padding": [number, 0]}} for number in range(100)
    ]
    del config["tensors"]
    tensors = {f"a0.{key}": value for key, value in layer.state_dict().items()}
    aliases = {f"a{number}.{key}": f"a0.{key}" for number in range(1, 100) for key in layer.state_dict()}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").unlink()
    write_safetensors(tensors, folder / "model.safetensors", {"conv2attn": str(config["format_version"]), **aliases})


def described(folder: Path) -> None:
    """A description as large as one may be, of empty lists, before a header as large as one may be, of names."""
    layers_folder(folder, [["a"]])
    config = (folder / "config.json").read_text().rstrip().removesuffix("}")
    (folder / "config.json").write_text(config + ', "x": [' + "[]," * 500_000 + '"\\ud83d\\ude00' + "a" * 10**7 + '"]}')
    metadata = {"conv2attn": str(FORMAT_VERSION), **{f"{number:x}": "0" for number in range(700_000)}}
    write_safetensors(load_file(folder / "model.safetensors"), folder / "model.safetensors", metadata)


FOLDERS = {"deep": deep, "wide": wide, "many": many, "several": several, "large": large_kernel, "described": described}
