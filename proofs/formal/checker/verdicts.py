"""Verdicts on the certificates in a folder, for people and for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ...terminal.names import layer_name
from ...terminal.output import Table


class Verdict(StrEnum):
    """Verdict on a certificate."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    NOT_COVERED = "not covered"


OTHER_FOLDER = "report, description and weights are not those that were written together (SHA-256)"

# What the program's refusals mean.
REFUSALS = {
    "Other_shape": "its geometry is not the stored layer's",
    "Other_dtype": "its dtype is not the stored layer's",
    "Other_alpha": "its alpha is not the stored layer's",
    "Not_one_hot": "the stored alphas are too small for one-hot attention",
    "Other_centers": "the stored heads do not sit at the kernel's taps",
    "Malformed": "its numbers do not fit its geometry",
    "May_overflow": "a sum could overflow, and then nothing is proved",
    "Too_small": "its bound is smaller than what is proved",
    "Too_large": "its bound is larger than what is proved, so it is that of another layer or range",
    "Not_finite": "a number is infinite or NaN",
}


@dataclass(frozen=True)
class CheckedLayer:
    """The certificate of a layer."""

    name: str
    verdict: Verdict
    reason: str | None = None
    bound: float | None = None


@dataclass(frozen=True)
class Checked:
    """The certificates of a folder."""

    folder: Path
    input_range: tuple[float, float]
    layers: tuple[CheckedLayer, ...]

    @property
    def exit_code(self) -> int:
        """0 if every layer has a certificate, and all were accepted."""
        return 0 if all(layer.verdict is Verdict.ACCEPTED for layer in self.layers) else 1

    def to_json(self) -> dict[str, Any]:
        """The verdicts as plain data."""
        return {
            "folder": str(self.folder),
            "certified_range": list(self.input_range),
            "layers": [asdict(layer) for layer in self.layers],
        }

    def shown(self) -> list[Table | str]:
        """A row for each layer, and the number of accepted certificates."""
        low, high = self.input_range
        rows = []
        for layer in self.layers:
            said = str(layer.verdict) if layer.reason is None else f"{layer.verdict}: {layer.reason}"
            rows.append((layer_name(layer.name), "" if layer.bound is None else f"{layer.bound:.3g}", said))
        counts = Counter(layer.verdict for layer in self.layers)
        found = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)
        return [
            Table(("layer", f"bound on [{low:g}, {high:g}]", "certificate"), tuple(rows)),
            f"Certificates of {len(self.layers)} layers: {found}.",
            "Not checked: engines, largest outputs, versions, the bound of the whole network, and measurements.",
        ]
