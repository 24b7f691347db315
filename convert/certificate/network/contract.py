"""Whether sums of products keep the contract here: each result within c u (2-norm of its products + |result|).

No bound of this kind holds for every order of a sum. Machines keep it for the images that one looks at, or do not, and
one can only look: the program is run as it is, and each of its sums is held against float64 on its own operands.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from ...bounds.rounding import gamma, unit_roundoff
from .attention import convolution_of
from .call import Call
from .interval import CONTRACT, U64, Arithmetic, Interval
from .products import Weighted, convolution, linear
from .program import ATTENTION, Program, Walk, name_of

SUMS = ("conv1d", "conv2d", "conv3d", "linear", *(f"conv_transpose{axes}d" for axes in (1, 2, 3)))


def broken_contract(program: Program, image: Tensor) -> str | None:
    """A sentence on the sum that breaks the contract most on this machine, or None if none does."""
    run = _Run(program)
    with torch.no_grad():
        run.run(*program.inputs(image.cpu()))
    if run.worst <= CONTRACT:
        return None
    return (
        f"the contract does not hold on this machine: {run.place} errs by {run.worst:.3g} u (2-norm of its products + "
        f"|result|), and {CONTRACT:g} are allowed"
    )


class _Run(Walk):
    """One run of a program in its own precision, whose sums are compared with float64."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.exported.graph_module)
        self._program = program
        self.worst, self.place = 0.0, ""

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The operation's own result."""
        if node.target is ATTENTION:
            layer: Any = self._program.model.get_submodule(str(node.args[1]))
            attended: Tensor = layer(args[0])
            self._compare(node, attended, args[0], convolution_of(layer, attended.shape))
            return attended
        found = super().operation(node, args, kwargs)
        if name_of(node) in SUMS:
            target: Any = node.target
            call = Call.of(target, args, kwargs, found.shape, Arithmetic(found.dtype))
            x = call["input"]
            call = replace(call, arguments={**call.arguments, "input": Interval.point(x)})
            self._compare(node, found, x, linear(call) if name_of(node) == "linear" else convolution(call))
        return found

    def _compare(self, node: fx.Node, found: Tensor, x: Tensor, sums: Weighted) -> None:
        """Notes the worst of a sum's results, in units of u (2-norm + |result|)."""
        x, weight, added = (
            x.double(),
            sums.weight.double(),
            torch.zeros((), device="cpu") if sums.bias is None else sums.bias,
        )
        exact, norm = sums.apply(x, weight) + added, sums.norm(x)
        own = gamma(sums.terms + 1, U64) * (sums.apply(x.abs(), weight.abs()) + added.abs())
        unit = unit_roundoff(torch.promote_types(found.dtype, torch.float32))
        apart = ((found.double() - exact).abs() + own) / (unit * (norm + exact.abs()) + torch.finfo(torch.float32).tiny)
        most = float(apart.max()) if apart.numel() else 0.0
        if not most <= self.worst:
            self.worst, self.place = most, self._program.place(node)
