"""From a converted network back to the CNN's state dict; a folder needs no code for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ..errors import NotAConvolutionError, OutputError
from .architecture import Architecture
from .attention_keys import holds_attention, without_attention
from .checkpoint import read_checkpoint
from .folder import LAYERS_CONTENT, is_converted, read_config
from .open import open_network
from .tensors import aliases, copies, independent, write_safetensors, write_stream
from .write import CONFIG, WEIGHTS, check_file, write_file

_SAFETENSORS = ".safetensors"
_SPARE = 2**28  # bytes that shared tensors may come to when they are written apart, besides twice what they hold


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


def restored_state(
    path: str | Path,
    *,
    architecture: Architecture | None = None,
    ema: bool = False,
    weights: str | None = None,
    trust: bool = False,
) -> Restored:
    """The CNN's state dict, bit for bit and in its order, from whatever holds a converted network.

    Args:
        path: A folder that a conversion wrote, or a file with the state dict of a converted network.
        architecture: How the CNN is built; a folder needs none.
        ema: Take the moving average of a file's weights.
        weights: Key under which a file's weights lie.
        trust: As for ``open_network``.

    Raises:
        ArchitectureNeededError: A file is given, and no architecture.
        NotAConvolutionError: Layers compute what no convolution computes, or nothing is converted.
        ConversionError: As ``open_network``.
    """
    path = Path(path)
    is_folder = is_converted(path)
    if architecture is None and not is_folder:
        state = read_checkpoint(path, ema=ema, weights=weights, trust=trust).state_dict
        _check_holds_attention(path, holds_attention(state))
    network = open_network(path, architecture=architecture, ema=ema, weights=weights, trust=trust)
    _check_holds_attention(path, network.is_converted)
    cnn, saved = network.cnn(), network.checkpoint
    if is_folder and network.architecture is None:  # the folder has all tensors of the network, connected or not
        is_layers = is_folder and read_config(path).content == LAYERS_CONTENT
        return Restored(without_attention(saved.state_dict, network.entries), network.files, is_layers)
    return Restored(cnn.state_dict(), network.files)


def restore_file(
    source: Path,
    out: Path,
    *,
    architecture: Architecture | None = None,
    ema: bool = False,
    weights: str | None = None,
    trust: bool = False,
    force: bool = False,
) -> Restored:
    """Writes the CNN's state dict to a file.

    Args:
        source: As ``restored_state`` takes; so are the four that follow ``out``.
        out: As ``write_state_dict`` takes.
        architecture: Likewise.
        ema: Likewise.
        weights: Likewise.
        trust: Likewise.
        force: Replace a file that exists.

    Raises:
        ConversionError: As ``restored_state`` and ``write_state_dict``; what can be refused before reading, is.
    """
    check_state_dict_file(out, force=force, sources=[source, source / CONFIG, source / WEIGHTS])
    restored = restored_state(source, architecture=architecture, ema=ema, weights=weights, trust=trust)
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
        OutputError: As ``check_state_dict_file``, or the file system failed, or the tensors share so much that
            safetensors, which cannot, would be far larger. The file is then as before.
    """
    check_state_dict_file(out, force=force, sources=(sources := tuple(sources)))
    if out.suffix == _SAFETENSORS:
        _check_written_apart(state)
    tensors = copies(state)  # a part of a storage would be written with all of it
    write_file(out, lambda path: _WRITERS[out.suffix](tensors, path), force=force, sources=sources)


def _check_holds_attention(path: Path, holds: bool) -> None:
    if not holds:
        raise NotAConvolutionError(f"{path} holds no attention layer, so there is nothing to restore")


def _check_written_apart(state: dict[str, Tensor]) -> None:
    """Refuses to write every name's numbers by themselves where that makes far more of them."""
    shared = aliases(state)
    held = sum(tensor.nbytes for name, tensor in state.items() if name not in shared)
    written = held + sum(state[name].nbytes for name in shared)
    if written > 2 * held + _SPARE:
        raise OutputError(
            f"{len(shared)} of the {len(state)} tensors share their numbers with others; safetensors would hold "
            f"{written} bytes in place of {held}, a file that ends in .pth or .pt keeps them shared"
        )


def _write_pickle(tensors: dict[str, Tensor], path: Path) -> None:
    write_stream(partial(torch.save, tensors), path)


_WRITERS: dict[str, Callable[[dict[str, Tensor], Path], None]] = {
    _SAFETENSORS: lambda tensors, path: write_safetensors(independent(tensors), path, {}),
    ".pth": _write_pickle,
    ".pt": _write_pickle,
}
