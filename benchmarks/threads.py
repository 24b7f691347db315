"""Five public threads that ask whether a difference is rounding, made again from their description.

    python benchmarks/threads.py

Prints what ``same`` says of each; RESULTS.md has it beside what the maintainers said.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import torch
import torch.nn.functional as F
import typer
from calling import Call
from torch import Tensor, nn

from conv2attn.convert.sameness.same import same
from conv2attn.convert.sameness.verdict import Sameness


@dataclass(frozen=True)
class Thread:
    """A thread.

    Attributes:
        address: Where it is.
        asks: Its question.
        compare: Makes both sides in a folder, and compares them.
    """

    address: str
    asks: str
    compare: Callable[[Path], Sameness]


def batches(folder: Path) -> Sameness:
    """A convolution of two images at once, and of one after the other."""
    torch.manual_seed(13009)
    conv = nn.Conv2d(4, 3, 3, padding=1).eval()
    return same(conv, lambda x: torch.cat([conv(one) for one in x.split(1)]), torch.randn(2, 4, 8, 6))


def layouts(folder: Path) -> Sameness:
    """Two convolutions of the same numbers that lie in memory in two ways."""
    torch.manual_seed(42)
    network = nn.Sequential(nn.Conv2d(3, 129, 3, padding=1), nn.Conv2d(129, 3, 3, padding=1)).eval()
    other = copy.deepcopy(network).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return same(network, other, torch.randn(1, 3, 32, 32))


def gelus(folder: Path) -> Sameness:
    """A library's GELU and the one with the error function, from -3 to 3."""
    x = torch.linspace(-3, 3, 100).unsqueeze(0)
    return same(nn.GELU().eval(), nn.GELU(approximate="tanh").eval(), x)


def resized(folder: Path) -> Sameness:
    """An interpolation to one pixel, and the ONNX file that torch exported of it before the fault was mended."""
    torch.manual_seed(0)
    network = Call(lambda x: F.interpolate(x, size=(1, 1), mode="bilinear", align_corners=False)).eval()
    image, path = torch.rand(1, 3, 10, 10), folder / "resized.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its internals
        torch.onnx.export(network, (image,), path, dynamo=True, verbose=False)
    model = onnx.load(path)
    for attribute in next(node for node in model.graph.node if node.op_type == "Resize").attribute:
        if attribute.name == "coordinate_transformation_mode":
            attribute.s = b"pytorch_half_pixel"
    onnx.save(model, path)
    return same(network, path, image)


def inverted(folder: Path) -> Sameness:
    """The inverse of enlarged matrices, whose rank is half of their size; the other side enlarges by a product."""
    torch.manual_seed(0)
    enlarge = F.interpolate(torch.eye(32)[None, None], size=(64, 32), mode="bilinear", align_corners=True)[0, 0]

    def other(x: Tensor) -> Tensor:
        found: Tensor = torch.linalg.inv(enlarge @ x @ enlarge.T)
        return found

    network = Call(lambda x: torch.linalg.inv(F.interpolate(x, size=(64, 64), mode="bilinear", align_corners=True)))
    return same(network.eval(), other, torch.randn(1, 3, 32, 32))


THREADS = {
    "batches": Thread(
        "https://github.com/pytorch/pytorch/issues/134908", "a convolution depends on the size of the batch", batches
    ),
    "layouts": Thread(
        "https://github.com/pytorch/pytorch/issues/110387", "two equal tensors give two results", layouts
    ),
    "gelus": Thread("https://github.com/uxlfoundation/oneDNN/issues/1122", "two GELUs differ beyond allclose", gelus),
    "resized": Thread(
        "https://github.com/pytorch/pytorch/issues/183523", "an exported interpolation gives another number", resized
    ),
    "inverted": Thread(
        "https://github.com/pytorch/pytorch/issues/150165", "a compiled network gives other numbers", inverted
    ),
}


def found(name: str) -> Sameness:
    """The verdict of ``same`` on a thread."""
    with TemporaryDirectory() as folder:
        return THREADS[name].compare(Path(folder))


def main() -> None:
    """Prints each thread and what ``same`` says of it."""
    for name, thread in THREADS.items():
        print(f"{thread.address}: {thread.asks}\n{found(name).sentence}\n", flush=True)


if __name__ == "__main__":
    typer.run(main)
