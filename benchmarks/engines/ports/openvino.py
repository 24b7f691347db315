"""OpenVINO: it reads ONNX files, and computes in what INFERENCE_PRECISION_HINT says, or its plugin chooses."""

from __future__ import annotations

from pathlib import Path

import openvino
import torch
from torch import Tensor, nn

from benchmarks.engines.port import Calls, CannotRunError
from benchmarks.engines.ports.onnxruntime import exported

PACKAGE = "openvino"
VERSION = openvino.__version__.split("-")[0]
_HINTS = {
    "as it comes": None,
    "hint f32": openvino.Type.f32,
    "hint bf16": openvino.Type.bf16,
    "hint f16": openvino.Type.f16,
}
DECLARED = {
    "as it comes": "float32",
    "hint f32": "float32",
    "hint bf16": "bfloat16 products",
    "hint f16": "TF32 or float16 products",
}


def port(network: nn.Module, inputs: Tensor, way: str, folder: Path) -> Calls:
    """The network in OpenVINO's plugin for processors."""
    hint = _HINTS[way]
    options = {} if hint is None else {"INFERENCE_PRECISION_HINT": hint}
    path = exported(network, inputs, folder / "network.onnx")
    compiled = openvino.Core().compile_model(str(path), "CPU", options)
    chosen = compiled.get_property("INFERENCE_PRECISION_HINT")
    if hint is not None and chosen != hint:
        raise CannotRunError(f"this processor has no {way[5:]}: OpenVINO computes in {chosen.get_type_name()}")

    def call(x: Tensor) -> tuple[Tensor, ...]:
        found = compiled([x.numpy()])
        return tuple(torch.from_numpy(found[place].copy()) for place in range(len(compiled.outputs)))

    return call
