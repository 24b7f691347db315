"""Variants of a single operation that B may compute: windows that are moved, other kernels, factors, scales, an eps."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from ..programs.float64 import first_of, lift
from ..programs.walk import arguments_of
from .forms import EPS, EXACT, LARGEST_EPS, moved, resized
from .pairing import read_by
from .search import LIKELY, Local, Search

WINDOWS = ("convolution", "max pool2d", "avg pool2d")


def variants(
    search: Search, node: fx.Node, local: Local, norm: fx.Node | None = None
) -> Iterator[tuple[str, Any, float]]:
    """Variants of an operation that B computes.

    Args:
        search: The two graphs.
        node: The operation, of A.
        local: A's values.
        norm: A normalisation behind it that B has in one operation with it.

    Yields:
        What differs in words, B's operation, and its difference in units of rounding.
    """
    tried = list(_tried(search, node, local))
    if not tried:
        return
    end = node if norm is None else next((one for one in norm.users if one.target is operator.getitem), norm)
    plain = local.plain(end)
    noise = float((local.noisy(end) - plain).square().mean().sqrt())
    for why, value in tried if noise else ():
        found = value if norm is None else first_of(local.with_arguments(norm, {"input": value}))
        for other in search.candidates(end, plain.shape):
            theirs = lift(search.pairs.b.values[other])
            distance, apart = (float((theirs - one).square().mean().sqrt()) for one in (found, plain))
            if distance <= search.threshold * noise:
                yield why, other, apart / noise


def _tried(search: Search, node: fx.Node, local: Local) -> Iterator[tuple[str, Tensor]]:
    """Variants of an operation, in words, and what they give."""
    kind, given = search.pairs.a.kind(node), arguments_of(node)
    if kind in WINDOWS and isinstance(given.get("padding"), list | tuple) and given.get("ceil_mode") is not True:
        x, fill = local.plain(node.all_input_nodes[0]), 0.0 if kind != "max pool2d" else -torch.inf
        padding = [int(one) for one in given["padding"]]
        padding = padding * (x.ndim - 2) if len(padding) == 1 else padding
        for words, value in moved(x, padding, lambda one: local.without_padding(node, one), fill):
            is_moved = words.startswith("the map")
            yield words if is_moved else f"padded {search.pairs.both('with zeros', words)}", value
    elif kind.startswith("upsample") and not _is_named(search, node, "upsample"):
        yield from _resized(search, node, local)
    elif kind in ("add", "sub") and len(read_by(node)) == 2:
        one, two = (local.plain(each) for each in read_by(node))
        own, sign = float(given.get("alpha", 1)), 1.0 if kind == "add" else -1.0
        is_there = search.pairs.is_of_kind(node, search.pairs.at.get(node))  # then it adds something
        for alpha in dict.fromkeys((1.0, *search.numbers_near(node), 0.0)):
            if alpha != own and not (is_there and alpha == 0):
                yield f"alpha {search.pairs.both(f'{own:g}', f'{alpha:g}')}", one + sign * alpha * two
    elif kind == "attention":
        yield from _attended(search, node, given, local)


def _is_named(search: Search, node: fx.Node, kind: str) -> bool:
    """Whether the partner has a name of its own for another operation of this kind."""
    own = search.pairs.at.get(node)
    return own is not None and search.pairs.b.kind(own).startswith(kind) and not search.pairs.is_of_kind(node, own)


def _resized(search: Search, node: fx.Node, local: Local) -> Iterator[tuple[str, Tensor]]:
    """An interpolation by another kernel, coefficient or grid."""
    plain = local.plain(node)
    variants = list(resized(local.plain(node.all_input_nodes[0]), plain.shape[2:]))
    own = next((words for words, value in variants if _is_exact(value, plain)), None)
    if own is None:
        return
    apart = [(words, [name for name in own if words.get(name, own[name]) != own[name]]) for words, _ in variants]
    order = sorted(zip(apart, variants, strict=True), key=lambda one: len(one[0][1]))
    for (words, names), (_, value) in order:
        if names:
            yield "; ".join(f"{name} {search.pairs.both(own[name], words[name])}" for name in names), value


def _attended(search: Search, node: fx.Node, given: Mapping[str, Any], local: Local) -> Iterator[tuple[str, Tensor]]:
    """Attention with another scale or mask."""
    query, key, value = (local.plain(given[name]) for name in ("query", "key", "value"))
    if given.get("attn_mask") is not None or given.get("enable_gqa"):
        return
    usual = query.shape[-1] ** -0.5
    own = usual if given.get("scale") is None else float(given["scale"])
    for scale in dict.fromkeys(
        (usual, 1.0, *search.numbers_near(node), *(1 / c for c in search.numbers_near(node) if c))
    ):
        if scale != own:
            found = F.scaled_dot_product_attention(query, key, value, is_causal=bool(given["is_causal"]), scale=scale)
            yield f"scale {search.pairs.both(f'{own:g}', f'{scale:g}')}", found
    found = F.scaled_dot_product_attention(query, key, value, is_causal=not given["is_causal"], scale=own)
    yield f"is_causal {search.pairs.both(given['is_causal'], not given['is_causal'])}", found


def of_another_eps(search: Search, norm: fx.Node, result: fx.Node, local: Local) -> tuple[str, Any, float] | None:
    """The eps of a batch norm, in words, with which it gives the result of an operation of B, or None."""
    given, plain = arguments_of(norm), local.plain(result)
    own, others = float(given.get("eps") or 0.0), search.candidates(result, plain.shape)
    noise = float((local.noisy(result) - plain).square().mean().sqrt())
    for eps in dict.fromkeys((*EPS, *search.numbers_near(norm))):
        value = first_of(local.with_arguments(norm, {"eps": eps})) if 0 < eps < LARGEST_EPS and eps != own else None
        for other in others if value is not None and noise else ():
            theirs = lift(search.pairs.b.values[other])
            distance, apart = (float((theirs - one).square().mean().sqrt()) for one in (value, plain))
            if distance <= search.threshold * noise and distance < apart / LIKELY:
                return f"eps {search.pairs.both(f'{own:g}', f'{eps:g}')}", other, apart / noise
    return None


def _is_exact(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one - other).abs().max() <= EXACT * other.abs().max())
