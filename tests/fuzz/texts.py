"""Mutates JSON texts so that they stay JSON most of the time, and get past the parser."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 2**31, 2**63, 10**30, -(10**30), 0.5, 1e300),
    *("", "same", "auto", "network", "layers", "0", "x" * 300, "\ud800", "\u202e\x1b[2J\n"),
    *([], [1], [1, 2], [1, 2, 3], [True, 1], [[1, 1], 1], ["a"], [10**30, 1], {}, {"a": 1}),
)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The input with a few values of its texts replaced, removed or repeated, or a few of its bytes changed."""
    parts = data.split(b"\0")
    number = chance.choice((0, 0, 0, 1, 2)) % len(parts)
    if chance.random() < 0.2:
        changed = bytearray(parts[number])
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(len(changed))] = chance.randrange(1, 256)
        parts[number] = bytes(changed)
    else:
        tree = [json.loads(parts[number])]
        for _ in range(chance.choice((1, 1, 2, 3))):
            _mutate(tree, chance)
        parts[number] = json.dumps(tree[0]).encode()
    return b"\0".join(parts)


def _mutate(tree: list[Any], chance: random.Random) -> None:
    """Changes one value somewhere in a tree of lists and objects."""
    places = list(_places(tree))
    holder, key = chance.choice(places)
    kind = chance.random()
    if kind < 0.7 or holder is tree:
        alike = [value for value in ODD_VALUES if isinstance(value, type(holder[key]))] or ODD_VALUES
        holder[key] = copy.deepcopy(chance.choice(chance.choice((alike, ODD_VALUES))))
    elif kind < 0.85:
        del holder[key]
    elif isinstance(holder, list):
        holder.append(holder[key])
    else:
        other, name = chance.choice(places)
        holder[key] = other[name] if not isinstance(other[name], dict | list) else "x"


def _places(holder: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in list(enumerate(holder) if isinstance(holder, list) else holder.items()):
        yield holder, key
        if isinstance(value, dict | list):
            yield from _places(value)
