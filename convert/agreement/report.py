"""The report of a conversion with its bounds, as ``report.json`` holds it, and its summary in a few lines.

The summary samples literal attention on a drawn image, at the inputs that the layers then get. Whether the converted
network is the CNN's own program is a statement of its own: in another program the same numbers would not be the same.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import Size
from ..bounds.tail import counts_heads_alone
from ..certificate.distance import describe_distance
from ..certificate.layer import LayerComparison, certify, number
from ..certificate.literal import LiteralSample, inputs_of_layers, sample_layer
from ..certificate.network.certificate import NetworkCertificate, certify_network, converted, size_of_images
from ..certificate.same_program import is_same_program
from ..context import without_autocast
from ..engines.base import convolution_flops
from ..errors import ConversionError, Problem, listed
from ..examples.images import DRAWN_SIZE, drawn_image, drawn_input, network_input
from ..files.layers import Layers, attention_named
from ..inputs import likely_channels, named_tensors
from ..layer.construction import not_a_convolution
from ..layer.layer import SelfAttention
from ..network.convert import restore_model
from ..network.plan import PASSED_BY, watching_runs
from ..network.report import LayerReport, Report
from ..subclasses.computed import in_eval_mode

SAME_BITS = "Same bits as the CNN"
_ANY = 1e30  # a tolerance that every soft layer is within
_FLOPS = 2e10  # most FLOPs to run a network on the image: seconds


@dataclass(frozen=True)
class Summary:
    """Summary of a conversion.

    Attributes:
        layers: Number of attention layers.
        heads: Number of heads in all of them.
        samples: Literal attention of each that is certified and ran, by its name.
        is_same_program: Whether the converted network is the CNN's program, call for call.
        idle: The layers that did not run on the drawn image, each with the reason; None if it did not run on one.
        image: The drawn image that it ran on, [1, channels, rows, columns]; None for layers alone, or if it did not.
        apart: Of soft attention, the largest difference of an output from the CNN's on that image, and the largest
            output of the CNN's; None where attention is one-hot, was trained, or no such numbers are known.
    """

    layers: int
    heads: int
    samples: Mapping[str, LiteralSample]
    is_same_program: bool
    idle: tuple[Problem, ...] | None = None
    image: Tensor | None = field(default=None, repr=False, compare=False)
    apart: tuple[float, float] | None = None

    @classmethod
    def of(cls, model: nn.Module, layers: Sequence[LayerReport], *, size: Size) -> Summary:
        """Samples literal attention on a drawn image; of ``size``, where the network does not run on small ones."""
        image, inputs, same, idle = None, dict[str, Tensor](), False, None
        with contextlib.suppress(ConversionError):
            if isinstance(model, Layers):
                inputs = {layer.name: drawn_input(attention_named(model, layer.name)) for layer in layers}
            else:
                sizes = (DRAWN_SIZE, *([size] if len(size) == len(DRAWN_SIZE) else []))
                with watching_runs(model) as runs:
                    image, inputs = run_on_drawn(model, sizes, most_flops=_FLOPS)
                idle = runs.idle(model)
                same = len(idle) < len(layers) and is_the_cnn(model, _as_taken(model, image))
        samples = {}
        for name, x in inputs.items():
            with contextlib.suppress(ConversionError):  # scores cancel, or an input is not finite
                samples[name] = sample_layer(attention_named(model, name), x)
        apart = None if image is None else _apart(model, _as_taken(model, image))
        return cls(len(layers), sum(layer.heads for layer in layers), samples, same, idle, image, apart)

    @property
    def in_words(self) -> str:
        """The summary in a few sentences, the outcome first."""
        return " ".join([*([self.outcome] if self.outcome else []), self.counts])

    @property
    def outcome(self) -> str:
        """How the network compares with the CNN, as a sentence; "" if that is not known."""
        if self.apart is not None:
            difference, largest = map(number, self.apart)
            return (
                f"Soft attention: on a drawn image outputs differ from the CNN's, which reach {largest}, by up to "
                f"{difference}; alpha_for finds a sharpness that is certified for a tolerance."
            )
        return f"{SAME_BITS}: each layer is computed by the convolution call itself." if self.is_same_program else ""

    @property
    def counts(self) -> str:
        """Layers and heads, what literal attention measures, and what did not run."""
        sentences = [f"{self.layers:,} layer{'s' * (self.layers != 1)}, {self.heads:,} head{'s' * (self.heads != 1)}."]
        if self.samples:
            known = self.samples.values()
            difference, bound = (max(getattr(one, name) for one in known) for name in ("difference", "bound"))
            limit = f"worst case for these inputs {number(bound)}" if math.isfinite(bound) else "no finite worst case"
            queries = max(one.queries for one in known)
            sentences.append(
                f"Literal attention, at {queries} queries of each layer on a generated image: measured difference from "
                f"the convolution {number(difference)}, {limit}."
            )
        for reason in dict.fromkeys(each.reason for each in self.idle or ()):
            sentences.append(f"{listed([each.name for each in self.idle or () if each.reason == reason])} {reason}.")
        return " ".join(sentences)

    def to_json(self) -> dict[str, Any]:
        """The summary as plain data, without the single layers."""
        numbers = {"layers": self.layers, "heads": self.heads, "same_program": self.is_same_program}
        return numbers | {"sampled": len(self.samples), "in_words": self.in_words}


@torch.no_grad()
def _apart(model: nn.Module, image: Tensor) -> tuple[float, float] | None:
    """How far the outputs of soft attention are from its CNN's, and how large these are; None where it is not soft."""
    if all(layer.regime.is_exact for layer in model.modules() if isinstance(layer, SelfAttention)):
        return None
    with contextlib.suppress(ConversionError), in_eval_mode(model):
        cnn = restore_model(model, tolerance=_ANY)  # refuses what was trained
        outputs = (named_tensors(network(image)).values() for network in (model, cnn))
        pairs = [(one, two) for one, two in zip(*outputs, strict=True) if two.is_floating_point()]
        if pairs:
            return _largest(one - two for one, two in pairs), _largest(two for _, two in pairs)
    return None


