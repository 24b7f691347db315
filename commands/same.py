"""Compares two networks of files, and says whether their difference is rounding; records a network's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..convert.errors import CheckpointError, OptionError, listed
from ..convert.files.architecture import Architecture
from ..convert.files.folder import converted_in, read_config
from ..convert.files.open import Network
from ..convert.files.opening import Opening
from ..convert.files.preprocessing import Preprocessing
from ..convert.files.readers import kind_of, read_contents
from ..convert.inputs import example_image, program_shape, random_inputs
from ..convert.network.plan import usual_size
from ..convert.onnx.run import random_feeds, session
from ..convert.sameness.blockwise import same_blocks
from ..convert.sameness.recorded import Recorded, is_recorded, record_values
from ..convert.sameness.same import STEPS, compare
from ..convert.sameness.sides import ONNX, OnnxCall
from ..convert.sameness.verdict import LEGEND
from ..convert.tensors import have_same_bytes
from ..convert.write import PROGRAM, is_ours, write_file
from ..show.text import Table
from .inputs import folder_images
from .opening import opened
from .options import InputOptions
from .terminal import Done, progress, wrote

_IMAGES = 8  # of a folder
_DRAWN = 2  # random images
SUFFIX = ".safetensors"  # of recorded values


def same_files(
    a: Path,
    b: Path,
    *,
    openings: Sequence[Opening],
    chosen: InputOptions,
    dtype: torch.dtype | None,
    prove: bool,
    units: Sequence[str] = (),
    is_by_block: bool = False,
) -> Done:
    """``conv2attn same``. The arguments are the command's options; ``openings`` are one for both sides, or one each."""
    sources = _Source(a), _Source(b)
    own = _each(sources, openings)
    sides = [source.opened(opening) for source, opening in zip(sources, own, strict=True)]
    inputs = _inputs(sides, chosen)
    one, other = (_run_by(each) for each in sides)
    seed = chosen.seed or 0
    specs = [opening.architecture.spec if isinstance(opening.architecture, Architecture) else None for opening in own]
    facts = {"a": str(a), "b": str(b), "architectures": dict(zip("ab", specs, strict=True))}
    about = _about_sides(sources, sides, own)
    if is_by_block:
        is_more_asked = prove or dtype is not None
        return _by_block(one, other, inputs, facts, about, seed=seed, units=units, is_more_asked=is_more_asked)
    with progress("Running both networks, and rounding", total=STEPS) as advance:
        found = compare(one, other, inputs, dtype=dtype, seed=seed, progress=advance, prove=prove, unit=units)
    parts: list[Table | str] = [*found.lines(), *(_without_effect(one, other) if found.verdict == "same bits" else [])]
    header, *rows = found.table()
    if rows:
        parts += [Table(header, tuple(rows)), LEGEND]
    return Done(facts | found.to_dict(), [*parts, *about, f"Seed: {found.seed}"], exit_code=found.exit_code)


def _by_block(
    a: Any,
    b: Any,
    inputs: Any,
    facts: dict[str, Any],
    about: Sequence[str],
    *,
    seed: int,
    units: Sequence[str],
    is_more_asked: bool,
) -> Done:
    """The comparison block by block."""
    if is_more_asked:
        raise OptionError(
            "--blocks compares each block in its own precision, without proofs; leave --dtype, --prove out"
        )
    others = [name for name, side in (("A", a), ("B", b)) if isinstance(side, Path)]
    if others:
        raise OptionError(
            f"--blocks is for two networks, and {' and '.join(others)} is an ONNX file or recorded values"
        )
    with progress("Running both networks, block by block", total=None) as advance:
        found = same_blocks(a, b, inputs, seed=seed, unit=units, progress=lambda _: advance(1))
    header, *rows = found.table()
    table = Table(header, tuple(rows))
    parts: list[Table | str] = [*found.lines(), table, *about, f"Seed: {seed}"]
    return Done(facts | found.to_dict(), parts, exit_code=found.exit_code)


