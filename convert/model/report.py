"""What a conversion did, as data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn

from ..attention.layer import SelfAttention2d
from ..certificate.comparison import LayerComparison
from ..certificate.layer import Certificate, certify
from ..certificate.network import DEFAULT_SIZE, NetworkCertificate, certify_network
from ..errors import ConversionError, Problem
from ..names import names_by_module
from ..spec import ConvSpec

REPORT_VERSION = 1
CERTIFIED_RANGE = (-1.0, 1.0)  # a layer's inputs are not known here; the bound grows in proportion to them


@dataclass(frozen=True)
class LayerReport:
    """One converted layer.

    Attributes:
        names: Fully qualified names of the layer; more than one if the model shares it.
        spec: Its geometry.
        heads: Attention heads.
        alpha: Locality strength of the heads.
        engine: The engine it was given.
        parameters_before: Numbers in the convolution.
        parameters_after: Numbers in the attention layer.
        layer: The attention layer itself, which is certified when the certificate is first asked for.
        input_range: Smallest and largest value of the input that it is certified for.
        note: What the user should know of its weights, or None.
    """

    names: tuple[str, ...]
    spec: ConvSpec
    heads: int
    alpha: float
    engine: str
    parameters_before: int
    parameters_after: int
    layer: SelfAttention2d = field(repr=False, compare=False)
    input_range: tuple[float, float] = CERTIFIED_RANGE
    note: str | None = None

    @property
    def certificate(self) -> Certificate | None:
        """Bound on the difference for inputs within the range, or None."""
        return self._certified[0]

    @property
    def uncertified(self) -> str | None:
        """Why there is no certificate, or None."""
        return self._certified[1]

    @cached_property
    def _certified(self) -> tuple[Certificate | None, str | None]:
        return _certified(self.layer, self.input_range)

    @property
    def name(self) -> str:
        """The first of the names."""
        return self.names[0]

    @classmethod
    def of(cls, names: tuple[str, ...], layer: SelfAttention2d) -> LayerReport:
        """Describes a layer that was just converted."""
        before = layer.weight.numel() + (0 if layer.bias is None else layer.bias.numel())
        return cls(
            names=names,
            spec=layer.spec,
            heads=layer.num_heads,
            alpha=layer.regime.alpha[0],
            engine=layer.engine,
            parameters_before=before,
            parameters_after=sum(parameter.numel() for parameter in layer.parameters()),
            layer=layer,
        )

    def noted(self, note: str | None) -> LayerReport:
        """The same layer with one more note, and its certificate if that was made."""
        if note is None or note in (self.note or ""):
            return self
        noted = replace(self, note=note if self.note is None else f"{self.note}; {note}")
        if "_certified" in vars(self):
            vars(noted)["_certified"] = self._certified
        return noted

    def to_json(self) -> dict[str, Any]:
        """The layer as plain data."""
        return {
            "names": list(self.names),
            "spec": self.spec.to_json(),
            "heads": self.heads,
            "alpha": self.alpha,
            "engine": self.engine,
            "parameters_before": self.parameters_before,
            "parameters_after": self.parameters_after,
            "certificate": None if self.certificate is None else self.certificate.to_json(),
            "uncertified": self.uncertified,
            "note": self.note,
        }


@dataclass(frozen=True)
class Report:
    """What a conversion did with each convolution of a model.

    Attributes:
        layers: The converted layers, in the model's order.
        skipped: The convolutions left as they were, each with its reason.
        model: The converted model, which is certified when the certificate is first asked for.
        input_range: Smallest and largest value of the images, and of each layer's input, that bounds are for.
        size: Size of the images that the network's bound is for.
        comparison: What was measured on images, if it was.
    """

    layers: tuple[LayerReport, ...]
    skipped: tuple[Problem, ...]
    model: nn.Module = field(repr=False, compare=False)
    input_range: tuple[float, float] = CERTIFIED_RANGE
    size: tuple[int, int] = DEFAULT_SIZE
    comparison: tuple[LayerComparison, ...] | None = None

    @cached_property
    def network(self) -> NetworkCertificate:
        """Bound on the difference between the converted network and the CNN."""
        return certify_network(self.model, input_range=self.input_range, size=self.size)

    def on_images(
        self, input_range: tuple[float, float] = CERTIFIED_RANGE, size: tuple[int, int] = DEFAULT_SIZE
    ) -> Report:
        """The same report, with bounds for other images."""
        layers = tuple(replace(layer, input_range=input_range) for layer in self.layers)
        return replace(self, layers=layers, input_range=input_range, size=size)

    def noted(self, notes: Mapping[str, str]) -> Report:
        """The same report, with what else the user should know of layers, by their names."""
        return replace(self, layers=tuple(layer.noted(notes.get(layer.name)) for layer in self.layers))

    @classmethod
    def of(cls, model: nn.Module) -> Report:
        """Describes the attention layers of a model as they are now."""
        groups = names_by_module(model, lambda module: isinstance(module, SelfAttention2d))
        layers = ((names, model.get_submodule(names[0])) for names in groups)
        return cls(
            tuple(LayerReport.of(n, layer) for n, layer in layers if isinstance(layer, SelfAttention2d)), (), model
        )

    def certify(self, *, progress: Callable[[int], None]) -> None:
        """Certifies every layer now, instead of when its certificate is asked for.

        Args:
            progress: Called with 1 after each layer.
        """
        for layer in self.layers:
            _ = layer.certificate
            progress(1)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, with the version of its form."""
        return {
            "version": REPORT_VERSION,
            "certified_range": list(self.input_range),
            "layers": [layer.to_json() for layer in self.layers],
            "network": self.network.to_json(),
            "comparison": None if self.comparison is None else [layer.to_json() for layer in self.comparison],
            "skipped": [asdict(problem) for problem in self.skipped],
        }


def _certified(layer: SelfAttention2d, input_range: tuple[float, float]) -> tuple[Certificate | None, str | None]:
    try:
        with torch.no_grad():
            certificate = certify(layer, input_range=input_range)
    except ConversionError as error:
        return None, str(error)
    if not math.isfinite(certificate.bound):
        return None, "no finite bound is known for these weights and this alpha"
    return certificate, None
