"""Verifies a user's network: each attention layer beside its convolution, and the whole beside the CNN."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...convert.attention.layer import SelfAttention
from ...convert.certificate.network.certificate import NetworkCertificate, certify_network
from ...convert.certificate.wording import NO_USE, is_useful
from ...convert.engines import AUTO
from ...convert.errors import OptionError, Problem, refusing
from ...convert.files.open import Opening
from ...convert.model.convert import convert_model, restore_model
from ...convert.preprocessing import Normalization
from ...convert.size import USUAL_SIZES, Size
from ..terminal.table import Table
from .agreement import Agreement, compare
from .arithmetic import certified_arithmetic, check_device
from .image_folder import read_images
from .random_layers import channel_limits
from .tables import agreement_shown

# "separable" shares no step with the convolution and never forms all pairs; "auto" is what a user runs.
DEFAULT_ENGINES = ("separable", AUTO)
DEFAULT_IMAGES = 8
BATCH = 4  # images at a time


@dataclass(frozen=True)
class Pair:
    """A CNN and its attention, both in eval mode."""

    cnn: nn.Module
    attention: nn.Module

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
        return Pair(model, convert_model(model, alpha=alpha, skip_unsupported=skip_unsupported).model.eval())
    if alpha is not None or skip_unsupported:
        given = "alpha" if alpha is not None else "skipping unsupported layers"
        raise OptionError(f"{path} is converted already, so {given} has no meaning")
    return Pair(restore_model(model, tolerance=math.inf).eval(), model)


class Inputs(NamedTuple):
    """Images that networks are run on.

    Attributes:
        images: [count, channels, rows, columns].
        seed: Of random ones.
    """

    images: Tensor
    seed: int | None = None


def choose_inputs(
    pair: Pair,
    *,
    folder: Path | None,
    count: int | None,
    size: Size | None,
    seed: int | None,
    normalization: Normalization | None = None,
) -> Inputs:
    """Images from a folder, or of normal numbers, as the networks take them.

    Args:
        pair: The networks.
        folder: Where images are; None means random ones.
        count: How many random ones; None means ``DEFAULT_IMAGES``.
        size: Of random ones, the usual one (``USUAL_SIZES``) if None, and of pictures.
        seed: Of random ones; None means 0.
        normalization: Of a folder's pictures; None means values from -1 to 1.

    Raises:
        OptionError: A folder is given, and a count or a seed of random images too; or a normalization without one.
        CheckpointError: The folder's images cannot be read.
    """
    channels, axes, weight = pair.first.in_channels, pair.first.spec.axes, pair.first.weight
    if size is not None and len(size) != axes:
        raise OptionError(f"the network takes inputs of {axes} axes; got the size {size}")
    if folder is not None:
        if axes != 2:
            raise OptionError(f"the network takes inputs of {axes} axes, which pictures are not")
        if count is not None or seed is not None:
            what = "a number of random images" if count is not None else "a seed"
            raise OptionError(f"the images are those of {folder}, so {what} has no meaning")
        return Inputs(read_images(folder, channels=channels, size=size, normalization=normalization).to(weight))
    if normalization is not None:
        raise OptionError("mean and std are for the pictures of a folder; random images are normal numbers already")
    seed = seed or 0
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(count or DEFAULT_IMAGES, channels, *(size or USUAL_SIZES[axes]), generator=generator)
    return Inputs(drawn.to(weight), seed)


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
    images, seed = inputs
    with (
        refusing(f"the network does not give scores for images {list(images.shape[1:])}"),
        certified_arithmetic(threads=None),
    ):
        agreement = compare(
            pair.cnn, pair.attention, images, None, engines=engines, batch_size=BATCH, progress=progress
        )
    return NetworkCheck(agreement, _certificate(pair.attention, images), seed)


def _certificate(attention: nn.Module, images: Tensor) -> NetworkCertificate:
    size = Size(images.shape[2], images.shape[3])
    if not bool(images.isfinite().all()):
        return NetworkCertificate(size, None, (), (Problem("", "an image holds NaN or infinite values"),))
    return certify_network(attention, input_range=channel_limits(images), size=size)


def _ratio(difference: float, bound: float) -> float:
    return difference / bound if bound else 0.0