def record_file(
    source: Path, out: Path, *, opening: Opening, chosen: InputOptions, values: Sequence[str], force: bool
) -> Done:
    """``conv2attn record``. The arguments are the command's options."""
    side = _Source(source).opened(opening)
    sources = [source] if isinstance(side, Path) else [source, *side.files]
    if isinstance(side, Path) and side.suffix != ONNX:
        raise OptionError(f"{source} holds recorded values, and no network that could be run")
    inputs = _inputs([side], chosen)
    call = OnnxCall(side) if isinstance(side, Path) else _run_by(side)
    if values and isinstance(side, Path):
        raise OptionError("values inside are those of modules, and an ONNX file has none")
    chosen_values: bool | list[str] = list(values) or True
    write_file(out, lambda path: record_values(call, inputs, path, values=chosen_values), force=force, sources=sources)
    found = Recorded.open(out)
    counts = {"inputs": len(found.inputs), "outputs": len(found.outputs), "values": len(found.values)}
    content = ", ".join(f"{count} {name[:-1] if count == 1 else name}" for name, count in counts.items())
    return wrote(out, content, **counts, about=dict(found.about))


def _inputs(sides: Sequence[Network | Path], chosen: InputOptions) -> Any:
    """The inputs that the options choose; None means those that recorded values hold."""
    data = chosen.data
    if data is not None and (chosen.count is not None or chosen.specs):
        raise OptionError("inputs are read with --data, or drawn with --random and --input; give one of the two")
    if data is None and chosen.count is None and chosen.size is None and not chosen.specs:
        files = [Recorded.open(side) for side in sides if isinstance(side, Path) and side.suffix != ONNX]
        if files:
            return next((one for one in files if one.inputs), files[0]).call()
    if data is None:
        return _random(sides, chosen)
    return _pictures(data, sides, chosen) if data.is_dir() else read_inputs(data)


def _run_by(side: Network | Path) -> Any:
    """A file as the comparison takes it: its path, or its network in eval mode."""
    return side if isinstance(side, Path) else side.as_saved().eval()


@dataclass
class _Source:
    """The file or folder of a side."""

    path: Path

    @cached_property
    def itself(self) -> Path | None:
        """The file that is a side as it is: recorded values, an ONNX file, or the one in a folder; None if none is."""
        if is_recorded(self.path):
            return self.path
        if self.path.suffix == ONNX:
            kind_of(self.path)
            return self.path
        program = converted_in(self.path) / PROGRAM
        return program if is_ours(program.parent) and program.is_file() else None

    @cached_property
    def named(self) -> Architecture | None:
        """The network that a folder names, if it is one that conv2attn wrote."""
        folder = converted_in(self.path)
        return read_config(folder).architecture if is_ours(folder) else None

    def opened(self, opening: Opening) -> Network | Path:
        """Its network; recorded values, and an ONNX file, which ONNX Runtime runs, stay a path."""
        if opening.architecture is None and self.itself is not None:
            return self.itself
        return opened(self.path, opening).whole()


def _each(sources: Sequence[_Source], openings: Sequence[Opening]) -> Sequence[Opening]:
    """The options for each side. One architecture is for the sides that name none; two are for A and for B.

    Raises:
        OptionError: A side has an architecture, and takes none.
    """
    if len(openings) == 2:
        if needless := [f"{each.path} is compared as it is" for each in sources if each.itself == each.path]:
            raise OptionError(f"{' and '.join(needless)}, so one --arch is enough, for the other side")
        return openings
    (given,) = openings
    architecture = given.architecture
    if not isinstance(architecture, Architecture):
        return [given for _ in sources]
    wants = [each.itself is None and each.named in (None, architecture.resolved()) for each in sources]
    if not any(wants):
        raise OptionError(
            f"--arch {architecture.spec} is for a side that names no network, and both sides do; two --arch, the first "
            "for A and the second for B, are taken in place of what folders name"
        )
    return [given if wanted else replace(given, architecture=None) for wanted in wants]


