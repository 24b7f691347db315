"""Where values that another program recorded part from a network: in which stretch between two of them.

The network is walked through in float64, plainly and with noise. Where the other program recorded a value, that is held
against the network's own, which was computed from the recorded values before it; then it takes its place. So each
stretch is judged on the other program's own values, and one that is wrong does not blame what follows.

A recorded value belongs to what a module gave by its name (``named`` says what the names of files and modules have in
common), or, where no name fits, to the result whose numbers have the same quantiles and that it correlates with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from ..programs.float64 import evaluated, lift, plainly
from ..programs.noise import Noise, Precision, noisy
from ..programs.operations import in_words
from ..programs.program import Noted, Program
from ..programs.walk import Walk, in_place_of, name_of, standing
from .alignment import Layout, aligned
from .given import Inputs
from .recorded import Read
from .typical import Scale, distance

RUNS = 3  # with noise
PRODUCTS = ("convolution", "transposed convolution", "linear", "matrix product")
_QUANTILES = 33
_NEAR = 0.05  # how far quantiles of the same values may be apart, relative to their size
_UNTOLD = ("output", "out", "y")  # parts of names that say nothing


@dataclass(frozen=True)
class Stretch:
    """What lies between recorded values.

    Attributes:
        name: The module whose result ends it; "" for an output.
        recorded: The recorded value's name.
        since: Modules whose recorded results it begins with; none for the inputs.
        ratio: The recorded value's difference from what the network makes of them, in units of typical rounding.
        layout: How the recorded value lies otherwise, in words.
        has_product: Whether a sum of products is in it, whose factors a coarser unit rounds.
    """

    name: str
    recorded: str
    since: tuple[str, ...]
    ratio: float
    layout: str = ""
    has_product: bool = False

    @property
    def where(self) -> str:
        """The stretch, in words."""
        if not self.since:
            return f"before `{self.name}`"
        return f"between {' and '.join(f'`{one}`' for one in self.since[:2])} and `{self.name}`"


@dataclass(frozen=True)
class Compared:
    """A network beside recorded values.

    Attributes:
        stretches: In the order in which the network runs.
        unaligned: Names of recorded values whose numbers are none of the network's in any layout that is known.
        missing: Names of recorded values that belong to no module.
    """

    stretches: tuple[Stretch, ...]
    unaligned: tuple[str, ...]
    missing: tuple[str, ...]

    def parted(self, threshold: float) -> tuple[Stretch, ...]:
        """Stretches that typical rounding does not explain."""
        return tuple(one for one in self.stretches if not one.ratio <= threshold)


def compared(
    program: Program,
    inputs: Inputs,
    values: Mapping[str, Read],
    precision: Precision,
    *,
    names: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Compared:
    """Holds recorded values against a network, stretch by stretch.

    Args:
        program: The network's.
        inputs: Its inputs.
        values: What reads each recorded value, by the other program's name.
        precision: The other program's.
        names: Modules of the network, by the other program's names, where they are known.
        seed: Of the noise.
    """
    found = named(tuple(values), tuple(program.given), names or {})
    left = [name for name in values if name not in found]
    by_values = _by_values(program, inputs, {name: values[name] for name in left}, set(found.values())) if left else {}
    places = {
        program.given[module]: _Place(module, name, values[name], name in found)
        for name, module in {**by_values, **found}.items()
    }
    walk = _Stretches(program, places, precision, seed)
    with torch.no_grad(), plainly():
        walk.run(*program.inputs(inputs.args, inputs.kwargs))
    missing = tuple(name for name in left if name not in by_values)
    return Compared(tuple(walk.stretches), tuple(walk.unaligned), missing)


def named(recorded: Sequence[str], modules: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
    """Modules for recorded names: those that are given, else equal ones, else the only one that ends in the other."""
    found = {name: name for name in recorded if name in modules and name not in given}
    found |= {name: module for name, module in given.items() if name in recorded and module in modules}
    words = {module: _words(module) for module in modules}
    taken = set(found.values())
    for fits in (_is_equal, _ends_in):
        for name in recorded:
            if name in found:
                continue
            own = _words(name)
            fit = [module for module in modules if module not in taken and own and fits(own, words[module])]
            if len(fit) == 1:
                found[name] = fit[0]
                taken.add(fit[0])
    return found


def _words(name: str) -> tuple[str, ...]:
    found = [one for one in re.split(r"[^0-9A-Za-z#]+", re.sub(r":\d+$", "", name)) if one]
    while len(found) > 1 and found[-1].lower() in _UNTOLD:
        found.pop()
    return tuple(one.lower() for one in found)


def _is_equal(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return one == other


def _ends_in(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    short, long = sorted((one, other), key=len)
    return long[-len(short) :] == short and len(short) > 1


def _by_values(program: Program, inputs: Inputs, values: Mapping[str, Read], taken: set[str]) -> dict[str, str]:
    """Modules whose results have the numbers of recorded values: by quantiles, then by the best layout."""
    noted = Noted(program)
    with torch.no_grad():
        noted.run(*program.inputs(inputs.args, inputs.kwargs))
    own = {
        module: noted.values[node]
        for module, node in program.given.items()
        if module not in taken and isinstance(noted.values.get(node), Tensor) and noted.values[node].numel() > 1
    }
    sizes = {module: _quantiles(one) for module, one in own.items()}
    found: dict[str, str] = {}
    for name, read in values.items():
        value = read()
        if not value.is_floating_point() or value.numel() < 2:
            continue
        quantiles = _quantiles(value)
        near = [
            module
            for module, one in sizes.items()
            if module not in found.values() and (_are_near(quantiles, one) or value.numel() > own[module].numel())
        ]
        for module in near:
            layout = aligned(value.to(own[module].dtype), own[module])
            if layout is not None:
                found[name] = module
                break
    return found


def _quantiles(value: Tensor) -> Tensor:
    flat = value.detach().reshape(-1).double().sort().values
    return flat[torch.linspace(0, len(flat) - 1, _QUANTILES).round().long()]


def _are_near(one: Tensor, other: Tensor) -> bool:
    return float((one - other).abs().max()) <= _NEAR * float(other.abs().max())


@dataclass(frozen=True)
class _Place:
    """Where a recorded value belongs.

    Attributes:
        module: The module that gives it.
        name: The recorded value's.
        read: Reads it.
        is_named: Whether the names say so, not the numbers.
    """

    module: str
    name: str
    read: Read
    is_named: bool


@dataclass(frozen=True)
class _Moved:
    """A value from the other program's values, plain and with noise.

    Attributes:
        plain: Without noise.
        noisy: That of each run with noise.
        since: The modules whose results these values are.
        has_product: Whether a sum of products was computed from them.
    """

    plain: Any
    noisy: tuple[Any, ...]
    since: tuple[str, ...] = ()
    has_product: bool = False


class _Stretches(Walk):
    """The network on the other program's values.

    Args:
        program: The network's.
        places: Where recorded values belong, by operation.
        precision: The other program's.
        seed: Of the noise.
    """

    def __init__(self, program: Program, places: Mapping[fx.Node, _Place], precision: Precision, seed: int) -> None:
        super().__init__(program.graph, program.tensors)
        self._places = places
        self._noises = [Noise(precision, seed * RUNS + run, has_exact=False) for run in range(RUNS)]
        self.stretches: list[Stretch] = []
        self.unaligned: list[str] = []

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The network's value on the other's, or the other's."""
        given = args, kwargs
        plain = evaluated(node, *in_place_of(given, _Moved, lambda one: one.plain))
        moved = []
        for run, noise in enumerate(self._noises):
            own_args, own_kwargs = in_place_of(given, _Moved, lambda one, run=run: one.noisy[run])  # type: ignore[misc]
            moved.append(noisy(node, own_args, own_kwargs, noise))
        parts = standing(given, _Moved)
        since = tuple(dict.fromkeys(name for leaf in parts for name in leaf.since))
        has_product = in_words(name_of(node)) in PRODUCTS or any(leaf.has_product for leaf in parts)
        found = _Moved(plain, tuple(moved), since, has_product)
        return self._replaced(node, found) if node in self._places and isinstance(plain, Tensor) else found

    def _replaced(self, node: fx.Node, own: _Moved) -> _Moved:
        place = self._places[node]
        value = place.read().to(own.plain.device)
        layout = aligned(lift(value), own.plain)
        if layout is None and place.is_named and value.shape == own.plain.shape:
            layout = Layout(tuple(range(value.ndim)), tuple(value.shape))  # another function's numbers
        if layout is None:
            self.unaligned.append(place.name)
            return own
        wide = lift(layout.apply(value))
        scale = Scale.like(own.plain)
        for one in own.noisy:
            scale.add(one, own.plain)
        apart = distance(wide, own.plain)
        is_real = own.plain.is_floating_point()
        ratio = max(scale.ratios(apart)) if is_real else float(bool((apart != 0).any()))
        how = layout.words(value.shape)
        self.stretches.append(Stretch(place.module, place.name, own.since, ratio, how, own.has_product))
        return _Moved(wide, (wide,) * RUNS, (place.module,))
