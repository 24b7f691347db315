"""Writes the CNN's state dict of a converted network to a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from ..convert.files.folder import LAYERS_CONTENT
from ..convert.files.opening import Opening
from ..convert.files.state import independent_tensors
from ..convert.tensors import copies, write_safetensors, write_stream
from ..convert.write import write_file
from .opening import opened
from .terminal import Done, wrote


def restore_file(
    source: Path, out: Path, opening: Opening | None = None, *, ungraft: bool = False, force: bool = False
) -> Done:
    """Writes the CNN's state dict, bit for bit and in its order, to a file. The arguments are the command's options."""
    network = opened(source, opening)
    state = network.cnn_state(ungraft_all=ungraft)
    if out.suffix == ".safetensors":
        write = partial(write_safetensors, independent_tensors(state), metadata={})
    else:  # which would write all of a storage for a part of it
        write = partial(write_stream, partial(torch.save, copies(state)))
    write_file(out, write, force=force, sources=network.files)
    ungrafted = [name or "the model itself" for name, trained in network.spare_heads.items() if trained]
    is_layers = network.content == LAYERS_CONTENT
    what = "convolution weights only" if is_layers else "the state dict of the CNN, bit for bit"
    if ungrafted:
        what = f"the state dict of the trained CNN, without the spare heads of {', '.join(ungrafted)}"
    content = "layers" if is_layers else "network"
    return wrote(out, what, tensors=list(state), content=content, ungrafted=ungrafted)
