"""The claims, by name."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass

from .claim import Claim

# Modules with a function claims() -> list[Claim], in the order of the printed document.
MODULES = (
    "conv2attn.proofs.claims.theorem.encoding",
    "conv2attn.proofs.claims.other_encodings.gaussian",
    "conv2attn.proofs.claims.other_encodings.gaussian_reduction",
    "conv2attn.proofs.claims.theorem.decomposition",
    "conv2attn.proofs.claims.theorem.position_alone",
    "conv2attn.proofs.claims.computing.floating_point",
    "conv2attn.proofs.claims.computing.exact_scores",
    "conv2attn.proofs.claims.theorem.any_dimensions",
    "conv2attn.proofs.claims.theorem.any_dimensions_assembly",
    "conv2attn.proofs.claims.theorem.absolute",
    "conv2attn.proofs.claims.certificate.tail",
    "conv2attn.proofs.claims.theorem.assembly",
    "conv2attn.proofs.claims.computing.factorisation",
    "conv2attn.proofs.claims.certificate.smoothed_kernel",
    "conv2attn.proofs.claims.certificate.rounding",
    "conv2attn.proofs.claims.certificate.underflow",
    "conv2attn.proofs.claims.certificate.accumulation",
    "conv2attn.proofs.claims.certificate.propagation",
    "conv2attn.proofs.claims.other_encodings.sinusoidal",
    "conv2attn.proofs.claims.sharper.encoding_dimension",
    "conv2attn.proofs.claims.sharper.head_dimension",
    "conv2attn.proofs.claims.sharper.head_count",
    "conv2attn.proofs.claims.errata.all",
)


@dataclass(frozen=True)
class Entry:
    """A claim and where it is made.

    Attributes:
        module: Dotted name of the module whose ``claims()`` returns it.
        claim: The claim.
    """

    module: str
    claim: Claim


def entries(modules: Sequence[str] = MODULES) -> list[Entry]:
    """All claims of some modules, in order.

    Raises:
        ConversionError: Two claims have the same name.
    """
    found = [Entry(module, claim) for module in modules for claim in importlib.import_module(module).claims()]
    names = [entry.claim.name for entry in found]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        from ...convert.errors import ConversionError  # imports torch, which no claim needs

        raise ConversionError(f"two claims have the name {', '.join(repeated)}")
    return found


def select(found: Sequence[Entry], names: Sequence[str] | None) -> list[Entry]:
    """The claims with these names, in the order of ``found``; None means all.

    Raises:
        SelectionError: A name is no claim's; the message lists the names, the nearest first.
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
