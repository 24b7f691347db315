"""Whether sums of products keep the contract here: each result within c u (2-norm of its products + |result|).

No bound of this kind holds for every order of a sum. Machines keep it for the images that one looks at, or do not, and
one can only look: the program is run as it is, and each of its sums is held against float64 on its own operands.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from ...bounds.rounding import gamma, unit_roundoff
from ...layer.checked import checked_layer
from .attention import convolve_unpadded
from .call import Call
from .interval import CONTRACT, U64
from .program import ATTENTION, Program, name_of

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


class _Run(fx.Interpreter):
    """One run of a program in its own precision, whose sums are compared with float64."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.exported.graph_module)
        self.extra_traceback = False
        self._program = program
        self.worst, self.place = 0.0, ""

    def run_node(self, n: fx.Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if n.target is ATTENTION:
            return self._attended(n, args[0])
        found = super().run_node(n)
        if name_of(n) in SUMS:
            target: Any = n.target
            named = Call.of(target, args, kwargs, found.shape, None).arguments  # type: ignore[arg-type]
            x, weight, bias = (named[name] for name in ("input", "weight", "bias"))
            rest = {name: value for name, value in named.items() if name not in ("input", "weight", "bias")}
            function: Any = getattr(F, name_of(n))
            axes = 0 if name_of(n) == "linear" else found.ndim - 2
            self._compare(n, found, x, weight, bias, axes, lambda t, w: function(t, w, None, **rest))
        return found

    def _attended(self, node: fx.Node, x: Tensor) -> Tensor:
        layer: Any = self._program.model.get_submodule(str(node.args[1]))
        values = checked_layer(layer)
        found: Tensor = layer(x)
        shape = found.shape
        self._compare(
            node,
            found,
            x,
            values.kernel.detach(),
            values.bias,
            values.spec.axes,
            lambda t, w: convolve_unpadded(values.spec, t, w, shape),
        )
        return found

    def _compare(
        self, node: fx.Node, found: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, axes: int, apply: Any
    ) -> None:
        """Notes the worst of a sum's results, in units of u (2-norm + |result|)."""
        x, weight = x.double(), weight.double()
        added = torch.zeros(()).double() if bias is None else bias.detach().double().view(-1, *[1] * axes)
        exact, norm = apply(x, weight) + added, (apply(x.square(), weight.square()) + added.square()).sqrt()
        own = gamma(weight[0].numel() + 1, U64) * (apply(x.abs(), weight.abs()) + added.abs())
        unit = unit_roundoff(torch.promote_types(found.dtype, torch.float32))
        apart = ((found.double() - exact).abs() + own) / (unit * (norm + exact.abs()) + torch.finfo(torch.float32).tiny)
        most = float(apart.max()) if apart.numel() else 0.0
        if not most <= self.worst:
            self.worst, self.place = most, self._program.place(node)
