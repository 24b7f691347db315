"""What given inputs do not show: operations that did nothing on them, and units that are dead.

A mask that hides nothing, a limit that no number reaches, a branch whose gate is 0: whatever such an operation should
do, its result is that of any other that does nothing here, so a fault in it changes no output.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from ..inputs import same_values
from ..programs.program import Program
from ..programs.walk import Walk, called, module_of, name_of
from .given import Inputs

_LIMITING = ("clamp", "clamp_min", "clamp_max", "relu6", "hardtanh", "threshold", "maximum", "minimum")
_CHOOSING = ("masked_fill", "where")
_MASKING = (*_LIMITING, *_CHOOSING, "add", "sub", "mul")
_RECTIFYING = ("relu", "relu6", "clamp_min", "threshold", "hardtanh", "clamp")


class _Watching(Walk):
    """A run that notes which operations do nothing."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.graph, program.tensors)
        self._depends = program.dependent()
        self.found: dict[str, None] = {}
        self.rectifiers: dict[str, tuple[int, int]] = {}  # dead channels, and all

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The operation's own result."""
        found, name = called(node, args, kwargs), name_of(node)
        if node in self._depends and isinstance(found, Tensor) and found.is_floating_point() and found.numel() > 1:
            operands = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
            place, text = module_of(node) or node.name, _idle(name, found, operands)
            if text:
                self.found[f"`{place}` ({name}: {text})"] = None
            elif name in _RECTIFYING and found.ndim > 1:
                self._rectified(place, found)
        return found

    def _rectified(self, place: str, found: Tensor) -> None:
        """Notes channels that are 0 everywhere."""
        channels = found.movedim(1 if found.ndim > 3 else -1, 0).flatten(1)
        dead = int((channels == 0).all(1).sum())
        if dead and channels.shape[1] > 1:
            before = self.rectifiers.get(place, (0, 0))
            self.rectifiers[place] = before[0] + dead, before[1] + len(channels)


def _idle(name: str, found: Tensor, operands: list[Tensor]) -> str:
    """What an operation does not do, or ""."""
    alike = [one for one in operands if one.shape == found.shape and one.dtype == found.dtype]
    if name in _MASKING and any(same_values(one, found) for one in alike):
        return "changes nothing"
    is_dead = name in ("mul", *_RECTIFYING) and not found.any() and any(one.any() for one in alike)
    return "all is 0" if is_dead else ""


def unseen(program: Program, given: Inputs) -> tuple[str, ...]:
    """The operations that do nothing on these inputs, in their order, for people."""
    walk = _Watching(program)
    with torch.no_grad():
        walk.run(*program.inputs(given.args, given.kwargs))
    dead = [f"{count} of {of} channels of `{place}`" for place, (count, of) in walk.rectifiers.items()]
    if len(dead) > 1:
        counts = [sum(each) for each in zip(*walk.rectifiers.values(), strict=True)]
        dead = [
            f"{counts[0]:,} of {counts[1]:,} channels of {len(dead)} rectifiers, `{next(iter(walk.rectifiers))}` first"
        ]
    return (*walk.found, *dead)
