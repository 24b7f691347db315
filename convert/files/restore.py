"""From a converted network back to the CNN's state dict: from a folder without the CNN's code.

Raises:
    CheckpointError: By every function here, for a folder that is damaged.
    NotAConvolutionError: For layers that compute what no convolution computes, all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from ..attention.construction import attention_with, not_a_convolution
from ..attention.layer import SelfAttention
from ..certificate.distance import told_distance
from ..errors import ArchitectureNeededError, CheckpointError, NotAConvolutionError, OutputError, first_line
from .architecture import Architecture
from .checkpoint import Checkpoint, load_into, read_checkpoint
from .config import LayerEntry, is_converted
from .folder import read_folder
from .layers import convolution
from .network import open_network
from .readers.common.geometry import StoredConvolution
from .shared import check_written_apart, copies, independent
from .state import holds_attention
from .writing.atomic import check_file, write_file
from .writing.ownership import CONFIG, WEIGHTS
from .writing.safetensors import write_safetensors

_SAFETENSORS = ".safetensors"
_PARAMETERS = ("weight", "bias")  # those that a convolution has too


def restored_checkpoint(folder: str | Path) -> Checkpoint:
    """The CNN's weights, bit for bit, with the geometry of its converted convolutions.

    Raises:
        CheckpointError: The folder is not a converted model, or damaged.
        ArchitectureNeededError: Layers of it were of classes that are none of PyTorch's own.
        NotAConvolutionError: Layers of it compute what no convolution computes.
    """
    folder = Path(folder)
    config, saved = read_folder(folder)
    kinds = sorted({entry.kind for entry in config.layers if entry.kind is not None})
    if kinds:
        raise ArchitectureNeededError(
            f"{folder} holds layers of {', '.join(kinds)}, which only the architecture can make; it must be given"
        )
    state, problems = dict(saved.state_dict), []
    convolutions: dict[str, StoredConvolution] = {}
    for entry in config.layers:
        layer = stored_layer(entry, saved)
        if (reason := not_a_convolution(layer)) is not None:
            problems.append(f"{entry.names[0] or 'the model itself'}: {reason}{told_distance(layer)}")
        for name in entry.names:
            convolutions[name] = entry.stored(name, saved)
            for key in layer.state_dict().keys() - set(_PARAMETERS):
                state.pop(_key(name, key), None)
    if problems:
        count = f"{len(problems)} of {len(config.layers)} attention layers compute what no convolution computes"
        raise NotAConvolutionError(f"{folder}: {count}: {'; '.join(problems)}")
    return Checkpoint(folder, state, saved.sha256, convolutions, files=(folder / CONFIG, *saved.files))


def restore_file(
    source: Path, out: Path, *, architecture: Architecture | None = None, ema: bool = False, force: bool = False
) -> list[str]:
    """Writes the CNN's state dict to a file.

    Args:
        source: As ``restored_state`` takes.
        out: As ``write_state_dict`` takes.
        architecture: How the CNN is built; a folder needs none.
        ema: Take the moving average of a file's weights.
        force: Replace a file that exists.

    Returns:
        The names of its tensors.

    Raises:
        ConversionError: As ``restored_state`` and ``write_state_dict``; what can be refused before reading, is.
    """
    check_state_dict_file(out, force=force, sources=[source, source / CONFIG, source / WEIGHTS])
    restored = restored_state(source, architecture=architecture, ema=ema)
    write_state_dict(restored.state_dict, out, force=force, sources=restored.files)
    return list(restored.state_dict)


def restored_state(path: Path, *, architecture: Architecture | None = None, ema: bool = False) -> Checkpoint:
    """The CNN's state dict, bit for bit and in its order, from whatever holds a converted network.

    Args:
        path: A folder that a conversion wrote, or a file with the state dict of a converted network.
        architecture: How the CNN is built; a folder needs none.
        ema: Take the moving average of a file's weights.

    Returns:
        A checkpoint whose ``state_dict`` is the CNN's, and whose ``files`` are those that were read.

    Raises:
        ArchitectureNeededError: A file is given, and no architecture.
        NotAConvolutionError: Layers compute what no convolution computes, or nothing is converted.
        ConversionError: As ``open_network``.
    """
    if architecture is None and not ema and is_converted(path):
        return restored_checkpoint(path)
    if architecture is None and not is_converted(path):
        _check_holds_attention(path, holds_attention(read_checkpoint(path, ema=ema).state_dict))
    network = open_network(path, architecture=architecture, ema=ema)
    _check_holds_attention(path, network.is_converted)
    return replace(network.checkpoint, state_dict=network.cnn().state_dict())


def _check_holds_attention(path: Path, holds: bool) -> None:
    if not holds:
        raise NotAConvolutionError(f"{path} holds no attention layer, so there is nothing to restore")


def check_state_dict_file(out: Path, *, force: bool = False, sources: Iterable[Path] = ()) -> None:
    """Refuses a file that ``write_state_dict`` would refuse.

    Raises:
        OutputError: Its name ends in none of .safetensors, .pth and .pt, or it cannot be written.
    """
    if out.suffix not in _WRITERS:
        raise OutputError(f"{out} must end in {', '.join(_WRITERS)}, which says what kind of file is written")
    check_file(out, force=force, sources=sources)


def write_state_dict(state: dict[str, Tensor], out: Path, *, force: bool = False, sources: Iterable[Path] = ()) -> None:
    """Writes a state dict as safetensors or as ``torch.save`` does, by the end of the file's name.

    Raises:
        OutputError: As ``check_state_dict_file``, or the file system failed, or the tensors share so much that
            safetensors, which cannot, would be far larger. The file is then as before.
    """
    check_state_dict_file(out, force=force, sources=(sources := tuple(sources)))
    if out.suffix == _SAFETENSORS:
        check_written_apart(state)
    tensors = copies(state)  # a part of a storage would be written with all of it
    write_file(out, lambda path: _WRITERS[out.suffix](tensors, path), force=force, sources=sources)


def _write_pickle(tensors: dict[str, Tensor], path: Path) -> None:
    try:
        torch.save(tensors, path)
    except RuntimeError as error:  # what torch makes of a full disk
        said = first_line(error)
        raise OutputError(f"{path.name} cannot be written; perhaps the disk is full: {said}") from error


_WRITERS: dict[str, Callable[[dict[str, Tensor], Path], None]] = {
    _SAFETENSORS: lambda tensors, path: write_safetensors(independent(tensors), path, {}),
    ".pth": _write_pickle,
    ".pt": _write_pickle,
}


def stored_layer(entry: LayerEntry, saved: Checkpoint) -> SelfAttention:
    """The attention layer of an entry, with the values that were saved.

    Raises:
        CheckpointError: The values are missing, or do not fit the entry.
    """
    name = entry.names[0]
    stored = entry.stored(name, saved)
    if stored.spec is None or stored.weight not in saved.state_dict:
        raise CheckpointError(f"{saved.path} lacks the weights of the layer {name!r}")
    bias = None if stored.bias is None else saved.state_dict[stored.bias]
    layer = attention_with(convolution(stored.spec, saved.state_dict[stored.weight], bias))
    entry.configure(layer, saved.state_dict)
    own = {key: saved.state_dict[_key(name, key)] for key in layer.state_dict() if _key(name, key) in saved.state_dict}
    load_into(layer, Checkpoint(saved.path, own, saved.sha256))
    return layer


def _key(name: str, key: str) -> str:
    return f"{name}.{key}".removeprefix(".")