def _largest(tensors: Iterable[Tensor]) -> float:
    return max(float(tensor.abs().max()) for tensor in tensors)


def run_on_drawn(
    model: nn.Module, sizes: Sequence[Size], *, most_flops: float = math.inf
) -> tuple[Tensor, dict[str, Tensor]]:
    """Runs a network on a drawn image of the first size that it takes; if it takes none, the first error is raised.

    Returns:
        The image, [1, channels, rows, columns], and the first input of each attention layer, by name.
    """
    errors = []
    for size, channels in product(dict.fromkeys(sizes), likely_channels(model)):
        try:
            with torch.device("cpu"):  # whatever torch's default is
                image = drawn_image(channels, size)
            return image, inputs_of_layers(model, _as_taken(model, image), allowed=_within(most_flops))
        except ConversionError as error:
            errors.append(error)
    raise errors[0]


def _as_taken(model: nn.Module, image: Tensor) -> Tensor:
    """An image as a network of its first attention layer's axes takes it, in that layer's precision."""
    first = next((each for each in model.modules() if isinstance(each, SelfAttention)), None)
    return image if first is None else network_input(image.to(first.weight), first.spec.axes)


def _within(flops: float) -> Callable[[SelfAttention, Tensor], bool]:
    left = flops

    def allowed(layer: SelfAttention, x: Tensor) -> bool:
        nonlocal left
        left -= convolution_flops(layer.spec, Size(*x.shape[2:]), batch=1)
        return left >= 0

    return allowed


def is_the_cnn(model: nn.Module, image: Tensor) -> bool:
    """Whether a network is its CNN's program; False at once if a layer is not in the exact regime."""
    layers = [module for module in model.modules() if isinstance(module, SelfAttention)]
    calls = (layer.regime.is_exact and layer.content is None and layer.spare is None for layer in layers)
    if model.training or not all(calls):
        return False
    try:
        return is_same_program(restore_model(model), model, image)
    except ConversionError:  # a layer was trained away from its convolution
        return False


