"""Published ONNX files beside what onnx2torch reads in them: pairs that nobody made for a comparison.

    python benchmarks/published.py build/pairs.jsonl FOLDER   # all ONNX files below a folder, such as site-packages

An input that is one number (a sampling rate) becomes a constant of both sides, so that branches which ask for it can be
folded. A line of JSON is written for each file, as ``pairs.py`` writes it.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from children import Record, read, records_of, write
from pairs import FIRST, LIMIT, measured
from torch import Tensor

from conv2attn.convert.onnx import onnx_package
from conv2attn.convert.sameness.same import Reference

_INTEGERS = {6: torch.int32, 7: torch.int64}  # by the numbers that ONNX gives types
_RATE = 16_000  # of a number among the inputs: files that take one take audio
_SAMPLES = 576  # of audio, where a file leaves their number open
_SIDES = ((48, 96), (96, 96))  # of images: lines of text are 48 pixels high, pages any multiple of 32
_LARGEST = 257  # integers are bytes, and one more for what stands for none


def drawn_inputs(model: Any, sides: tuple[int, int]) -> dict[str, Tensor]:
    """Inputs of an ONNX model by name: small where it leaves their sizes open."""
    generator, held = torch.Generator().manual_seed(1), {one.name for one in model.graph.initializer}
    found = {}
    for port in (one for one in model.graph.input if one.name not in held):
        kind = port.type.tensor_type
        given = [one.dim_value if one.dim_value > 0 else None for one in kind.shape.dim]
        shape = _filled(given, sides)
        dtype = _INTEGERS.get(kind.elem_type)
        whole = torch.full((), _RATE) if not shape else torch.randint(0, _LARGEST, shape, generator=generator)
        found[port.name] = torch.randn(shape, generator=generator) if dtype is None else whole.to(dtype)
    return found


def _filled(shape: list[int | None], sides: tuple[int, int]) -> list[int]:
    """A shape with sizes in place of those that are open: one example, and sizes that the published files take."""
    if len(shape) == 4:
        return [one or usual for one, usual in zip(shape, (1, 3, *sides), strict=True)]
    return [one or (1 if place == 0 or len(shape) > 2 else _SAMPLES) for place, one in enumerate(shape)]


def with_constants(model: Any, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Makes each input that is one number a constant of the model; the inputs that are left."""
    onnx = onnx_package("reading ONNX files")
    for port in [one for one in model.graph.input if one.name in given and not given[one.name].ndim]:
        model.graph.initializer.append(onnx.numpy_helper.from_array(given[port.name].numpy(), port.name))
        model.graph.input.remove(port)
    return {name: one for name, one in given.items() if one.ndim}


def folded(model: Any, given: dict[str, Tensor]) -> Any:
    """A model whose constants are folded for these inputs, and whose branches, where constants choose them."""
    import onnxsim
    import onnxslim

    shapes = [f"{name}:{','.join(map(str, x.shape))}" for name, x in given.items()]
    found = onnxslim.slim(model, input_shapes=shapes)
    if any(node.op_type == "If" for node in found.graph.node):
        found = onnxslim.slim(onnxsim.simplify(found)[0], input_shapes=shapes)
    return found


def compared(path: Path, sides: tuple[int, int]) -> Record:
    """A file as onnx2torch reads it, beside ONNX Runtime."""
    from readings import read_by_onnx2torch

    onnx = onnx_package("reading ONNX files")
    model = onnx.load(str(path))
    given = with_constants(model, drawn_inputs(model, sides))
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / path.name
        onnx.save(model, str(own))
        network = read_by_onnx2torch(folded(model, given))
        return measured(Reference(network, tuple(given.values()), is_bounded=False).compare(own))


@torch.no_grad()
def child(path: Path) -> Iterator[Record]:
    """The pair of a file, on images of the first size that it takes."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    about = {"name": path.name, "way": "published"}
    for sides in _SIDES:
        try:
            yield {**about, **compared(path, sides)}
            return
        except Exception as error:  # other people's code
            refusal = f"{type(error).__name__}: {error}"[:300]
    yield {**about, "error": refusal}


def main() -> None:
    """Runs the pairs of the ONNX files below a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="file of lines of JSON, which is added to")
    parser.add_argument("folder", type=Path, help="the folder")
    options = parser.parse_args()
    have = {one.get("name") for one in read(options.out) if one["way"] == "published"}
    for path in sorted(options.folder.rglob("*.onnx")):
        if path.name not in have:
            about = {"index": -1, "library": "published", "family": path.parent.parent.name}
            nothing = {"name": path.name, "way": "published", "error": "died, or took too long"}
            for record in list(records_of(child, path, first=FIRST, limit=LIMIT)) or [nothing]:
                write(options.out, about | record)


if __name__ == "__main__":
    main()
