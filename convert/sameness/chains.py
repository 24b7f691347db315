"""Operations that B alone has, between two that A has, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from ..programs.float64 import CASTS
from ..programs.walk import name_of
from .pairing import Pairs

_CHAIN = 6  # operations that B may have before what an operation reads
_MOST = 20  # chains that are followed at once


def chain(pairs: Pairs, other: Any, expected: Any) -> str:
    """The operations of B that lead from one of them to another, in words; "" where none do."""
    paths: list[list[Any]] = [[other]]
    for _ in range(_CHAIN):
        longer: list[list[Any]] = []
        for path in paths:
            if path[-1] is expected:
                return described(pairs, path[-2::-1])
            before = [None] if path[-1] is None else pairs.b.operands(path[-1])
            longer += [[*path, one] for one in before if one is not None or expected is None]
        paths = longer[:_MOST]
    return ""


def described(pairs: Pairs, nodes: Sequence[Any]) -> str:
    """Operations of B in words: casts by what they cast to, others with their numbers."""
    found: list[str] = []
    for node in nodes:
        if _is_cast(pairs, node):
            found.append(f"a cast to {str(pairs.b.dtype(node)).removeprefix('torch.')}")
        else:
            numbers = ", ".join(f"{one:g}" for one in pairs.b.numbers(node))
            found.append(f"{pairs.b.kind(node)}{f' ({numbers})' if numbers else ''}")
    casts = [one for one in found if one.startswith("a cast")]
    if len(casts) == len(found) and len(casts) > 1:
        found = casts[:1]  # and back
    return ", ".join(found)


def _is_cast(pairs: Pairs, node: Any) -> bool:
    return name_of(node) in CASTS if isinstance(node, fx.Node) else pairs.b.kind(node) == "cast"


def of_own(pairs: Pairs, other: Any) -> list[Any] | None:
    """The operations of B that make a tensor of those that it holds, the first one first; None if it reads inputs."""
    found: list[Any] = []
    queue = [other]
    while queue:
        one = queue.pop(0)
        if one is None or len(found) > _CHAIN:
            return None
        if one not in found:
            found.append(one)
            queue += pairs.b.operands(one)
    return found[::-1]
