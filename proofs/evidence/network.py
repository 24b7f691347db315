"""Verifies a user's network: each attention layer beside its convolution, and the whole beside the CNN."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...convert.attention.layer import SelfAttention
from ...convert.certificate.propagation.certificate import NetworkCertificate, certify_network
from ...convert.certificate.wording import NO_USE, is_useful
from ...convert.engines import AUTO
from ...convert.errors import OptionError, Problem, refusing
from ...convert.files.open import Opening
from ...convert.inputs import InputSpec, example_image, random_inputs
from ...convert.model.convert import convert_model, restore_model
from ...convert.preprocessing import Normalization, Preprocessing
from ...convert.size import USUAL_SIZES, Size
from ..terminal.table import Table
from .agreement import Agreement, batch_length, compare
from .arithmetic import certified_arithmetic, check_device
from .image_folder import FolderImages, Preparation
from .random_layers import channel_limits
from .tables import agreement_shown

# "separable" shares no step with the convolution and never forms all pairs; "auto" is what a user runs.
DEFAULT_ENGINES = ("separable", AUTO)
DEFAULT_IMAGES = 8
BATCH = 4  # images at a time


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


def load_pair(
    path: Path,
    *,
    opening: Opening | None = None,
    alpha: float | None = None,
    skip_unsupported: bool = False,
    device: str = "cpu",
    dtype: torch.dtype | None = None,
) -> Pair:
    """Both networks, of which one is read.

    Args:
        path: Whatever ``open_network`` opens: a CNN is converted, a converted network restored.
        opening: How it is opened.
        alpha: Locality strength of a conversion; a converted network has its own.
        skip_unsupported: Leave a CNN's unsupported layers as they are.
        device: Where to.
        dtype: Precision; None keeps the network's.

    Raises:
        OptionError: alpha or skip_unsupported is given for a converted network.
        ArchitectureNeededError: Only layers are read, and no network that could run.
        ConversionError: The networks cannot be loaded, converted or restored.
    """
    check_device(device)
    network = (opening or Opening()).open(path, device=device, dtype=dtype)
    model = network.whole().as_saved()
    if not network.is_converted:
        made = convert_model(model, alpha=alpha, skip_unsupported=skip_unsupported).model.eval()
        return Pair(model, made, network.preprocessing)
    if alpha is not None or skip_unsupported:
        given = "alpha" if alpha is not None else "skipping unsupported layers"
        raise OptionError(f"{path} is converted already, so {given} has no meaning")
    return Pair(restore_model(model, tolerance=math.inf).eval(), model, network.preprocessing)


class Inputs(NamedTuple):
    """What networks are run on.

    Attributes:
        images: Images [count, channels, rows, columns], or batches of what the networks take (``inputs.as_inputs``).
        seed: Of random ones.
        labels: Class indices of the images, [count], where they have some.
    """

    images: Tensor | Sequence[Any]
    seed: int | None = None
    labels: Tensor | None = None

    @property
    def batches(self) -> Sequence[Any]:
        """The batches."""
        return torch.split(self.images, BATCH) if isinstance(self.images, Tensor) else self.images

    @property
    def count(self) -> int:
        """How many images, or other inputs, there are."""
        return self.images.count if isinstance(self.images, FolderImages) else sum(map(batch_length, self.batches))


def choose_inputs(
    pair: Pair,
    *,
    folder: Path | None,
    count: int | None,
    size: Size | None,
    seed: int | None,
    normalization: Normalization | None = None,
    specs: Sequence[InputSpec] = (),
) -> Inputs:
    """Images from a folder, or of normal numbers, as the networks take them, or the inputs that are described.

    Args:
        pair: The networks.
        folder: Where images are; None means random ones.
        count: How many random ones; None means ``DEFAULT_IMAGES``, or one batch of inputs that are described.
        size: Of random ones, and of pictures: rows and columns, or channels before them; None means what the network
            was trained on, or the usual one (``USUAL_SIZES``).
        seed: Of random ones; None means 0.
        normalization: Of a folder's pictures; None means what the network was trained on, or values from -1 to 1.
        specs: Inputs of the networks by their names, whose numbers are drawn.

    Raises:
        OptionError: A folder is given, and a count or a seed of random images too; or a normalization without one; or
            inputs are described, and images asked for.
        CheckpointError: The folder's images cannot be read.
    """
    if specs:
        if folder is not None or size is not None or normalization is not None:
            raise OptionError("inputs that are described are drawn; a folder, a size and a normalization are of images")
        seed = seed or 0
        return Inputs([random_inputs(specs, seed=seed + each) for each in range(count or 1)], seed)
    channels, grid = _channels_and_grid(pair, size)
    if folder is not None:
        return _of_folder(
            pair, folder, count, seed, Preparation(channels or _channels(pair, grid), grid, normalization)
        )
    if normalization is not None:
        raise OptionError("mean and std are for the pictures of a folder; random images are normal numbers already")
    seed = seed or 0
    generator = torch.Generator().manual_seed(seed)
    known = None if pair.preprocessing is None else pair.preprocessing.size
    lengths = grid or known or USUAL_SIZES[pair.first.spec.axes]
    drawn = torch.randn(count or DEFAULT_IMAGES, channels or _channels(pair, lengths), *lengths, generator=generator)
    return Inputs(drawn.to(pair.first.weight), seed)


def _of_folder(pair: Pair, folder: Path, count: int | None, seed: int | None, preparation: Preparation) -> Inputs:
    """The images of a folder."""
    if pair.first.spec.axes != 2:
        raise OptionError(f"the network takes inputs of {pair.first.spec.axes} axes, which pictures are not")
    if count is not None or seed is not None:
        what = "a number of random images" if count is not None else "a seed"
        raise OptionError(f"the images are those of {folder}, so {what} has no meaning")
    known = pair.preprocessing
    if known is not None:
        given = preparation.normalization or known.normalization
        preparation = replace(preparation, normalization=None, preprocessing=replace(known, normalization=given))
    images = FolderImages(folder, preparation, batch_size=BATCH)
    return Inputs(images, labels=images.labels)


def _channels_and_grid(pair: Pair, size: Size | None) -> tuple[int | None, Size | None]:
    """Channels, where they are known without trying, and the size of images, of what ``--size`` says."""
    axes = pair.first.spec.axes
    if size is not None and len(size) == axes + 1:
        return size[0], Size(*size[1:])
    if size is not None and len(size) != axes:
        raise OptionError(f"the network takes inputs of {axes} axes; got the size {size}")
    return (None if pair.preprocessing is None else pair.preprocessing.channels), size


def _channels(pair: Pair, size: Size | None) -> int:
    """Channels of an image that the network runs on."""
    return example_image(pair.cnn, size or USUAL_SIZES[pair.first.spec.axes]).shape[1]


@dataclass(frozen=True)
class NetworkCheck:
    """What was found of a network.

    Attributes:
        agreement: Both networks on the same images, layer by layer and end to end.
        certificate: Bound on the difference of their outputs, for all images within the ranges of these.
        seed: Of the images, if they are random.
    """

    agreement: Agreement
    certificate: NetworkCertificate
    seed: int | None = None

    @property
    def exit_code(self) -> int:
        """0 if the check passed."""
        return 0 if self.passed else 1

    def to_json(self) -> dict[str, Any]:
        """The check as plain data."""
        network = {**self.agreement.to_json(), "certificate": self.certificate.to_json()}
        return {"seed": self.seed, "network": network}

    def shown(self) -> list[Table | str]:
        """The check as tables and lines."""
        seed = [] if self.seed is None else [f"Seed: {self.seed}"]
        return [*agreement_shown("layer", self.agreement), *self.verdict, *seed]

    @property
    def passed(self) -> bool:
        """Whether some layer ran, and every one and the whole stayed within their bounds; what is NaN does not."""
        return bool(self._layers) and not self._beyond

    @property
    def verdict(self) -> tuple[str, ...]:
        """The result in a few sentences, a line each."""
        if not self._layers:
            return ("No attention layer ran: nothing is verified.",)
        if self._beyond:
            return (f"Beyond the bound, or not finite: {', '.join(self._beyond)}.",)
        ratio, name = max(((_ratio(found, bound), name) for name, found, bound in self._layers), key=lambda one: one[0])
        count = len(self._layers) // len(self.agreement.engines)
        layers = f"All {count} layers are within their bounds; largest difference / bound {ratio:.2g}, {name}."
        return layers, self._end_to_end

    @property
    def _layers(self) -> list[tuple[str, float, float]]:
        """Each layer in each engine: name, difference and bound."""
        return [
            (f"{layer.name} ({engine.engine})", layer.difference, layer.bound)
            for engine in self.agreement.engines
            for layer in engine.layers
        ]

    @property
    def _wholes(self) -> list[tuple[str, float, float]]:
        """The whole network in each engine, likewise, if it has a bound."""
        bound = self.certificate.bound
        if bound is None:
            return []
        return [(f"end to end ({engine.engine})", engine.logit_difference, bound) for engine in self.agreement.engines]

    @property
    def _beyond(self) -> list[str]:
        return [name for name, found, bound in self._layers + self._wholes if not found <= bound]

    @property
    def _end_to_end(self) -> str:
        if self.certificate.bound is None:
            reasons = [f"{problem.name}: {problem.reason}".removeprefix(": ") for problem in self.certificate.unbounded]
            return f"End to end, no finite bound is known{''.join(f'; {reason}' for reason in reasons[:1])}."
        found = max(difference for _, difference, _ in self._wholes)
        here, bound = f"End to end, scores differ by {found:.2g} at most", self.certificate
        if not is_useful(bound.bound, bound.outputs):
            return f"{here}. {NO_USE}."
        return f"{here}; the bound, for all images within the ranges of these, is {bound.in_words}."


def verify_network(
    pair: Pair,
    inputs: Inputs,
    *,
    engines: Sequence[str] = DEFAULT_ENGINES,
    progress: Callable[[int], None] = lambda _: None,
) -> NetworkCheck:
    """Runs both networks on all images, see ``compare``, and bounds how far apart they can be.

    Raises:
        ConversionError: The networks do not run on such images, or give no scores.
    """
    shown = inputs.batches[0]
    what = f"images {list(shown.shape[1:])}" if isinstance(shown, Tensor) else f"inputs {', '.join(shown)}"
    with (
        refusing(f"the network does not give scores for {what}"),
        certified_arithmetic(threads=None),
    ):
        agreement = compare(pair.cnn, pair.attention, inputs.batches, inputs.labels, engines=engines, progress=progress)
    return NetworkCheck(agreement, _certificate(pair.attention, inputs.batches), inputs.seed)


def _certificate(attention: nn.Module, batches: Sequence[Any]) -> NetworkCertificate:
    """The bound on the whole network, for images within the ranges of these."""
    first = next(module for module in attention.modules() if isinstance(module, SelfAttention))
    if not isinstance(batches[0], Tensor):
        problem = "bounds are carried through networks of one image, and this one takes other inputs"
        return NetworkCertificate(USUAL_SIZES[first.spec.axes], None, (), (Problem("", problem),))
    size = Size(*batches[0].shape[2:])
    if batches[0].shape[1] != first.in_channels:
        problem = f"its first layer sees {first.in_channels} channels, the image has {batches[0].shape[1]}"
        return NetworkCertificate(size, None, (), (Problem("", problem),))
    if not all(bool(images.isfinite().all()) for images in batches):
        return NetworkCertificate(size, None, (), (Problem("", "an image holds NaN or infinite values"),))
    lows, highs = zip(*(channel_limits(images.to(first.weight)) for images in batches), strict=True)
    limits = torch.stack(lows).amin(0), torch.stack(highs).amax(0)
    return certify_network(attention, input_range=limits, size=size)


def _ratio(difference: float, bound: float) -> float:
    return difference / bound if bound else 0.0
