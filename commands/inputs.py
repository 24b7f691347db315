"""The inputs that commands run networks on: pictures of a folder, random images, or tensors of any kind.

Pictures come in batches, prepared as the network's owner prepares them; tensors are taken as they are.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..convert.agreement.networks import batch_length
from ..convert.arguments import USUAL_SIZES, Size, check_memory
from ..convert.errors import CheckpointError, ImageSizesError, OptionError
from ..convert.files.preprocessing import Preprocessing, caveats
from ..convert.files.readers import read_contents
from ..convert.inputs import example_image, program_shape, random_inputs
from ..convert.layer.layer import SelfAttention
from ..learn.data.datasets import find_places
from ..learn.data.pictures import SUFFIXES, check_plain_file, picture_reader, read_picture
from .options import InputOptions
from .terminal import say

DEFAULT_IMAGES = 2
BATCH = 1  # images at a time


@dataclass(frozen=True)
class Pair:
    """A CNN and its attention, both in eval mode, and what the CNN was trained on, where that is known."""

    cnn: nn.Module
    attention: nn.Module
    preprocessing: Preprocessing | None = None

    @property
    def first(self) -> SelfAttention:
        """The first attention layer, whose channels a network's input mostly has."""
        return next(module for module in self.attention.modules() if isinstance(module, SelfAttention))


def refuse_conversion(path: Path, *, alpha: float | None, skip_unsupported: bool) -> None:
    """Raises an OptionError if an option of a conversion is given for a network that is converted."""
    if alpha is not None or skip_unsupported:
        given = "alpha" if alpha is not None else "skipping unsupported layers"
        raise OptionError(f"{path} is converted already, so {given} has no meaning")


class Inputs(NamedTuple):
    """Inputs that networks are run on."""

    # images [count, channels, rows, columns], or whatever the networks take (``inputs.as_inputs``)
    batches: Sequence[Any]
    seed: int | None = None
    labels: Tensor | None = None  # class indices of the images, [count], where they have some
    usual: Size | None = None  # the images' size, where neither the options nor the network said one

    @property
    def number(self) -> int:
        """Number of images, or other inputs."""
        own = self.batches
        return own.number if isinstance(own, FolderImages) else sum(map(batch_length, own))


def choose_inputs(pair: Pair, chosen: InputOptions) -> Inputs:
    """Reads images from a folder, or draws random images or the described inputs, as the networks take them.

    Raises:
        OptionError: A folder is given, and a count or a seed of random images too; or a normalization without one; or
            inputs are described, and images asked for.
        CheckpointError: The folder's images cannot be read.
    """
    folder, normalization = chosen.data, chosen.normalization
    if chosen.specs:
        if folder is not None or chosen.size is not None or normalization is not None:
            raise OptionError("described inputs are random; a folder, a size and a normalization apply to images only")
        seed = chosen.seed or 0
        drawn = [random_inputs(chosen.specs, seed=seed + each) for each in range(chosen.count or 1)]
        return Inputs(drawn, seed)
    # a size may begin with the channels
    axes, channels = pair.first.spec.axes, None if pair.preprocessing is None else pair.preprocessing.channels
    size = None if chosen.size is None else chosen.size.along(axes)
    if size is not None and len(size) == axes + 1:
        channels, size = size[0], Size(*size[1:])
    if size is not None and len(size) != axes:
        raise OptionError(f"the network takes inputs of {axes} axes; got the size {size}")
    chosen = replace(chosen, size=size)
    if folder is None:
        if normalization is not None:
            raise OptionError("mean and std are for the pictures of a folder; random images are normal numbers already")
        return _random_images(pair, channels, chosen)
    if axes != 2:
        raise OptionError(f"the network takes inputs of {axes} axes, which pictures are not")
    if chosen.count is not None or chosen.seed is not None:
        what = "a number of random images" if chosen.count is not None else "a seed"
        raise OptionError(f"the images are those of {folder}, so {what} has no meaning")
    pictures = folder_images(folder, pair.cnn, pair.preprocessing, channels, chosen)
    return Inputs(pictures, labels=pictures.labels)


def folder_images(
    folder: Path,
    network: nn.Module,
    known: Preprocessing | None,
    channels: int | None,
    chosen: InputOptions,
    *,
    batch_size: int = BATCH,
) -> FolderImages:
    """The images of a folder, whose pictures are prepared as the network's owner does, or scaled and normalised."""
    size, normalization = None if chosen.size is None else chosen.size.along(2), chosen.normalization
    taken: int = channels or example_image(network, size or USUAL_SIZES[2]).shape[1]

    def read(path: Path) -> Tensor:
        picture = read_picture(path, taken, size)
        return picture if normalization is None else normalization(picture)

    if known is not None and normalization is not None:
        known = known.with_normalization(normalization)
    say(*caveats(known), err=True)
    reader = read if known is None else picture_reader(known, size)
    return FolderImages(folder, taken, reader, batch_size=batch_size)


