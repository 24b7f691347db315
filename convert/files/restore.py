"""Restores the CNN's state dict from a converted network; a folder needs no code for this."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ..errors import NotAConvolutionError, OutputError
from .checkpoint import Opening, read_checkpoint
from .entry import holds_attention, without_attention
from .folder import LAYERS_CONTENT, converted_in, is_converted, read_folder
from .open import check_convolutions, check_options, open_network
from .tensors import copies, independent, write_safetensors, write_stream
from .write import CONFIG, WEIGHTS, check_file, write_file


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
        opening: Options for opening it; a folder needs no architecture.

    Raises:
        ArchitectureNeededError: A file is given, and no architecture.
        NotAConvolutionError: Layers compute what no convolution computes, or nothing is converted.
        ConversionError: As ``open_network``.
    """
    path, opening = converted_in(Path(path)), opening or Opening()
    if is_converted(path):  # it has all tensors of the network
        check_options(path, opening)
        config, saved = read_folder(path)
        check_convolutions(config.layers, saved)
        state = without_attention(saved.state_dict, config.layers)
        return Restored(state, saved.files, config.content == LAYERS_CONTENT)
    if opening.architecture is not None or holds_attention(read_checkpoint(path, opening).state_dict):
        network = open_network(path, opening)
        if network.is_converted:
            return Restored(network.cnn().state_dict(), network.files)
    raise NotAConvolutionError(f"{path} holds no attention layer, so there is nothing to restore")


def restore_file(source: Path, out: Path, opening: Opening | None = None, *, force: bool = False) -> Restored:
    """Writes the CNN's state dict to a file.

    Args:
        source: As ``restored_state`` takes.
        out: The file; the end of its name says what is written: .safetensors, .pth or .pt.
        opening: As ``restored_state`` takes.
        force: Replace a file that exists.

    Raises:
        OutputError: The suffix is another, or the file cannot be written; checked before reading where possible.
        ConversionError: As ``restored_state``.
    """
    check_state_dict_file(out, force=force, sources=[source, source / CONFIG, source / WEIGHTS])
    restored = restored_state(source, opening)
    tensors = copies(restored.state_dict)  # a part of a storage would be written with all of it
    write_file(out, lambda path: _WRITERS[out.suffix](tensors, path), force=force, sources=restored.files)
    return restored


def check_state_dict_file(out: Path, *, force: bool = False, sources: Iterable[Path] = ()) -> None:
    """Refuses a file with another suffix, or that cannot be written.

    Raises:
        OutputError: It is such a file.
    """
    if out.suffix not in _WRITERS:
        raise OutputError(f"{out} must end in {', '.join(_WRITERS)}, which says what kind of file is written")
    check_file(out, force=force, sources=sources)


def _write_pickle(tensors: dict[str, Tensor], path: Path) -> None:
    write_stream(partial(torch.save, tensors), path)


_WRITERS: dict[str, Callable[[dict[str, Tensor], Path], None]] = {
    ".safetensors": lambda tensors, path: write_safetensors(independent(tensors), path, {}),
    ".pth": _write_pickle,
    ".pt": _write_pickle,
}
