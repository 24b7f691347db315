"""ONNX Runtime: torch's own exporter writes the file."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor, nn

from benchmarks.engines.port import Calls

PACKAGE = "onnxruntime"
VERSION = onnxruntime.__version__
DECLARED = {"float32": "float32", "float32, nothing fused": "float32", "float16": "float16 stored"}


def exported(network: nn.Module, inputs: Tensor, path: Path) -> Path:
    """Writes the ONNX file of a network, whose outputs are y0, y1 and so on."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # torchvision is not needed
    count = len(outputs_of(network(inputs)))
    names = [f"y{place}" for place in range(count)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network, (inputs,), path, dynamo=True, verbose=False, input_names=["x"], output_names=names)
    return path


def outputs_of(found: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The outputs of a network that gives one tensor or several."""
    return (found,) if isinstance(found, Tensor) else found


def port(network: nn.Module, inputs: Tensor, way: str, folder: Path) -> Calls:
    """The network in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    if way == "float32, nothing fused":
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    is_half = way == "float16"
    given = inputs.half() if is_half and inputs.is_floating_point() else inputs
    path = exported(network.half() if is_half else network, given, folder / "network.onnx")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def call(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(map(torch.from_numpy, session.run(None, {"x": x.to(given.dtype).numpy()})))

    return call