def _random_images(pair: Pair, channels: int | None, chosen: InputOptions) -> Inputs:
    """Normal numbers, of the size that is given, or the network's own, or the usual one."""
    axes, known = pair.first.spec.axes, pair.preprocessing
    images, *lengths = program_shape(pair.cnn) or (None,)  # of a program that takes one shape
    own = [length for length in lengths[1:] if length is not None]
    fixed = Size(*own) if len(own) == axes else None
    said = chosen.size or (known and known.size) or fixed
    grid = said or USUAL_SIZES[axes]
    channels = channels or example_image(pair.cnn, grid).shape[1]
    seed, batch, count = chosen.seed or 0, images or BATCH, chosen.count or DEFAULT_IMAGES
    count = count if images is None else -(-count // images) * images  # whole batches
    check_memory(4 * count * channels * math.prod(grid), f"{count:,} random images of {grid}")
    drawn = torch.randn(count, channels, *grid, generator=torch.Generator().manual_seed(seed))
    return Inputs(torch.split(drawn.to(pair.first.weight), batch), seed, usual=None if said else grid)


_TENSORS = (".npy", ".pt")
_SHOWN = ("test", "validation", "train", "")  # the first of these parts that a folder has


class FolderImages(Sequence[Tensor]):
    """Batches of the images of a folder, each read when it is asked for.

    Args:
        folder: Holds ``.npy`` or ``.pt`` files with a tensor [channels, rows, columns] or a batch of them, preprocessed
            as the network wants it, and pictures (PNG, JPEG, ...), itself, in a folder for each class, or in such
            folders for train, val and test, of which the last part is taken; other files are left alone.
        channels: Channels of the network's input.
        read: Reads a picture as [channels, rows, columns], float32.
        batch_size: Images in a batch.

    Attributes:
        labels: Class indices, [count], or None where there are no classes.
        number: Number of images.

    Raises:
        CheckpointError: There is no image, or one cannot be read.
        ImageSizesError: They are not of one size.
    """

    def __init__(self, folder: Path, channels: int, read: Callable[[Path], Tensor], *, batch_size: int) -> None:
        self._channels, self._picture, self._batch_size = channels, read, batch_size
        if not folder.is_dir():
            what = f"{folder} is a file; its folder is {folder.parent}" if folder.exists() else f"there is no {folder}"
            raise CheckpointError(f"images come from a folder, and {what}")
        endings = (*_TENSORS, *SUFFIXES)
        parts = find_places(folder, endings)
        places = parts[next(part for part in _SHOWN if part in parts)]
        if not places.files:
            raise CheckpointError(f"{folder} holds no image; files end in {', '.join(sorted(endings))}")
        counts = [1 if path.suffix.lower() in SUFFIXES else len(self._read(path)) for path in places.files]
        self._images = [(path, place) for path, n in zip(places.files, counts, strict=True) for place in range(n)]
        self.shape, self.number = self._read(places.files[0]).shape[1:], len(self._images)
        own = None if places.labels is None else torch.tensor(places.labels)
        self.labels = None if own is None else own.repeat_interleave(torch.tensor(counts))

    def __len__(self) -> int:
        return -(-self.number // self._batch_size)

    def __getitem__(self, index: Any) -> Any:
        """A batch, [count, channels, rows, columns]."""
        chosen = self._images[index * self._batch_size : (index + 1) * self._batch_size]
        if not chosen:
            raise IndexError(index)
        return torch.cat([self._image(path, place) for path, place in chosen])

    def _image(self, path: Path, place: int) -> Tensor:
        image = self._read(path)[place : place + 1].float()
        if image.shape[1:] != self.shape:
            raise ImageSizesError(f"{path} and {self._images[0][0]} are of different sizes")
        return image

    def _read(self, path: Path) -> Tensor:
        """The images of a file, [count, channels, rows, columns]; those of an array or tensor over the mapped file."""
        check_plain_file(path)
        channels, readers = self._channels, {".npy": _read_array, ".pt": _read_tensor}
        image = readers.get(path.suffix.lower(), self._picture)(path)
        batch = image.unsqueeze(0) if image.ndim == 3 else image
        if batch.ndim != 4 or batch.shape[1] != channels:
            shape = f"[{channels}, rows, columns], alone or in a batch"
            raise CheckpointError(f"{path} holds a tensor {list(image.shape)}; the network takes {shape}")
        if image.is_complex() or not image.numel():
            raise CheckpointError(f"{path} holds {'complex numbers' if image.numel() else 'no numbers'}")
        return batch


def _read_array(path: Path) -> Tensor:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about headers that Python 2 wrote
            return torch.from_numpy(np.lib.format.open_memmap(path, mode="c"))
    except Exception as error:  # a damaged header makes numpy raise many things
        raise CheckpointError(f"{path} is not an array of numbers") from error


def _read_tensor(path: Path) -> Tensor:
    found = read_contents(path).value
    if not isinstance(found, Tensor) or found.layout is not torch.strided:
        raise CheckpointError(f"{path} holds something else, not a dense tensor")
    return found.detach()
