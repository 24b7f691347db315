"""Values of a run that are in files: those that ``record_values`` writes, and those of other programs.

A file of ``record_values`` is a safetensors file whose tensors are named ``inputs.NAME``, ``outputs.NAME`` and
``values.MODULE``, with what made them in its metadata. Of other programs are read: safetensors, NumPy's ``.npz``, a
folder of ``.npy``, and the tree of transformers' debugging (``..._FULL_TENSORS.json`` beside its safetensors files).
There, tensors named ``input`` and ``output`` (with a number or a name behind it) are these, and the others are values.

Tensors stay in the file, and are read one at a time.
"""

from __future__ import annotations

import fnmatch
import json
import platform
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ..errors import ConversionError, InputError, OptionError, refusing
from ..inputs import named_tensors
from ..layer.checked import passed
from .alignment import Layout, aligned
from .given import Inputs

Read = Callable[[], Tensor]
"""Reads a tensor that stays in its file until then."""
_KEY = "conv2attn.values"
_ROLES = ("inputs", "outputs", "values")
_CALL = re.compile(r"#\d+")
_ROLE = re.compile(r"(input|output)s?(?:[._:/-](.+)|_?(\d+))?", re.IGNORECASE)


@dataclass(frozen=True)
class Recorded:
    """Values of a run, by name.

    Attributes:
        path: Their file.
        inputs: What read each input.
        outputs: What read each output.
        values: What read each value inside.
        about: What made them: the engine, its version, the machine.
    """

    path: Path
    inputs: Mapping[str, Read]
    outputs: Mapping[str, Read]
    values: Mapping[str, Read]
    about: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, path: str | Path) -> Recorded:
        """Reads the names of a file's values.

        Raises:
            ConversionError: It is of no kind that is read, or holds no tensor.
        """
        path = Path(path)
        if not path.exists():
            raise ConversionError(f"there is no file {path}")
        with refusing(f"{path} cannot be read as recorded values"):
            tensors, about = _tensors(path)
        if not tensors:
            raise ConversionError(f"{path} holds no tensor")
        roles: dict[str, dict[str, Read]] = {role: {} for role in _ROLES}
        for name, read in tensors.items():
            role, own = _role(name, is_ours=_KEY in about)
            roles[role][own] = read
        return cls(path, roles["inputs"], roles["outputs"], roles["values"], about)

    def call(self) -> Inputs:
        """The inputs that it holds, as arguments of a call.

        Raises:
            InputError: It holds none.
        """
        if not self.inputs:
            raise InputError(f"{self.path} holds no inputs: give those that it was recorded with")
        numbers = sorted((name for name in self.inputs if name.isdigit()), key=int)
        by_name = {name: read() for name, read in self.inputs.items() if not name.isdigit()}
        return Inputs(tuple(self.inputs[name]() for name in numbers), by_name)

    def all_outputs(self) -> dict[str, Tensor]:
        """The outputs; where none is named so, all values."""
        return {name: read() for name, read in (self.outputs or self.values).items()}


def laid_out(found: Mapping[str, Tensor], like: Mapping[str, Tensor], side: str) -> tuple[dict[str, Tensor], list[str]]:
    """Recorded outputs by another side's names, in its layouts; and sentences on what was found.

    Args:
        found: Recorded tensors, by their names.
        like: The other side's outputs.
        side: The name of the recorded side.
    """
    outputs: dict[str, Tensor] = {}
    notes, left = [], dict(found)
    for place, (name, wanted) in enumerate(like.items()):
        order = sorted(left, key=lambda one: (one != name, list(found).index(one) != place))
        chosen = next(((one, layout) for one in order if (layout := aligned(left[one], wanted)) is not None), None)
        if chosen is None:  # another function's numbers
            same = [one for one in order if left[one].shape == wanted.shape and len(found) == len(like)]
            chosen = (same[0], Layout(tuple(range(wanted.ndim)), tuple(wanted.shape))) if same else None
        if chosen is None:
            notes.append(f"{side} has no output like {name or 'that of the other side'}, which was left out.")
            continue
        own, layout = chosen
        value = left.pop(own)
        words = layout.words(value.shape)
        if words:
            notes.append(f"{side}'s output {own or 'value'} was read as {words}.")
        outputs[name] = layout.apply(value)
    return outputs, notes


