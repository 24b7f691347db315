"""The names of the claims, to be printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..terminal.table import Table
from .claim import Claim


@dataclass(frozen=True)
class Listing:
    """Claims by name, title and status.

    Attributes:
        claims: The claims.
    """

    claims: Sequence[Claim]
    exit_code: ClassVar[int] = 0

    def to_json(self) -> dict[str, Any]:
        """The names as plain data."""
        return {"claims": [{"name": c.name, "title": c.title, "status": c.status} for c in self.claims]}

    def shown(self) -> list[Table | str]:
        """A row for each claim."""
        return [Table(("claim", "title", "status"), tuple((c.name, c.title, str(c.status)) for c in self.claims))]