ALONE = "its bound counts each head by itself, which is larger: kernel and attention are too wide for the sharper sum"
MOST_LAYERS = 8  # layers of a network whose outputs are bounded for every image; for deeper ones the bound is useless
CERTIFIED_RANGE = (-1.0, 1.0)  # a layer's inputs are not known here; the bound grows in proportion to them


@dataclass(frozen=True, kw_only=True)
class CertifiedReport(Report):
    """Conversion report whose layers have certificates.

    Attributes:
        network: Bound on the difference between the converted network and the CNN; None if only the layers are known,
            or for more than ``MOST_LAYERS`` layers, for which the bound of ``certify_network`` is useless.
        input_range: Smallest and largest value of the images, and of each layer's input, that bounds are for.
        summary: The first lines of the report.
        comparison: The comparison on images, if one was made.
    """

    network: NetworkCertificate | None
    input_range: tuple[float, float]
    summary: Summary
    comparison: tuple[LayerComparison, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, with the version of its form."""
        samples = self.summary.samples
        literal = {name: sample.to_json() for name, sample in samples.items()}
        return super().to_json() | {
            "attention": self.summary.to_json(),
            "certified_range": list(self.input_range),
            "layers": [layer.to_json() | {"literal": literal.get(layer.name)} for layer in self.layers],
            "network": None if self.network is None else self.network.to_json(),
            "comparison": None if self.comparison is None else [layer.to_json() for layer in self.comparison],
        }


def certify_report(
    model: nn.Module,
    report: Report,
    *,
    input_range: tuple[float, float] = CERTIFIED_RANGE,
    size: Sequence[int] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> CertifiedReport:
    """Certifies a converted model and each of its layers, as they are without autocast.

    Args:
        model: The converted model.
        report: The conversion report.
        input_range: Smallest and largest value of the images, and of each layer's input.
        size: As for ``certify_network``.
        progress: Called with 1 after each layer.
    """
    layers = []
    with without_autocast(next(model.parameters()).device):
        for layer in report.layers:
            layers.append(_certified(layer, attention_named(model, layer.name), input_range))
            progress(1)
        grid, network = size_of_images(converted(model)[1], size), None
        if len(layers) <= MOST_LAYERS and not isinstance(model, Layers):
            network = certify_network(model, input_range=input_range, size=grid)
        summary = Summary.of(model, layers, size=grid)
    passed_by = {each.name: f"it {PASSED_BY}" for each in summary.idle or () if each.reason == PASSED_BY}
    return CertifiedReport(
        layers=tuple(_withdrawn(layer, passed_by) for layer in layers),
        skipped=report.skipped,
        idle=report.idle if summary.idle is None else summary.idle,
        network=network,
        input_range=input_range,
        summary=summary,
    )


def _withdrawn(layer: LayerReport, passed_by: Mapping[str, str]) -> LayerReport:
    """A layer's record, without its certificate where the network passes the layer by."""
    reason = passed_by.get(layer.name)
    return layer if reason is None else replace(layer, certificate=None, uncertified=reason, dtype=None)


def _certified(record: LayerReport, layer: SelfAttention, input_range: tuple[float, float]) -> LayerReport:
    try:
        with torch.no_grad():
            certificate = certify(layer, input_range=input_range)
    except ConversionError as error:
        distance = describe_distance(layer, input_range) if not_a_convolution(layer, tolerance=math.inf) else ""
        return replace(record, uncertified=f"no longer a convolution{distance}" if distance else str(error))
    if not math.isfinite(certificate.bound):
        return replace(record, uncertified="no finite bound is known for these weights and this alpha")
    dtype = str(layer.weight.dtype).removeprefix("torch.")
    note = ALONE if counts_heads_alone(layer.values()) else None
    return replace(record.noted(note), certificate=certificate, dtype=dtype)