def is_recorded(path: Path) -> bool:
    """Whether a path may hold recorded values: a folder of arrays, or a file that no network is in."""
    if path.is_dir():
        return any(path.glob("*.npy"))
    if path.suffix == ".safetensors" and path.is_file():
        with refusing(f"{path} cannot be read"):
            return _KEY in _metadata(path) or any(_ROLE.fullmatch(name) for name in _names(path))
    return path.suffix == ".npz" or (path.suffix == ".json" and path.name.endswith("_FULL_TENSORS.json"))


@torch.no_grad()
def record_values(
    network: Callable[..., Any], inputs: Any, path: str | Path, *, values: bool | str | Sequence[str] = True
) -> Path:
    """Runs a network, and writes its inputs, outputs and the values inside into a file, for a comparison elsewhere.

    Args:
        network: A module, or any callable of tensors, of which only inputs and outputs are written.
        inputs: A tensor, several in a sequence, or by name.
        path: The file, ``.safetensors``.
        values: Which modules' results are written, too: all, none, or patterns of their names such as "layers.*". A
            module that is called again has its results under its name with ``#2`` and so on.

    Returns:
        The path.

    Raises:
        OptionError: The path has another suffix, no module has such a name, or an input is no tensor.
        InputError: The network does not run on the inputs.

    Examples:
        >>> cnn = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
        >>> path = c2a.record_values(cnn, torch.rand(1, 3, 8, 8), "cnn.safetensors")
        >>> c2a.same(cnn, path).verdict
        'same bits'
    """
    path, given = Path(path), Inputs.of(inputs)
    if path.suffix != ".safetensors":
        raise OptionError(f"path must end in .safetensors; got {path}")
    named = {**{str(place): one for place, one in enumerate(given.args)}, **given.kwargs}
    others = {name: one for name, one in named.items() if not isinstance(one, Tensor)}
    if others:
        name, value = next(iter(others.items()))
        raise OptionError(f"inputs that are recorded must be tensors, by place or name; got {passed(value)} as {name}")
    wanted = _wanted(network, values)
    tensors = {f"inputs.{name}": one.clone() for name, one in named.items()}
    call = given.clone()
    with kept_results(network, wanted) as kept, refusing("the network does not run on these inputs", InputError):
        found = network(*call.args, **call.kwargs)
    tensors |= {f"outputs.{name}": one for name, one in named_tensors(found, "the network").items()}
    tensors |= {f"values.{name}": one for name, one in kept.items()}
    about = {_KEY: "1", "engine": f"torch {torch.__version__}", "machine": platform.machine()}
    save_file({name: one.detach().cpu().contiguous().clone() for name, one in tensors.items()}, path, about)
    return path


def _wanted(network: object, values: bool | str | Sequence[str]) -> list[str]:
    """The names of the modules that are recorded."""
    if not isinstance(network, nn.Module) or values is False:
        return []
    every = [name for name, _ in network.named_modules() if name]
    if values is True:
        return every
    patterns = [values] if isinstance(values, str) else list(values)
    found = [name for name in every if any(fnmatch.fnmatchcase(name, one) for one in patterns)]
    if not found:
        raise OptionError(f"no module is named {' or '.join(patterns)}; there are {len(every)}, such as {every[:3]}")
    return found


