"""Names of layers that a network of modules can have, made of the names that exporters give to nodes.

PyTorch's exporter writes the module of a node as ``/layer1/layer1.0/conv1/Conv``, each part with all names before it
where these are numbers: the module is ``layer1.0.conv1``. TensorFlow's writes ``model/conv2d_1/Conv2D``. A name becomes
what is left without the operator at its end, with dots between its parts; signs become underscores. Where two layers
would get one name, or one would lie within another, the later one's parts are joined to one, with a number if need be.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import accumulate, chain, count

from torch import nn

_OPERATOR = re.compile(r"(?:Fused|QLinear)?(?:Depthwise)?(?:Conv|conv)(?:2[dD]|Transpose|Integer|olution)?(?:__\d+)?")
_SIGNS = re.compile(r"[^\w.-]+")
_TAKEN = frozenset(dir(nn.Module()))  # a module's own attributes, besides its layers


def layer_names(names: Collection[str]) -> dict[str, str]:
    """A name that a module can have for each of these, none of them twice, and none within another.

    Args:
        names: Different names, in the order in which they are served; one alone may be "", the network itself.
    """
    if list(names) == [""]:
        return {"": ""}
    found: dict[str, str] = {}
    layers, parents = set[str](), set[str]()
    for name in names:
        parts = _parts(name)
        joined = "_".join(parts)
        for own in chain([".".join(parts), joined], (f"{joined}_{number}" for number in count(2))):
            around = set(accumulate(own.split(".")[:-1], "{}.{}".format))
            if own not in layers | parents and layers.isdisjoint(around):
                break
        found[name] = own
        layers.add(own)
        parents |= around
    return found


def _parts(name: str) -> list[str]:
    """The parts of a name's module, each one that a module can have."""
    pieces = [piece for piece in name.partition(";")[0].split("/") if piece]
    if len(pieces) > 1 and _OPERATOR.fullmatch(pieces[-1]):
        pieces.pop()
    merged: list[str] = []
    for piece in pieces:
        if merged and piece.startswith(f"{merged[-1]}."):
            merged.pop()
        merged.append(piece)
    parts = [part for piece in merged for part in _SIGNS.sub("_", piece).split(".") if part] or ["layer"]
    return [f"{part}_" if part in _TAKEN else part for part in parts]
