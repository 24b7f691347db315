"""Runs of operations that are together a function of the vocabulary (``forms.py``), in A, and another one in B."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from ..programs.float64 import lift
from ..programs.noise import UNITS
from .differences import Parted
from .forms import EXACT, Form, Probe, forms, layout
from .pairing import read_by
from .search import LIKELY, REACH, Local, Search, after

_OPERANDS = 4  # of a run of operations, which are tried
_ROTATED = 64  # units that lengths of rotated pairs may be off


@dataclass(frozen=True)
class Cause:
    """Why an operation is not B's.

    Attributes:
        name: The module, or the operation outside all modules.
        kind: The operation or function.
        why: What differs.
        is_certain: As in ``Parted``.
        is_sure: Whether no later operation can make up for it.
        at: An operation of A, and that of B which has its place: behind it, both read the same.
        ratio: The difference there, in units of rounding, where it is not that of the operation itself.
    """

    name: str
    kind: str
    why: str
    is_certain: bool = False
    is_sure: bool = False
    at: tuple[fx.Node, Any] | None = None
    ratio: float | None = None

    def parted(self, ratio: float) -> Parted:
        """The operation as it is told, with its difference in units of rounding."""
        own = ratio if self.ratio is None else self.ratio
        return Parted(self.name, self.kind, own, self.why, is_certain=self.is_certain)


def written_out(search: Search, node: fx.Node, local: Local) -> Cause | None:
    """The cause where a run of operations around one of A is a function of the vocabulary, and another in B."""
    region = _region(search, node)
    local = local.within(region)
    found = _function(search, node, region, local)
    if found is None:
        return _rotated(search, node, region, local)
    read, end, form = found
    x, plain = local.plain(read), local.plain(end)
    probe = Probe(plain.shape, plain.device)
    noise = float((probe(local.noisy(end)) - probe(plain)).square().mean().sqrt())
    others = search.others(end, plain.shape, x)
    if not others or not noise:
        return None
    theirs = torch.stack([probe(lift(search.pairs.b.values[one])) for one in others])
    constants = [*_constants(search, region), *search.numbers_near(end)]
    near: list[tuple[float, Form, Any]] = []
    for other_form, value in forms(x, probe, constants, _tensors(search, region), form):
        distances = (theirs - value).square().mean(1).sqrt() / (search.threshold * noise)
        near += [(float(distances[place]), other_form, others[place]) for place in distances.le(1).nonzero().flatten()]
    if not near:
        return None
    least = min(distance for distance, *_ in near)
    off, other_form, other = next(one for one in near if one[0] <= max(LIKELY * least, 1e-3))
    why = form.beside(other_form, search.pairs.both)
    kind = search.pairs.a.kind(node) if end is node else form.name
    apart = float((probe(lift(search.pairs.b.values[other])) - probe(plain)).square().mean().sqrt()) / noise
    if not why or apart <= search.threshold * max(1.0, LIKELY * off):
        return None
    return Cause(search.name(end), kind, why, is_certain=True, is_sure=True, at=(end, other), ratio=apart)


def _region(search: Search, node: fx.Node) -> list[fx.Node]:
    """The operations around one that run one after another in the same module."""
    nodes, place, path = search.pairs.a.nodes, search.places[node], search.pairs.a.path(node)
    start = end = place
    while start > max(0, place - REACH) and search.pairs.a.path(nodes[start - 1]) == path:
        start -= 1
    while end < min(len(nodes), place + REACH) - 1 and search.pairs.a.path(nodes[end + 1]) == path:
        end += 1
    return nodes[start : end + 1]


def _function(
    search: Search, node: fx.Node, region: Sequence[fx.Node], local: Local
) -> tuple[fx.Node, fx.Node, Form] | None:
    """What a run of operations that holds one of A reads, its end, and the function that it is; None of others."""
    ends = [end for end in after(node, region) if _is_map(local.shown(end))]
    found: tuple[fx.Node, fx.Node, Form] | None = None
    for read in _read(search, node, region):
        shape = local.shown(read)
        fitting = [end for end in ends if end is not read and _shape(local.shown(end)) == _shape(shape)]
        if not _is_map(shape) or not fitting:
            continue
        x = local.plain(read)
        probe = Probe(x.shape, x.device)
        values = torch.stack([probe(local.plain(end)) for end in fitting])
        allowed = values.abs().amax(1).clamp_min(1e-300) * EXACT
        for form, value in forms(x, probe, _constants(search, region), _tensors(search, region)):
            if form.name == "no activation":
                continue
            fits = ((values - value).abs().amax(1) <= allowed).nonzero().flatten().tolist()
            for place in fits:
                end = fitting[place]
                if found is None or search.places[end] > search.places[found[1]]:
                    found = read, end, form
    return found


def _read(search: Search, node: fx.Node, region: Sequence[fx.Node]) -> list[fx.Node]:
    """What a run of operations up to one of A reads from outside, and the operations in it, the nearest first."""
    before, queue = dict.fromkeys(read_by(node)), list(read_by(node))
    inside = set(region)
    while queue:
        one = queue.pop(0)
        if one in inside:
            more = [each for each in read_by(one) if each not in before]
            before |= dict.fromkeys(more)
            queue += more
    large = [one for one in before if _is_map(one.meta.get("val"))]
    return large[: 2 * _OPERANDS]


def _constants(search: Search, region: Sequence[fx.Node]) -> list[float]:
    return list(dict.fromkeys(c for one in region for c in search.pairs.a.numbers(one)))


def _tensors(search: Search, region: Sequence[fx.Node]) -> list[Tensor]:
    """Tensors of the network that operations read."""
    held = search.pairs.a.program.tensors
    names = dict.fromkeys(one.name for node in region for one in node.all_input_nodes if one.op == "get_attr")
    found = [held[name] for name in names if isinstance(held.get(name), Tensor)]
    return [one for one in found if one.ndim and one.is_floating_point()][:_OPERANDS]


def _rotated(search: Search, node: fx.Node, region: Sequence[fx.Node], local: Local) -> Cause | None:
    """The cause where channels are rotated in other pairs."""
    unit = UNITS.get(search.precision.dtype or search.pairs.a.dtype(node) or torch.float32, UNITS[torch.float32])
    for end in after(node, region):
        value = local.shown(end)
        if not _is_map(value):
            continue
        for read in _read(search, node, region):
            if _shape(local.shown(read)) != _shape(value) or read is end:
                continue
            x = local.plain(read)
            own = layout(x, local.plain(end), EXACT)
            if own is None:
                continue
            for other in search.candidates(end, x.shape):
                theirs = layout(x, lift(search.pairs.b.values[other]), _ROTATED * unit)
                if theirs is not None and theirs != own:
                    words = f"pairs of channels are {search.pairs.both(own, theirs)}, the other RoPE layout"
                    at = (end, other)
                    return Cause(search.name(end), "rotary positions", words, is_certain=True, is_sure=True, at=at)
    return None


def _is_map(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 1


def _shape(value: Any) -> torch.Size | None:
    return value.shape if isinstance(value, Tensor) else None