@contextmanager
def kept_results(network: object, names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Keeps the results of modules while the network runs, by name."""
    kept: dict[str, Tensor] = {}
    counts = Counter[str]()

    def keep(name: str, call: Inputs, outputs: dict[str, Tensor]) -> None:
        counts[name] += 1
        again = f"{name}#{counts[name]}" if counts[name] > 1 else name
        kept.update({f"{again}.{part}" if part else again: one.detach().clone() for part, one in outputs.items()})

    with watched(network, names, keep):
        yield kept


def joined(values: Mapping[str, Read], shapes: Mapping[str, Sequence[int]]) -> dict[str, Read]:
    """Values with one for the whole batch in place of those of its parts, where a program runs modules part by part.

    Args:
        values: What reads each value, by name; that of a module's second call has ``#2``, and so on.
        shapes: Those of another program's values, which calls each module for the whole batch, by the same names.
    """
    calls: dict[str, list[str]] = {}
    for name in values:
        calls.setdefault(_CALL.sub("", name), []).append(name)
    found = dict(values)
    for name, parts in calls.items():
        if len(parts) < 2 or name not in shapes or any(part in shapes for part in parts[1:]):
            continue
        sizes = [tuple(values[part]().shape) for part in parts]
        whole = (sum(one[0] for one in sizes if one), *sizes[0][1:])
        if whole == tuple(shapes[name]) and all(one[1:] == whole[1:] for one in sizes):
            for part in parts:
                del found[part]
            found[name] = partial(_joined, [values[part] for part in parts])
    return found


def _joined(reads: Sequence[Read]) -> Tensor:
    return torch.cat([read() for read in reads])


@contextmanager
def watched(
    network: object, names: Sequence[str], keep: Callable[[str, Inputs, dict[str, Tensor]], None]
) -> Iterator[None]:
    """Calls a function with the name, arguments and tensors of each module's result while the network runs."""

    def keeper(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            with suppress(ConversionError):  # no tensor
                keep(name, Inputs(args, kwargs), named_tensors(output, name))

        return hook

    modules = dict(network.named_modules()) if isinstance(network, nn.Module) else {}
    handles = [modules[name].register_forward_hook(keeper(name), with_kwargs=True) for name in names]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _role(name: str, *, is_ours: bool) -> tuple[str, str]:
    """Whether a tensor is an input, an output or a value, and its name as such."""
    if is_ours:
        role, _, own = name.partition(".")
        return role, own
    found = _ROLE.fullmatch(name)
    if found is None:
        return "values", name
    return f"{found[1].lower()}s", found[2] or found[3] or ("0" if found[1].lower() == "input" else "")


def _tensors(path: Path) -> tuple[dict[str, Read], dict[str, str]]:
    """What reads each tensor of a file or folder, by name, and its metadata."""
    if path.is_dir():
        return {one.stem: _array(one) for one in sorted(path.glob("*.npy"))}, {}
    if path.suffix == ".npz":
        held = np.load(path)
        return {name: partial(_of_archive, held, name) for name in held.files}, {}
    if path.suffix == ".json":
        tree = json.loads(path.read_text(encoding="utf-8"))
        return dict(_of_tree(tree, path.parent)), {"engine": "transformers"}
    return {name: _held(path, name) for name in _names(path)}, _metadata(path)


def _names(path: Path) -> list[str]:
    with safe_open(path, "pt") as file:
        return list(file.keys())


def _metadata(path: Path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        return dict(file.metadata() or {})


def _held(path: Path, name: str) -> Read:
    def read() -> Tensor:
        with safe_open(path, "pt") as file:
            found: Tensor = file.get_tensor(name)
            return found

    return read


def _of_archive(held: Any, name: str) -> Tensor:
    return _tensor(held[name])


def _array(path: Path) -> Read:
    return lambda: _tensor(np.load(path, mmap_mode="r"))


def _tensor(array: Any) -> Tensor:
    """An array as a tensor; bfloat16, which NumPy has no type for, may be kept as two bytes."""
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        return torch.from_numpy(np.array(array.view(np.int16))).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def _of_tree(node: Any, folder: Path) -> list[tuple[str, Read]]:
    """The tensors of transformers' tree: outputs of modules, and inputs and outputs of the root."""
    root = str(node.get("module_path", ""))

    def of(part: Any, name: str) -> list[tuple[str, Read]]:
        if isinstance(part, dict) and isinstance(part.get("value"), str):
            return [(name, _held(folder / part["value"], "data"))]
        items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        return [each for key, one in items for each in of(one, f"{name}.{key}" if name else str(key))]

    def modules(one: Any) -> list[tuple[str, Read]]:
        name = str(one.get("module_path", "")).removeprefix(root).lstrip(".")
        found = of(one.get("outputs"), name or "output")
        return [*found, *(each for child in one.get("children", []) for each in modules(child))]

    given = of(node.get("inputs", {}).get("kwargs", {}), "input") + of(node.get("inputs", {}).get("args", []), "input")
    return [*given, *modules(node)]
