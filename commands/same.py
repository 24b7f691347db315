"""Compares two networks of files, and says whether their difference is rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..convert.arguments import USUAL_SIZES
from ..convert.errors import CheckpointError, OptionError
from ..convert.files.open import Network
from ..convert.files.preprocessing import Preprocessing
from ..convert.files.readers import kind_of, read_contents
from ..convert.files.weights import Opening
from ..convert.inputs import example_image, program_shape, random_inputs
from ..convert.onnx.run import random_feeds, session
from ..convert.sameness.same import STEPS, compare
from ..convert.sameness.sides import ONNX
from ..convert.sameness.verdict import LEGEND
from ..show.text import Table
from .inputs import InputOptions, folder_images
from .opening import opened
from .terminal import Done, progress

_IMAGES = 8  # of a folder
_DRAWN = 2  # random images


def same_files(
    a: Path, b: Path, *, opening: Opening, chosen: InputOptions, dtype: torch.dtype | None, prove: bool
) -> Done:
    """``conv2attn same``. The arguments are the command's options."""
    data = chosen.data
    if data is not None and (chosen.count is not None or chosen.specs):
        raise OptionError("inputs are read with --data, or drawn with --random and --input; give one of the two")
    sides = [_opened(path, opening) for path in (a, b)]
    if data is None:
        inputs = _random(sides, (a, b), chosen)
    elif data.is_dir():
        inputs = _pictures(data, sides, chosen)
    else:
        inputs = read_inputs(data)
    one, other = ((each if isinstance(each, Path) else each.as_saved().eval()) for each in sides)
    with progress("Running both networks, and rounding", total=STEPS) as advance:
        found = compare(one, other, inputs, dtype=dtype, seed=chosen.seed or 0, progress=advance, prove=prove)
    parts: list[Table | str] = [*found.lines()]
    header, *rows = found.table()
    if rows:
        parts += [Table(header, tuple(rows)), LEGEND]
    facts = {"a": str(a), "b": str(b), **found.to_dict()}
    return Done(facts, [*parts, f"Seed: {found.seed}"], exit_code=found.exit_code)


def _opened(path: Path, opening: Opening) -> Network | Path:
    """The network of a file; an ONNX file, which ONNX Runtime runs even if an architecture is given, stays a path."""
    if path.suffix == ONNX:
        kind_of(path)
        return path
    return opened(path, opening).whole()


def read_inputs(path: Path) -> Any:
    """The inputs in a file: an array (.npy), arrays by name (.npz), or a tensor, a list or a mapping of them (.pt)."""
    try:
        if path.suffix == ".npy":
            return torch.from_numpy(np.load(path, allow_pickle=False))
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except (ValueError, OSError, TypeError) as error:
        raise CheckpointError(f"{path} holds no arrays of numbers") from error
    found = read_contents(path).value
    parts = (
        list(found.values()) if isinstance(found, Mapping) else found if isinstance(found, list | tuple) else [found]
    )
    if not parts or not all(isinstance(part, Tensor) for part in parts):
        raise CheckpointError(f"{path} holds no tensors; inputs are a tensor, a list or a mapping of tensors")
    return found


def _pictures(folder: Path, sides: Sequence[Network | Path], chosen: InputOptions) -> Tensor:
    """The first images of a folder, as the first of the two networks takes them that is no ONNX file."""
    network = next((side for side in sides if not isinstance(side, Path)), None)
    if network is None:
        raise OptionError("two ONNX files do not say how they take pictures; a file of inputs is needed")
    known = network.preprocessing
    channels = None if known is None else known.channels
    found: Tensor = folder_images(folder, network.read, known, channels, chosen, batch_size=_IMAGES)[0]
    return found


def _random(sides: Sequence[Network | Path], paths: tuple[Path, Path], chosen: InputOptions) -> Any:
    """Inputs as an ONNX file declares them, or images of the usual size.

    Images of a network whose preprocessing is known are pictures of random bytes, prepared as it says; else all are
    normal numbers.
    """
    specs, size, count, seed = chosen.specs, chosen.size, chosen.count, chosen.seed or 0
    if specs:
        return random_inputs(specs, seed=seed)
    network = next((side for side in sides if not isinstance(side, Path)), None)
    known = None if network is None else network.preprocessing
    feeds = next((path for side, path in zip(sides, paths, strict=True) if isinstance(side, Path)), None)
    if feeds is not None:
        found = random_feeds(session(feeds), size=size, count=count, seed=seed)
        return [prepared(torch.from_numpy(one), known, seed) for one in found.values()]
    if network is None:
        raise OptionError("there is no network")
    shape = program_shape(network.read)
    grid = size or (known and known.size) or USUAL_SIZES[2]
    image = example_image(network.read, grid, batch=count or (shape and shape[0]) or _DRAWN)
    return prepared(torch.randn(image.shape, generator=torch.Generator().manual_seed(seed)), known, seed)


def prepared(drawn: Tensor, known: Preprocessing | None, seed: int) -> Tensor:
    """Random pictures in place of normal numbers, where these are images and a preprocessing is known."""
    if known is None or drawn.ndim != 4 or drawn.shape[1] != known.channels or not drawn.is_floating_point():
        return drawn
    generator = torch.Generator().manual_seed(seed)
    pictures = torch.randint(0, 256, drawn.shape, generator=generator, dtype=torch.uint8)
    return known.normalization(pictures).to(drawn.dtype)
