"""Ncnn: pnnx converts what torch.jit traced. It has no batch, so images are given one at a time."""

from __future__ import annotations

import subprocess
from pathlib import Path

import ncnn
import numpy as np
import pnnx
import torch
from torch import Tensor, nn

from benchmarks.engines.port import Calls, CannotRunError
from benchmarks.engines.ports.onnxruntime import outputs_of

PACKAGE = "ncnn pnnx"
VERSION = ncnn.__version__
DECLARED = {
    "float32": "float32",
    "float32, no Winograd": "float32",
    "bf16 storage": "bfloat16 stored",
    "fp16 storage": "float16 stored",
}


def port(network: nn.Module, inputs: Tensor, way: str, folder: Path) -> Calls:
    """The network in ncnn."""
    if not inputs.is_floating_point():
        raise CannotRunError("the port gives ncnn images alone")
    path, one = folder / "network.pt", inputs[:1]
    torch.jit.trace(network, one, check_trace=False).save(str(path))
    shape = f"inputshape=[{','.join(map(str, one.shape))}]"
    subprocess.run([pnnx.EXEC_PATH, str(path), shape, "fp16=0"], cwd=folder, check=True, capture_output=True)
    net = ncnn.Net()
    net.opt.num_threads = 1
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = way == "fp16 storage"
    net.opt.use_bf16_storage = net.opt.use_bf16_packed = way == "bf16 storage"
    net.opt.use_winograd_convolution = way != "float32, no Winograd"
    net.load_param(str(folder / "network.ncnn.param"))
    net.load_model(str(folder / "network.ncnn.bin"))

    count = len(outputs_of(network(one)))

    def call(x: Tensor) -> tuple[Tensor, ...]:
        found = []
        for image in x.numpy():
            extractor = net.create_extractor()
            extractor.input("in0", ncnn.Mat(np.ascontiguousarray(image)).clone())
            parts = (np.array(extractor.extract(f"out{place}")[1]) for place in range(count))
            found.append([torch.from_numpy(part).float() for part in parts])
        return tuple(map(torch.stack, zip(*found, strict=True)))

    return call
