"""Proofs about a comparison: how far the truth may be off, and the most that rounding can do to one number.

Both are certificates of given images (``certificate/network/images.py``), so they are known where one tensor of images
goes in, both sides compute in one precision, and every operation of the network has a rule. Small networks are proved
at once; a larger one takes as long as some hundred runs, where that is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..certificate.network.certificate import program_of
from ..certificate.network.images import most_at, truth_of
from ..certificate.network.program import Program
from ..errors import ConversionError, listed
from ..layer.checked import checked_layer
from ..layer.layer import SelfAttention
from ..programs.program import Program as Record
from .verdict import Sameness, Worst

_SMALL = 2**14  # numbers that a network computes for an image, at most, for a proof that nobody asked for
_FEW = 8  # images, likewise


@dataclass(frozen=True)
class Proving:
    """A network whose operations can be bounded, and its images.

    Attributes:
        program: The network's, for one image.
        images: [count, channels, *size], in its precision.
        seed: Of random numbers.
        is_asked: Whether proofs may take long.
    """

    program: Program
    images: Tensor
    seed: int
    is_asked: bool

    @classmethod
    def of(
        cls, network: object, tensors: list[Tensor], dtype: torch.dtype, *, seed: int, is_asked: bool
    ) -> Proving | str:
        """The network of a side, or why nothing can be proved of it.

        Args:
            network: The side's.
            tensors: Its inputs.
            dtype: What it computes in.
            seed: Of random numbers.
            is_asked: Whether proofs may take long.
        """
        if not isinstance(network, nn.Module) or len(tensors) != 1 or tensors[0].ndim < 3:
            return "only a network of one tensor of images has proofs"
        if tensors[0].device.type != "cpu":
            return "proofs are of networks on the CPU"
        images = tensors[0].to(dtype)
        try:
            program = program_of(network, images[:1])
            if program.reads:
                return f"its run reads values ({listed(program.reads)})"
        except (ConversionError, RuntimeError) as refusal:
            return str(refusal)
        return cls(program, images, seed, is_asked)

    def truth_error(self, truth: Mapping[str, Tensor]) -> float | str:
        """Bound on how far any number of the truth is from exact arithmetic, or why there is none.

        The certificate adds up in another order, and its own truth has a proved error; the two truths are compared.

        Args:
            truth: Outputs in float64, in the order in which the network gives them.
        """
        try:
            layers = [checked_layer(one) for one in self.program.model.modules() if isinstance(one, SelfAttention)]
            if not all(layer.regime.is_exact for layer in layers):
                return "the certificate's truth of soft attention is its convolution"
            proved = truth_of(self.program, self.images, seed=self.seed)
        except ConversionError as refusal:
            return str(refusal)
        largest = 0.0
        for number, (own, bound) in enumerate(proved):
            if bound is None:
                return "ranges of its units do not close in float64"
            given = [one[number].flatten() for one in truth.values() if len(one) == len(self.images)]
            whole = torch.cat(given) if len(given) == len(truth) else own.new_zeros(0)
            if whole.shape != own.shape:
                return "its outputs are not one for each image"
            largest = max(largest, float((whole - own).abs().nan_to_num(math.inf).max()) + bound)
        return largest

    def worst(self, outputs: Mapping[str, tuple[Tensor, Tensor]], name: str) -> Worst | None:
        """The worst case of the number of an output that differs most, or None where an operation has no rule.

        Args:
            outputs: Of A and B, in the order in which the network gives them.
            name: The output's.
        """
        a, b = outputs[name]
        if a.shape[:1] != self.images.shape[:1]:
            return None
        apart = (a.double() - b.double()).nan_to_num(0.0, 0.0, 0.0).abs()
        image, number = divmod(int(apart.argmax()), apart[0].numel())
        largest, place = float(apart.max()), list(outputs).index(name)
        one = self.images[image : image + 1]
        try:
            found = most_at(self.program, one, place, number, largest, seed=self.seed, is_asked=self.is_asked)
        except (ConversionError, RuntimeError, IndexError):  # no rule for an operation, or other outputs
            return None
        return Worst(largest, *found)


def with_proofs(
    basis: Sameness,
    proving: Proving | str,
    sides: tuple[Mapping[str, Tensor], Mapping[str, Tensor]],
    truth: Mapping[str, Tensor],
    *,
    is_asked: bool,
) -> Sameness:
    """A verdict with the worst case of the number that differs most, and the truth's own error.

    Args:
        basis: The verdict.
        proving: What can be proved, or why nothing can.
        sides: The outputs of A and B, by A's names.
        truth: The same in float64.
        is_asked: Whether proofs were asked for, so that the report says why it is not proved.
    """
    error: float | str | None = None
    if isinstance(proving, Proving):
        row = max((row for row in basis.outputs if row.typical), key=lambda row: row.difference, default=None)
        pairs = {name: (one, sides[1][name]) for name, one in sides[0].items()}
        worst = None if row is None else proving.worst(pairs, row.name)
        error = proving.truth_error(truth)
        basis = replace(basis, worst=worst, truth_error=error if isinstance(error, float) else None)
    why = error if isinstance(proving, Proving) else proving
    if not (is_asked and isinstance(why, str)):
        return basis
    return replace(basis, notes=(*basis.notes, f"The error of the float64 reference is not proved: {why}."))


def is_small(program: Record, tensors: Sequence[Tensor]) -> bool:
    """Whether proofs take no longer than a few runs of the comparison.

    Args:
        program: The record of a network's run.
        tensors: On these inputs.
    """
    images = len(tensors[0]) if len(tensors) == 1 and tensors[0].ndim else 0
    return 0 < images <= _FEW and sum(_numbers(node.meta.get("val")) for node in program.nodes) <= _SMALL * images


def _numbers(value: object) -> int:
    """Floating-point numbers of an operation's results."""
    values = value if isinstance(value, list | tuple) else [value]
    return sum(one.numel() for one in values if isinstance(one, Tensor) and one.is_floating_point())
