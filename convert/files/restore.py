"""From a converted network back to the CNN's state dict; a folder needs no code for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ..errors import NotAConvolutionError, OutputError
from .checkpoint import read_checkpoint
from .entry import holds_attention, without_attention
from .folder import LAYERS_CONTENT, converted_in, is_converted, read_folder
from .open import Opening, check_convolutions, check_options
from .tensors import copies, independent, write_safetensors, write_stream
from .write import CONFIG, WEIGHTS, check_file, write_file

_SAFETENSORS = ".safetensors"


@dataclass(frozen=True)
class Restored:
    """The state dict of a CNN.

    Attributes:
        state_dict: Its tensors, bit for bit and in its order.
        files: Every file that was read.
        is_layers: Whether it is the weights of convolutions alone, without the rest of their network.
    """

    state_dict: dict[str, Tensor]
    files: tuple[Path, ...]
    is_layers: bool = False


def restored_state(path: str | Path, opening: Opening | None = None) -> Restored:
    """The CNN's state dict, bit for bit and in its order, from whatever holds a converted network.

    Args:
        path: A folder that a conversion wrote, or a file with the state dict of a converted network.
        opening: How it is opened; a folder needs no architecture.

    Raises:
        ArchitectureNeededError: A file is given, and no architecture.
        NotAConvolutionError: Layers compute what no convolution computes, or nothing is converted.
        ConversionError: As ``open_network``.
    """
    path, opening = converted_in(Path(path)), opening or Opening()
    is_folder = is_converted(path)
    if opening.architecture is None and not is_folder:
        saved = read_checkpoint(path, ema=opening.ema, weights=opening.weights, trust=opening.trust)
        _check_holds_attention(path, holds_attention(saved.state_dict))
    if is_folder and opening.architecture is None:  # it has all tensors of the network, and no code is needed
        check_options(path, ema=opening.ema, weights=opening.weights)
        config, saved = read_folder(path)
        check_convolutions(config.layers, saved)
        state = without_attention(saved.state_dict, config.layers)
        return Restored(state, saved.files, config.content == LAYERS_CONTENT)
    network = opening.open(path)
    _check_holds_attention(path, network.is_converted)
    return Restored(network.cnn().state_dict(), network.files)


def restore_file(source: Path, out: Path, opening: Opening | None = None, *, force: bool = False) -> Restored:
    """Writes the CNN's state dict to a file.

    Args:
        source: As ``restored_state`` takes.
        out: As ``write_state_dict`` takes.
        opening: As ``restored_state`` takes.
        force: Replace a file that exists.

    Raises:
        ConversionError: As ``restored_state`` and ``write_state_dict``; what can be refused before reading, is.
    """
    check_state_dict_file(out, force=force, sources=[source, source / CONFIG, source / WEIGHTS])
    restored = restored_state(source, opening)
    write_state_dict(restored.state_dict, out, force=force, sources=restored.files)
    return restored


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
        OutputError: As ``check_state_dict_file``, or the file system failed. The file is then as before.
    """
    check_state_dict_file(out, force=force, sources=(sources := tuple(sources)))
    tensors = copies(state)  # a part of a storage would be written with all of it
    write_file(out, lambda path: _WRITERS[out.suffix](tensors, path), force=force, sources=sources)


def _check_holds_attention(path: Path, holds: bool) -> None:
    if not holds:
        raise NotAConvolutionError(f"{path} holds no attention layer, so there is nothing to restore")


def _write_pickle(tensors: dict[str, Tensor], path: Path) -> None:
    write_stream(partial(torch.save, tensors), path)


_WRITERS: dict[str, Callable[[dict[str, Tensor], Path], None]] = {
    _SAFETENSORS: lambda tensors, path: write_safetensors(independent(tensors), path, {}),
    ".pth": _write_pickle,
    ".pt": _write_pickle,
}
