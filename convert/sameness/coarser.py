"""What is no rounding of the declared precision: is it rounding of a coarser unit?

Two signs are asked for, as a wrong constant is as large as a coarse unit, too: the size fits, and the difference
averages out over inputs nearby (``nearby.py``). Where inputs cannot be moved, or the other side's values are recorded,
the size alone is told, and the verdict stays.

Rounding of the declared precision averages out, too. So a difference that is larger than honest engines' and does not
is told, though its size is within the limit: a small wrong constant may be in it, or a kernel whose constants are off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..programs.noise import UNITS, Precision
from ..programs.program import Program
from .around import Around
from .nearby import FUNCTION, Averaged
from .units import ALL, Unit, chosen, ratios
from .verdict import Sameness, format_ratio


def in_coarser_unit(
    found: Sameness,
    program: Program,
    truth: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
    around: Around,
    *,
    declared: torch.dtype,
    seed: int,
) -> Sameness:
    """The verdict on a difference that is not rounding of the declared precision.

    Args:
        found: The verdict so far.
        program: That of the side whose graph says the truth.
        truth: Its outputs in float64.
        outputs: Those of the other side, by the same names.
        around: The other side, and the inputs.
        declared: The precision of both.
        seed: Of the noise.
    """
    tried = {
        unit: ratios(program, around.given, truth, outputs, unit.precision, seed=seed)
        for unit in ALL
        if unit.size > 2 * UNITS[declared]
    }
    unit = chosen(tried)
    if unit is None:
        return found
    own, times = str(declared).removeprefix("torch."), format_ratio(tried[unit])
    size = f"as large as rounding of {unit.name} ({times} times theirs)"
    shares = around.averaged(program, list(truth), unit, ratio=tried[unit], seed=seed)
    if isinstance(shares, str):
        return replace(
            found, notes=(*found.notes, f"It is {size}; whether it averages out as such is not known, as {shares}.")
        )
    said = _shares(shares)
    if shares.is_noise:
        reason = f"of {unit.name} ({times} times theirs), not of {own} ({format_ratio(found.ratio)} times); {said}"
        return replace(
            found,
            verdict="coarser rounding",
            reason=reason,
            unit=unit.name,
            where=(),
            only_outputs=None,
            averaged=shares,
        )
    if shares.is_function:
        return replace(found, averaged=shares, notes=(*found.notes, f"It is {size}, but {said}: a function differs."))
    reason = f"the difference is {size}, and {said}, between noise and a function ({FUNCTION * shares.steady:.2g})"
    remedy = f"let both sides compute in {own}, or compare on other inputs"
    return replace(found, verdict="cannot say", reason=reason, remedy=remedy, averaged=shares)


def beside_noise(
    found: Sameness, program: Program, names: Sequence[str], around: Around, *, declared: torch.dtype, seed: int
) -> Sameness:
    """The verdict on rounding of the declared precision, with a note where it is large and does not average out.

    Args:
        found: The verdict so far.
        program: As for ``in_coarser_unit``.
        names: Of the outputs.
        around: As for ``in_coarser_unit``.
        declared: The precision of both.
        seed: Of the noise.
    """
    unit = Unit(str(declared).removeprefix("torch."), Precision(), UNITS[declared], is_stored=True)
    shares = around.averaged(program, names, unit, ratio=found.ratio, seed=seed)
    if isinstance(shares, str):
        return found
    if not shares.is_function:
        return replace(found, averaged=shares)
    note = f"It is as small as rounding, but {_shares(shares)}: a constant may differ a little."
    return replace(found, averaged=shares, notes=(*found.notes, note))


def _shares(found: Averaged) -> str:
    verb = "averages out" if found.is_noise else "does not average out"
    numbers = f"{found.share:.2f} of it stays; of noise {found.expected:.2f}, at most {found.high:.2f}"
    if found.share > found.high:
        verb += ", but for as much as other roundings of the weights make," * found.is_noise
        numbers += f"; that part is {found.constant:.2f} of typical rounding, of other weights at most "
        numbers += f"{found.weights_95:.2f} to {found.weights_99:.2f}"
    if found.steady < 1:
        numbers += f"; of a function {found.steady:.2f}"
    return f"it {verb} over nearby inputs ({numbers})"
