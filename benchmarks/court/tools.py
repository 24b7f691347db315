"""What tools say of both sides of a case, each with the settings that its documents recommend or have as default.

allclose     ``torch.allclose`` with rtol 1e-3 and atol 1e-5, as conversion scripts have it
assert_close ``torch.testing.assert_close``: tolerances by precision, as 1.3e-6 and 1e-5 for float32
dynamo       ``torch._dynamo.utils.same`` with a float64 reference; tol 1e-4 (its default) and 1e-3 (its minifier's)
neuron       error ratio of AWS Neuron's Equivalence skill (documents of August 2026): distance of B from A in float64,
             by that of A. At most 1.2 is fine and more than 3 is a bug; between, one looks on. Their unit is bfloat16
             and ours A's own
polygraphy   Polygraphy's default comparison (0.53.6): an element fails beyond atol 1e-5 and beyond rtol 1e-5, too.
             It is written out here, as no other part of it is needed
same         ``conv2attn.same`` with its defaults
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch import Tensor
from truth import Answer, Bug, Rounding, Said, Sides, Truth

from conv2attn.convert.sameness.same import same
from conv2attn.convert.sameness.verdict import THRESHOLD, Sameness

FINE, WRONG = 1.2, 3.0  # error ratios
POLYGRAPHY = 1e-5  # both tolerances


def tensors(found: Any) -> list[Tensor]:
    """The floating-point tensors of an output, one after the other."""
    if isinstance(found, Tensor):
        return [found.detach()]
    if isinstance(found, Mapping):
        return [one for value in found.values() for one in tensors(value)]
    if isinstance(found, Sequence):
        return [one for value in found for one in tensors(value)]
    raise TypeError(f"an output is a {type(found).__name__}")


class Run:
    """Outputs of both sides, and of A in float64.

    Args:
        sides: Both sides.
    """

    def __init__(self, sides: Sides) -> None:
        with torch.no_grad():
            self.a = tensors(sides.a(*_clones(sides.inputs)))
            self.b = tensors(_called(sides.b)(*_clones(sides.inputs)))
            wide = [x.double() if x.is_floating_point() else x for x in _clones(sides.inputs)]
            self.truth = tensors(copy.deepcopy(sides.a).double()(*wide))
        if [x.shape for x in self.a] != [x.shape for x in self.b]:
            raise ValueError(f"shapes differ: {[x.shape for x in self.a]} and {[x.shape for x in self.b]}")

    @property
    def difference(self) -> float:
        """The largest difference."""
        return max((a.double() - b.double()).abs().max().item() for a, b in zip(self.a, self.b, strict=True))

    @property
    def relative(self) -> float:
        """The root mean square of the difference by that of A's outputs."""
        return _distance(self.b, self.a) / max(_distance(self.a, [torch.zeros_like(x) for x in self.a]), 1e-300)


def _clones(inputs: tuple[Tensor, ...]) -> list[Tensor]:
    return [x.clone(memory_format=torch.preserve_format) for x in inputs]


def _called(side: Any) -> Callable[..., Any]:
    """A side as a callable; ONNX files run in ONNX Runtime with its defaults and one thread."""
    if not isinstance(side, Path):
        called: Callable[..., Any] = side
        return called
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(str(side), options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(*inputs: Tensor) -> list[Tensor]:
        found = session.run(None, {name: x.numpy() for name, x in zip(names, inputs, strict=True)})
        return [torch.from_numpy(x) for x in found]

    return run


def _distance(found: list[Tensor], truth: list[Tensor]) -> float:
    squares = sum((x.double() - y.double()).square().sum() for x, y in zip(found, truth, strict=True))
    return float(torch.as_tensor(squares).sqrt())


def _decided(is_fine: bool, words: str = "") -> Said:
    return Said("accept" if is_fine else "reject", words or ("close" if is_fine else "not close"))


def allclose(run: Run) -> Said:
    """``torch.allclose`` of all outputs."""
    return _decided(all(torch.allclose(b.to(a.dtype), a, 1e-3, 1e-5) for a, b in zip(run.a, run.b, strict=True)))


def assert_close(run: Run) -> Said:
    """``torch.testing.assert_close`` of all outputs."""
    try:
        torch.testing.assert_close(run.b, run.a)
    except AssertionError:
        return _decided(False)
    return _decided(True)


def dynamo(run: Run, tolerance: float) -> Said:
    """Torch's own comparison of compiled networks."""
    from torch._dynamo.utils import same as same_as_compiled

    logging.getLogger("torch._dynamo.utils").setLevel(logging.CRITICAL)
    return _decided(same_as_compiled(run.a, run.b, run.truth, tol=tolerance, log_error=lambda *_, **__: None))


def neuron(run: Run) -> Said:
    """The error ratio."""
    own, other = _distance(run.a, run.truth), _distance(run.b, run.truth)
    ratio = other / own if own else float("inf") if other else 1.0
    answer: Answer = "accept" if ratio <= FINE else "undecided" if ratio <= WRONG else "reject"  # NaN is rejected
    return Said(answer, f"{ratio:.3g}")


def polygraphy(run: Run) -> Said:
    """Polygraphy's elementwise comparison; the second side is what errors are relative to."""
    fails = False
    for a, b in zip(run.a, run.b, strict=True):
        difference = (a.double() - b.double()).abs()
        fails |= bool(~((difference <= POLYGRAPHY) | (difference / b.double().abs() <= POLYGRAPHY)).all())
    return _decided(not fails)


OTHERS: dict[str, Callable[[Run], Said]] = {
    "allclose": allclose,
    "assert_close": assert_close,
    "dynamo 1e-4": lambda run: dynamo(run, 1e-4),
    "dynamo 1e-3": lambda run: dynamo(run, 1e-3),
    "neuron": neuron,
    "polygraphy": polygraphy,
}
"""Every tool but ours."""


def ours(sides: Sides, truth: Truth) -> Said:
    """``conv2attn.same``; a refusal is undecided."""
    start = time.process_time()
    try:
        found = same(sides.a, sides.b, sides.inputs)
    except Exception as refusal:
        return Said("undecided", "refused", seconds=time.process_time() - start, details=f"{refusal}")
    return _read(found, truth, time.process_time() - start)


def _read(found: Sameness, truth: Truth, seconds: float) -> Said:
    """A report as an answer; steps of 8 bits that explain a difference are a coarser unit."""
    answers: dict[str, Answer] = {
        **dict.fromkeys(("same bits", "rounding", "coarser rounding"), "accept"),
        **dict.fromkeys(("not rounding", "biased rounding"), "reject"),
    }
    answer, unit = answers.get(found.verdict, "undecided"), found.unit
    if isinstance(truth, Rounding) and truth.unit in unit.lower():  # of units that round alike, none can be told
        unit = truth.unit
    if found.verdict == "quantised":
        is_explained = found.steps is not None and found.steps <= THRESHOLD
        answer, unit = ("accept", "int8") if is_explained else ("reject", "")
    words = f"{found.verdict} {found.ratio:.3g}" if found.outputs else found.verdict
    named = explained = None
    if isinstance(truth, Bug) and found.where:
        first = found.where[0]
        named = truth.is_named(f"{first.name} ({first.kind})")
        explained = truth.is_explained(first.why)
    return Said(answer, words, unit, named, explained, seconds, found.sentence)
