"""Verifies a user's network: each attention layer beside its convolution, and the whole beside the CNN."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..convert.agreement.layers import PLACES
from ..convert.agreement.networks import Agreement, LayerShape, compare, sameness_of
from ..convert.agreement.report import MOST_LAYERS
from ..convert.arguments import USUAL_SIZES, Size, format_seconds
from ..convert.certificate.layer import LayerComparison, is_useful, number
from ..convert.certificate.network.certificate import NetworkCertificate, certify_network
from ..convert.certificate.network.images import ImagesCertificate, certify_shown
from ..convert.engines import AUTO, ENGINES
from ..convert.errors import ConversionError, InputError, MemoryLimitError, Problem, refusing
from ..convert.files.open import placed
from ..convert.files.opening import Opening
from ..convert.layer.layer import SelfAttention
from ..convert.network.convert import convert_model, restore_model
from ..convert.network.plan import PASSED_BY, layer_input_sizes
from ..convert.sameness.verdict import Sameness
from ..proofs.campaign.arithmetic import certified_arithmetic, check_device
from ..proofs.campaign.layers import channel_limits
from ..show.text import Table, layer_name, note_lines
from .convert import worst_case_lines
from .inputs import FolderImages, Inputs, Pair, choose_inputs, refuse_conversion
from .opening import opened
from .options import InputOptions
from .terminal import progress, say

_Found = TypeVar("_Found")
# "separable" shares no step with the convolution and never forms all pairs; "auto" is what a user runs.
DEFAULT_ENGINES = ("separable", AUTO)
IMAGES = 4  # images of a folder with a bound and an estimate of their own: seconds each
_SMALLEST = 8  # pixels along an axis, of an input whose size is open
_SOON = 64 * 64  # pixels of an image on which a bound of many layers takes seconds
_FLOPS = 2e10  # of one second, of one core
_SHORT = 15.0  # seconds an image that nobody need be warned of
_MORE = "--all compares all elements, and prints accuracy, times and the worst case of the whole network, too."


@dataclass(frozen=True)
class NetworkCheck:
    """Result of checking a network."""

    agreement: Agreement  # both networks on the same images, layer by layer and end to end
    # bound on the difference of their outputs, for all images within the ranges of these
    certificate: NetworkCertificate
    limits: tuple[float, float] | None  # the smallest and the largest value of these images
    seed: int | None  # seed of the images, if they are random
    # bound and estimate for the first images of a folder, or why there is none
    images: ImagesCertificate | str | None
    # whether the difference of the whole networks is rounding, or why it is not known; in the engine ``engine``
    sameness: Sameness | str
    engine: str
    is_whole: bool  # whether all elements were compared, and all that was measured is printed

    @property
    def exit_code(self) -> int:
        """0 if a layer ran, none was passed by, and all layers and the whole stayed within their bounds; NaN fails.

        Where attention is one-hot, a difference of the whole networks that is not rounding fails, too.
        """
        passed_by = any(each.reason == PASSED_BY for each in self.agreement.idle)
        is_odd = isinstance(self.sameness, Sameness) and self.sameness.verdict == "not rounding" and not self._is_soft
        return int(not self._layers or passed_by or bool(self._beyond) or is_odd)

    @property
    def _is_soft(self) -> bool:
        return any(shape.is_soft for shape in self.agreement.shapes.values())

    def to_json(self) -> dict[str, Any]:
        """The check as plain data."""
        images = self.images.to_json() if isinstance(self.images, ImagesCertificate) else self.images
        network = asdict(self.agreement) | {"certificate": self.certificate.to_json(), "on_images": images}
        same = self.sameness.to_dict() if isinstance(self.sameness, Sameness) else self.sameness
        return {"seed": self.seed, "network": network, "same": same}

    def shown(self) -> list[Table | str]:
        """The layers, with ``is_whole`` all that was measured of the network, too, and last the outcome."""
        shown, (outcome, *reasons) = layers_shown("layer", self.agreement), self.outcome
        if not self.is_whole:
            return [*shown, _MORE, *reasons, outcome]
        measured = number(max(engine.logit_difference for engine in self.agreement.engines))
        first, *others = worst_case_lines(self.certificate, self.limits)
        shown += [networks_table(self.agreement), first.replace(": ", f": measured {measured}; ", 1), *others]
        if isinstance(self.images, ImagesCertificate):
            shown.append(self.images.in_words)
        elif self.images is not None:
            shown.append(f"There is no estimate for single images: {self.images}.")
        if self.seed is not None:
            shown.append(f"The inputs are random (normal numbers), seed {self.seed}.")
        return [*shown, *reasons, outcome]

    @property
    def outcome(self) -> list[str]:
        """Whether the network is verified, and if not, why; of soft attention first how far it is from the CNN."""
        engines, beyond = self.agreement.engines, self._beyond
        reasons = [f"{each.name} {each.reason}." for each in self.agreement.idle]
        if not self._layers:
            return ["Not verified: no layer ran.", *reasons]
        if beyond:
            reasons.insert(0, f"Beyond the worst case, or not finite: {', '.join(beyond)}.")
        if any(math.isnan(each.logit_difference) or math.isnan(each.top1_agreement or 0.0) for each in engines):
            return ["Not verified: outputs are NaN or infinite, so agreement is undefined.", *reasons]
        same = self.sameness.sentence if isinstance(self.sameness, Sameness) else f"Cannot say: {self.sameness}."
        reasons.append(f"CNN and attention ({self.engine}): {same}")
        # one sentence, before which soft attention is named
        count = len(self._layers) // len(engines)
        layers = "1 layer within its worst case" if count == 1 else f"{count} layers within their worst case"
        if beyond:
            said = f"Not verified: {len(beyond)} of {len(self._layers)} comparisons are beyond their worst case."
        else:
            said = f"Not verified, though {layers}:" if self.exit_code else f"Verified: {layers}."
        if self._is_soft:
            apart = number(max(engine.logit_difference for engine in engines))
            said = (
                f"Soft: outputs differ from the CNN's by {apart}; alpha_for gives the sharpness for a tolerance. {said}"
            )
        return [said, *reasons]

    @property
    def _layers(self) -> list[tuple[str, float, float]]:
        """Each layer in each engine: name, difference and bound."""
        return [
            (f"{layer.name} ({engine.engine})", layer.own, layer.bound)
            for engine in self.agreement.engines
            for layer in engine.layers
        ]

    @property
    def _beyond(self) -> list[str]:
        """The layers, and the whole network if it has a bound, that are not within their bounds."""
        wholes, bound = [], self.certificate.bound
        if bound is not None:
            wholes = [(f"end to end ({one.engine})", one.logit_difference, bound) for one in self.agreement.engines]
        return [name for name, found, allowed in self._layers + wholes if not found <= allowed]


def verify_checkpoint(
    path: Path,
    *,
    opening: Opening,
    inputs: InputOptions,
    alpha: float | None,
    skip_unsupported: bool,
    device: str,
    dtype: torch.dtype | None,
    engines: Sequence[str],
    whole: bool,
) -> NetworkCheck:
    """``conv2attn verify`` for a network that PyTorch runs. The arguments are the command's options."""
    check_device(device)
    # the CNN and its attention: one is read, and the other made of it
    network = opened(path, opening)
    model = placed(network.whole().as_saved(), device=device, dtype=dtype)
    if network.is_converted:
        refuse_conversion(path, alpha=alpha, skip_unsupported=skip_unsupported)
        pair = Pair(restore_model(model, tolerance=math.inf).eval(), model, network.preprocessing)
    else:
        made = convert_model(model, alpha=alpha, skip_unsupported=skip_unsupported).model.eval()
        pair = Pair(model, made, network.preprocessing)
    found = choose_inputs(pair, inputs)
    usual = taken = found.usual
    say(*cost_lines(pair, found.batches[0], engines, count=found.number), err=True)
    # inputs whose size nobody said are halved until they fit into memory
    while True:
        try:
            with progress("Running CNN and attention", total=(1 + len(engines)) * found.number) as advance:
                return verify_network(pair, found, engines=engines, whole=whole, progress=advance)
        except MemoryLimitError:
            taken = taken and Size(*(length // 2 for length in taken))
            if not taken or min(taken) < _SMALLEST:
                raise
            found = choose_inputs(pair, replace(inputs, size=taken))
            say(f"warning: inputs are of {taken}: those of {usual} do not fit into memory_limit", err=True)


def cost_lines(pair: Pair, images: Any, engines: Sequence[str], *, count: int) -> list[str]:
    """Warnings of engines that take minutes on images like these, each with a size that takes seconds.

    Args:
        pair: CNN and attention.
        images: A batch; there is no estimate of other inputs.
        engines: Engines to run the attention in.
        count: Number of images.
    """
    if not isinstance(images, Tensor):
        return []
    layers = {name: m.values() for name, m in pair.attention.named_modules() if isinstance(m, SelfAttention)}
    size = Size(*images.shape[2:])
    sizes = cache(lambda halved: layer_input_sizes(pair.cnn, list(layers), size=_halved(size, halved)))

    def seconds(engine: str, halved: int) -> float:
        return sum(ENGINES[engine].cost(layers[name], own).flops for name, own in sizes(halved).items()) / _FLOPS

    lines = []
    for engine in (each for each in engines if each in ENGINES and seconds(each, 0) >= _SHORT):
        taken = seconds(engine, 0)
        shorter = next((n for n in (1, 2, 3) if seconds(engine, n) < _SHORT), None)
        smaller, less = (None, 1.0) if shorter is None else (_halved(size, shorter), taken / seconds(engine, shorter))
        hint = "" if smaller is None else f"; --size {smaller} takes {less:,.0f} times less"
        about = format_seconds(count * taken)
        lines.append(f"warning: {engine} takes about {about} of the processor for {count} images of {size}{hint}")
    return lines


def _halved(size: Size, times: int) -> Size:
    return Size(*(-(-length // 2**times) for length in size))


def verify_network(
    pair: Pair,
    inputs: Inputs,
    *,
    engines: Sequence[str] = DEFAULT_ENGINES,
    whole: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> NetworkCheck:
    """Runs both networks on all images (``compare``), and bounds their difference.

    Args:
        pair: CNN and attention.
        inputs: Images, or other inputs.
        engines: Engines to run the attention in.
        whole: Whether every output of every layer is compared, not a sample where bits differ, and a folder's first
            images are certified.
        progress: Called with the number of images that one network has just seen.
    """
    shown = inputs.batches[0]
    what = f"images {list(shown.shape[1:])}" if isinstance(shown, Tensor) else f"inputs {', '.join(shown)}"
    with certified_arithmetic(threads=None):
        with refusing(f"the network does not run on {what}", InputError):
            agreement = compare(
                pair.cnn,
                pair.attention,
                inputs.batches,
                inputs.labels,
                engines=engines,
                places=None if whole else PLACES,
                progress=progress,
            )
        # the whole networks, in the engine that a user runs
        used = next((each for each in agreement.engines if each.engine == AUTO), agreement.engines[0])
        same = _found_or_reason(lambda: sameness_of(pair.cnn, pair.attention, shown, used))
    # what is proved for these images, and for all within their ranges
    images: ImagesCertificate | str | None = None
    if whole and isinstance(inputs.batches, FolderImages):
        some = torch.cat([inputs.batches[place] for place in range(min(len(inputs.batches), IMAGES))])[:IMAGES]
        images = _found_or_reason(lambda: certify_shown(pair.attention, some))
    certificate, limits = _certificate(pair.attention, inputs.batches, whole=whole)
    return NetworkCheck(agreement, certificate, limits, inputs.seed, images, same, used.engine, whole)


def _found_or_reason(find: Callable[[], _Found]) -> _Found | str:
    """The result, or why there is none."""
    try:
        return find()
    except ConversionError as refusal:
        return str(refusal)


def _certificate(
    attention: nn.Module, batches: Sequence[Any], *, whole: bool
) -> tuple[NetworkCertificate, tuple[float, float] | None]:
    """The bound on the network, for images within these ranges, and all of them as one.

    There is one of deep networks on large images only where ``whole``.
    """
    first = next(module for module in attention.modules() if isinstance(module, SelfAttention))
    size, problem = USUAL_SIZES[first.spec.axes], None
    if not isinstance(batches[0], Tensor):
        problem = "bounds are carried through networks of one image, and this one takes other inputs"
    else:
        size = Size(*batches[0].shape[2:])
        if batches[0].shape[1] != first.in_channels:
            problem = "its first attention layer does not see the image, so the range of its input is not known"
        elif not all(bool(images.isfinite().all()) for images in batches):
            problem = "an image holds NaN or infinite values"
    layers = sum(isinstance(module, SelfAttention) for module in attention.modules())
    if problem is None and layers > MOST_LAYERS and math.prod(size) > _SOON and not whole:
        problem = f"it grows with each of {layers} layers, and takes long at {size} (--all computes it)"
    if problem is not None:
        return NetworkCertificate(size, None, (), (Problem("", problem),)), None
    lows, highs = zip(*(channel_limits(images.to(first.weight)) for images in batches), strict=True)
    low, high = torch.stack(lows).amin(0), torch.stack(highs).amax(0)
    return certify_network(attention, input_range=(low, high), size=size), (float(low.min()), float(high.max()))


def layers_shown(title: str, agreement: Agreement) -> list[Table | str]:
    """Each layer beside its convolution, and notes on them."""
    engines = {engine.engine: engine.layers for engine in agreement.engines}
    notes = note_lines((layer.name, layer.note) for layer in agreement.engines[0].layers)
    ways = [f"{name}: {_WAYS.get(name, name)}." for name in engines]
    legend = (
        "Measured: the largest difference of a layer from its convolution. In brackets: the worst case for any input "
        f"within the range of values that the layer saw. {' '.join(ways)} (conv2attn help engines)"
    )
    return [layer_table(title, agreement.shapes, engines), legend, *notes]


_WAYS = {
    "auto": "what a user runs; it may call the convolution",
    "separable": "a softmax along each axis",
    "literal": "every query scores every key",
    "factored": "a blur, then a convolution",
    "sdpa": "torch's attention",
}


def layer_table(title: str, shapes: Mapping[str, LayerShape], found: Mapping[str, Sequence[LayerComparison]]) -> Table:
    """Each layer beside its convolution, with a column for each engine."""
    header = (title, "geometry", "heads", "sharpness", *(f"{way}: measured (worst case)" for way in found))
    rows = []
    for layers in zip(*found.values(), strict=True):
        shape = shapes[layers[0].name]
        cells = (f"{number(layer.own)} ({_worst_case(layer)})" for layer in layers)
        rows.append((layer_name(layers[0].name), shape.geometry, shape.heads, f"{shape.alpha:g}", *cells))
    return Table(header, tuple(rows))


def _worst_case(layer: LayerComparison) -> str:
    if not math.isfinite(layer.bound):
        return "not finite"
    return number(layer.bound) if is_useful(layer.bound, layer.outputs) else "above the outputs"


def networks_table(agreement: Agreement) -> Table:
    """The whole network beside the CNN, in every engine."""
    images = f"{agreement.images} image{'s' * (agreement.images != 1)}"
    header = (images, "accuracy", "top-1 agreement", "outputs, measured", "seconds")
    cnn = ("CNN", _percent(agreement.accuracy), "", "", f"{agreement.seconds:.2f}")
    rows = (
        (
            f"attention, {engine.engine}",
            _percent(engine.accuracy),
            _percent(engine.top1_agreement),
            number(engine.logit_difference),
            f"{engine.seconds:.2f}",
        )
        for engine in agreement.engines
    )
    return Table(header, (cnn, *rows))


def _percent(value: float | None) -> str:
    if value is None:
        return "unknown"
    return "undefined" if math.isnan(value) else f"{value:.1%}"
