"""Content of ``report.json``: the conversion report, and bounds on the distance from the CNN."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..bounds.tail import counts_heads_alone
from ..certificate.comparison import LayerComparison
from ..certificate.distance import told_distance
from ..certificate.layer import certify
from ..certificate.network.certificate import NetworkCertificate, certify_network, converted, size_of_images
from ..context import without_autocast
from ..errors import ConversionError
from ..layer.construction import not_a_convolution
from ..layer.layer import SelfAttention
from ..network.plan import PASSED_BY
from ..network.report import LayerReport, Report
from .layers import Layers, attention_named
from .summary import Summary

REPORT_VERSION = 1
ALONE = "its bound counts each head by itself, which is larger: kernel and attention are too wide for the sharper sum"
_UNCHECKED = ("attention", "comparison", "network", "sha256", "version")
_UNCHECKED_OF_LAYERS = ("engine", "literal")
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
        return {
            "version": REPORT_VERSION,
            "attention": self.summary.to_json(),
            "certified_range": list(self.input_range),
            "layers": [layer.to_json() | {"literal": literal.get(layer.name)} for layer in self.layers],
            "network": None if self.network is None else self.network.to_json(),
            "comparison": None if self.comparison is None else [layer.to_json() for layer in self.comparison],
            "skipped": [asdict(problem) for problem in self.skipped],
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
    """The record of a layer, with its certificate or the reason why it has none."""
    try:
        with torch.no_grad():
            certificate = certify(layer, input_range=input_range)
    except ConversionError as error:
        distance = told_distance(layer, input_range) if not_a_convolution(layer, tolerance=math.inf) else ""
        return replace(record, uncertified=f"no longer a convolution{distance}" if distance else str(error))
    if not math.isfinite(certificate.bound):
        return replace(record, uncertified="no finite bound is known for these weights and this alpha")
    dtype = str(layer.weight.dtype).removeprefix("torch.")
    note = ALONE if counts_heads_alone(layer.values()) else None
    return replace(record.noted(note), certificate=certificate, dtype=dtype)


def checksum(report: Mapping[str, Any], config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """A SHA-256 over report, config and tensors of a folder, so that a change of what they say of layers can be seen.

    It is no signature: whoever changes a folder on purpose can write a new one. It leaves out what nothing checks:
    engines, versions, measurements, and the bound of the whole network.
    """
    said = {key: value for key, value in report.items() if key not in _UNCHECKED}
    if isinstance(said.get("layers"), list):
        said["layers"] = [_without(layer, _UNCHECKED_OF_LAYERS) for layer in said["layers"]]
    text = json.dumps([said, _without(config, ("versions",))], sort_keys=True)
    found = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        found.update(f"\0{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode("utf-8", "surrogatepass"))
        found.update(tensor.flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def _without(data: Any, names: tuple[str, ...]) -> Any:
    return {key: value for key, value in data.items() if key not in names} if isinstance(data, Mapping) else data
