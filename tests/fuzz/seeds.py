"""Writes the first inputs of the fuzzer: small files of every kind, as the libraries of each kind write them.

python -m tests.fuzz.seeds FOLDER
"""

from __future__ import annotations

import io
import json
import struct
import sys
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

import safetensors.torch
import torch
from torch import nn

from tests.fuzz.target import WRITERS, write_exported, write_pickle, write_raw, write_safetensors
from tests.hostile.files import onnx_listed, onnx_model


def network() -> nn.Module:
    """Two convolutions, a normalisation and a layer of another kind."""
    torch.manual_seed(0)
    first = nn.Conv2d(2, 2, (1, 2), stride=(2, 1), padding=(1, 0))
    return nn.Sequential(first, nn.BatchNorm2d(2), nn.Conv2d(2, 2, 1, groups=2, bias=False), nn.ReLU()).eval()


def saved(value: object, *, legacy: bool = False) -> bytes:
    """What torch.save writes."""
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=not legacy)
    return file.getvalue()


def scripted(model: nn.Module) -> bytes:
    """What torch.jit.save writes."""
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(model, torch.ones(1, 2, 3, 4)), file)
    return file.getvalue()


def exported(model: nn.Module) -> bytes:
    """What torch.export.save writes."""
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, (torch.ones(1, 2, 3, 4),)), file)
    return file.getvalue()


def entry(archive: bytes, name: str) -> bytes:
    """What an archive holds under the end of a name."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        (found,) = (member for member in opened.namelist() if member.partition("/")[2] == name)
        return opened.read(found)


def program(archive: bytes) -> bytes:
    """The two JSON texts of an exported program, without what no reader looks at."""
    config = entry(archive, "data/weights/model_weights_config.json")
    graph = json.loads(entry(archive, "models/model.json"))
    module = graph["graph_module"]
    kept_keys = ("target", "inputs", "outputs", "name", "metadata")
    nodes = [{key: node[key] for key in kept_keys} for node in module["graph"]["nodes"]]
    for node in nodes:
        node["metadata"] = {"nn_module_stack": node["metadata"].get("nn_module_stack")}
    kept = {"graph": {"nodes": nodes}, "signature": {"input_specs": module["signature"]["input_specs"]}}
    return config + b"\0" + json.dumps({"graph_module": kept}).encode()


def seeds() -> Iterator[tuple[str, bytes]]:
    """Inputs by name."""
    model = network()
    state = model.state_dict()
    training = {"epoch": 3, "state_dict": {f"module.{key}": value for key, value in state.items()}, "model_ema": state}
    kinds = {"plain": state, "training": training, "module": model, "half": {"w": torch.ones(2, 3).half()}}
    kinds["bytes"] = {"w": torch.ones(3, dtype=torch.uint16), "p": nn.Parameter(torch.ones(2)), "e": torch.ones(0)}
    kinds["sparse"] = {"w": torch.eye(2).to_sparse(), "c": torch.ones(2, dtype=torch.complex64).conj()}
    for name, value in kinds.items():
        yield f"pickle-{name}", bytes([WRITERS.index(write_pickle)]) + entry(saved(value), "data.pkl")
        yield f"zip-{name}", bytes([WRITERS.index(write_raw)]) + saved(value)
    for name in ("plain", "module", "bytes"):
        yield f"legacy-{name}", bytes([WRITERS.index(write_raw)]) + saved(kinds[name], legacy=True)
    script = scripted(model)
    yield "pickle-script", bytes([WRITERS.index(write_pickle)]) + entry(script, "data.pkl")
    tensors = safetensors.torch.save(state, metadata={"format": "pt"})
    (length,) = struct.unpack("<Q", tensors[:8])
    yield "safetensors", bytes([WRITERS.index(write_raw)]) + tensors
    yield "header", bytes([WRITERS.index(write_safetensors)]) + tensors[8 : 8 + length]
    yield "exported", bytes([WRITERS.index(write_exported)]) + program(exported(model))
    yield (
        "index",
        bytes([WRITERS.index(write_raw)])
        + json.dumps({"weight_map": {"w": "a.safetensors", "0.weight": "b.bin"}}).encode(),
    )
    yield "onnx", bytes([WRITERS.index(write_raw)]) + onnx_model()
    yield "onnx-listed", bytes([WRITERS.index(write_raw)]) + onnx_listed()


def main() -> None:
    """Writes the seeds into the folder that is given."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(action="ignore"):
        for name, content in seeds():
            (folder / f"{name}.bin").write_bytes(content)


if __name__ == "__main__":
    main()