def _without_effect(a: Any, b: Any) -> list[str]:
    """A line that names modules whose weights or attributes differ, of two networks whose outputs are the same bits."""
    if not (isinstance(a, nn.Module) and isinstance(b, nn.Module)):
        return []
    others = dict(b.named_modules())
    pairs = [(name, one, others[name]) for name, one in a.named_modules() if name in others]
    found = [f"`{name or 'the network'}`" for name, one, other in pairs if _differ(one, other)]
    return [f"Weights or attributes of {listed(found)} differ, without effect on these inputs."] if found else []


def _differ(one: nn.Module, other: nn.Module) -> bool:
    """Whether two modules' own tensors differ or, of torch's modules, their options."""
    tensors = [dict(chain(m.named_parameters(recurse=False), m.named_buffers(recurse=False))) for m in (one, other)]
    shared = tensors[0].keys() & tensors[1].keys() - {"num_batches_tracked"}
    is_equal = all(have_same_bytes(tensors[0][key], tensors[1][key]) for key in shared)
    is_of_torch = type(one) is type(other) and type(one).__module__.startswith("torch.nn.")
    return not is_equal or (is_of_torch and one.extra_repr() != other.extra_repr())


def _about_sides(sources: Sequence[_Source], sides: Sequence[Network | Path], openings: Sequence[Opening]) -> list[str]:
    """A line that says which network each side is, where an option chose it, and which file of a folder is run."""
    is_chosen, found = any(opening.architecture for opening in openings), []
    for letter, source, side, opening in zip("AB", sources, sides, openings, strict=True):
        path, given, named = source.path, opening.architecture, source.named if is_chosen else None
        if isinstance(given, Architecture):
            instead = "" if named in (None, given.resolved()) else f", though it names {named.spec}"
            found.append(f"{letter} is {path} in {_in_words(given)}{instead}")
        elif named is not None:
            found.append(f"{letter} is {path} in {_in_words(named)}, which it names")
        elif isinstance(side, Path) and side != path:
            found.append(f"{letter} is {side}")
    return [f"{'; '.join(found)}."] if found else []


def _in_words(architecture: Architecture) -> str:
    arguments = ", ".join(f"{name}={value}" for name, value in architecture.arguments.items())
    return architecture.spec + (f" ({arguments})" if arguments else "")


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
        raise OptionError("neither file says how pictures are taken; a file of inputs is needed")
    known = network.preprocessing
    channels = None if known is None else known.channels
    found: Tensor = folder_images(folder, network.read, known, channels, chosen, batch_size=_IMAGES)[0]
    return found


def _random(sides: Sequence[Network | Path], chosen: InputOptions) -> Any:
    """Inputs as an ONNX file declares them, or images of the usual size.

    Images of a network whose preprocessing is known are pictures of random bytes, prepared as it says; else all are
    normal numbers.
    """
    specs, size, count, seed = chosen.specs, chosen.size, chosen.count, chosen.seed or 0
    if specs:
        return random_inputs(specs, seed=seed)
    network = next((side for side in sides if not isinstance(side, Path)), None)
    known = None if network is None else network.preprocessing
    feeds = next((side for side in sides if isinstance(side, Path) and side.suffix == ONNX), None)
    if feeds is not None:
        found = random_feeds(session(feeds), size=size, count=count, seed=seed)
        return [prepared(torch.from_numpy(one), known, seed) for one in found.values()]
    if network is None:
        raise OptionError("there is no network")
    shape = program_shape(network.read)
    usual = usual_size(network.read)
    grid = (size and size.along(len(usual))) or (known and known.size) or usual
    image = example_image(network.read, grid, batch=count or (shape and shape[0]) or _DRAWN)
    return prepared(torch.randn(image.shape, generator=torch.Generator().manual_seed(seed)), known, seed)


def prepared(drawn: Tensor, known: Preprocessing | None, seed: int) -> Tensor:
    """Random pictures in place of normal numbers, where these are images and a preprocessing is known."""
    if known is None or drawn.ndim != 4 or drawn.shape[1] != known.channels or not drawn.is_floating_point():
        return drawn
    generator = torch.Generator().manual_seed(seed)
    pictures = torch.randint(0, 256, drawn.shape, generator=generator, dtype=torch.uint8)
    return known.normalization(pictures).to(drawn.dtype)
