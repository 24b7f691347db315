"""The claims, by name."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .claim import Claim

FAMILIES = ("theorem", "computing", "certificate", "sharper", "other_encodings", "errata")  # as the document has them
_CLAIMS = f"{__package__.rpartition('.')[0]}.claims"


def claim_modules() -> list[str]:
    """The modules with a function ``claims() -> list[Claim]``, in the order of the printed document."""
    found = []
    for family in FAMILIES:
        package = importlib.import_module(f"{_CLAIMS}.{family}")
        names = [module.name for module in pkgutil.iter_modules(package.__path__)]
        for name in [*package.ORDER, *(name for name in names if name not in package.ORDER)]:
            if hasattr(importlib.import_module(f"{package.__name__}.{name}"), "claims"):
                found.append(f"{package.__name__}.{name}")
    return found


@dataclass(frozen=True)
class Entry:
    """A claim and where it is made.

    Attributes:
        module: Dotted name of the module whose ``claims()`` returns it.
        claim: The claim.
    """

    module: str
    claim: Claim


def entries(modules: Sequence[str] | None = None) -> list[Entry]:
    """All claims of some modules, in order; by default of all that conv2attn has.

    Raises:
        ConversionError: Two claims have the same name.
    """
    found = [
        Entry(module, replace(claim, derived_in=_path(module)))
        for module in (claim_modules() if modules is None else modules)
        for claim in importlib.import_module(module).claims()
    ]
    names = [entry.claim.name for entry in found]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        from ...convert.errors import ConversionError  # imports torch, which no claim needs

        raise ConversionError(f"two claims have the name {', '.join(repeated)}")
    return found


def select(found: Sequence[Entry], names: Sequence[str] | None) -> list[Entry]:
    """The claims with these names, in the order of ``found``; None means all.

    Raises:
        SelectionError: There is no claim of one of the names; the message lists the claims, the nearest names first.
    """
    if names is None:
        return list(found)
    known = [entry.claim.name for entry in found]
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    if unknown or not names:
        from ...convert.errors import SelectionError

        near = list(dict.fromkeys(match for name in unknown for match in difflib.get_close_matches(name, known)))
        listed = ", ".join(near + [name for name in known if name not in near])
        what = f"there is no claim {', '.join(map(repr, unknown))}" if unknown else "no claim was named"
        raise SelectionError(f"{what}; the claims are {listed}")
    return [entry for entry in found if entry.claim.name in names]


def _path(module: str) -> str:
    """The file of a module, from the top of the project."""
    return f"{module.removeprefix('conv2attn.').replace('.', '/')}.py"
