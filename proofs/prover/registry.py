"""The claims, by name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from difflib import SequenceMatcher

from .claim import Claim

FAMILIES = ("theorem", "computing", "certificate", "sharper", "other_encodings", "errata")  # as the document has them
_CLAIMS = f"{__package__.rpartition('.')[0]}.claims"


def claim_modules() -> list[str]:
    """The modules of the families, in the order of the document."""
    found = []
    for family in FAMILIES:
        package = importlib.import_module(f"{_CLAIMS}.{family}")
        names = [module.name for module in pkgutil.iter_modules(package.__path__)]
        ordered = [*package.ORDER, *(name for name in names if name not in package.ORDER)]
        found += [f"{package.__name__}.{name}" for name in ordered]
    return found


def claims_of(module: str) -> list[Claim]:
    """The claims that a module makes, in the order in which they stand there."""
    made = importlib.import_module(module)
    return [value for value in vars(made).values() if isinstance(value, Claim) and value.module == module]


def all_claims(modules: Sequence[str] | None = None) -> list[Claim]:
    """All claims of some modules, in order; by default of all that conv2attn has."""
    return [claim for module in (claim_modules() if modules is None else modules) for claim in claims_of(module)]


def select(found: Sequence[Claim], names: Sequence[str] | None) -> list[Claim]:
    """The claims with these names, in the order of ``found``; None means all.

    Raises:
        SelectionError: There is no claim of one of the names; the message lists the claims, the nearest names first.
    """
    if names is None:
        return list(found)
    known = [claim.name for claim in found]
    if unknown := [name for name in dict.fromkeys(names) if name not in known]:
        from ...convert.errors import SelectionError  # imports torch, which no claim needs

        known.sort(key=lambda name: -max(SequenceMatcher(None, name, wanted).ratio() for wanted in unknown))
        raise SelectionError(f"there is no claim {', '.join(map(repr, unknown))}; the claims are {', '.join(known)}")
    return [claim for claim in found if claim.name in names]
