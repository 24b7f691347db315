r"""Certificates for given images: what is proved of the run that was made, and of every run of a class.

``measured``, ``reference`` and ``error`` are of *this* run: the program's outputs are held against the same graph in
float64, and what float64 leaves is proved, so that error = measured + reference bounds how far the run is from exact
arithmetic. The exact function is the CNN's: the graph with convolutions in place of attention layers, and with the
numbers that it holds.

``bound`` is of every run of a class, made or not, under a hypothesis of what its operations round:

    once         each operation is computed in double precision, at least, and rounded once
    any order    sums of products in any order; Winograd's, Fourier transforms and TF32 are outside

Two programs of the class, of which one may have soft attention's tails, differ by at most ``bound`` at the largest
output, and by a margin's ``bound`` at a margin. ``estimate`` is the same to first order, and no bound. How it is proved
is in ``linearised.py`` and ``proof.py``. p is of our own random numbers, ``seed``: the probability that wrong ranges
passed, for each image.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from ...arguments import as_integer
from ...bounds.rounding import OUTWARD
from ...errors import ConversionError, InputError, refusing
from ...layer.checked import checked_model
from .certificate import program_of
from .interval import EXACT, HYPOTHESES
from .linearised import Linearised
from .program import Program
from .proof import Draws, Opens, Proof, checked_probability, prove, units_of

MARGINS = 10
P = 1e-9  # that a proof is wrong where random numbers are drawn, for an image
SHOWN = {
    "exact": 2**20,
    "once": 2**18,
}  # units up to which commands and pages prove: beyond, it takes more than seconds


@dataclass(frozen=True)
class Margin:
    """Margin of the largest output over another one.

    Attributes:
        other: Index of the other output.
        value: The difference of the two in a program of the class: in float64, with numbers as the dtype holds them.
        bound: No two programs' differ by more, or None.
        estimate: The same to first order.
    """

    other: int
    value: float
    bound: float | None
    estimate: float

    @property
    def is_certified(self) -> bool:
        """Whether it is above its bound."""
        return self.bound is not None and self.value > self.bound


@dataclass(frozen=True)
class ImageCertificate:
    """Proofs and estimates for one image.

    Attributes:
        top: Index of the largest output of a program of the class that computes in float64.
        outputs: The largest absolute value of an output.
        measured: Largest difference of an output from float64, in the run that was made, or in either of two.
        reference: Bound on what float64 leaves, at every output, or None.
        estimate: First-order difference of two programs at the largest output.
        bound: Bound on it, or None.
        hypothesis: The class of programs that these two are of.
        margins: To the next largest outputs.
        certified: Whether no program of the class has another largest output, nor the run that was made.
        p: Probability that wrong ranges passed, of random numbers that do not know the network; 0 where nothing was
            random.
        seed: Of the random numbers.
        is_drawn: Whether that was drawn; of one that was given, p says something only if it was chosen blindly.
        units: Numbers that ranges were proved for.
        unstable: Those whose range passes a kink.
        opens: Why there is no bound, or None.
        unproved: Why there is no reference, or None.
        contradiction: Where the run that was made has another class, or is further off than the bound, or None. Then
            nothing is certified.
    """

    top: int
    outputs: float
    measured: float
    reference: float | None
    estimate: float
    bound: float | None
    hypothesis: str
    margins: tuple[Margin, ...]
    certified: bool
    p: float
    seed: int
    is_drawn: bool
    units: int
    unstable: int
    opens: Opens | None
    unproved: Opens | None
    contradiction: str | None

    @property
    def error(self) -> float | None:
        """Bound on how far the run that was made is from exact arithmetic, or None."""
        return None if self.reference is None else (self.measured + self.reference) * OUTWARD

    @property
    def is_stable(self) -> bool:
        """Whether every margin is above its estimate."""
        return all(margin.value > margin.estimate for margin in self.margins)


@dataclass(frozen=True)
class ImagesCertificate:
    """Proofs and estimates for given images.

    Attributes:
        images: One for each.
    """

    images: tuple[ImageCertificate, ...]

    @property
    def bound(self) -> float | None:
        """The largest bound of a largest output or a margin, or None where one is missing."""
        return _largest(one for image in self.images for one in (image.bound, *(each.bound for each in image.margins)))

    @property
    def error(self) -> float | None:
        """The largest error of the runs that were made, or None where one is missing."""
        return _largest(image.error for image in self.images)

    @property
    def p(self) -> float:
        """Probability that wrong ranges passed for any of the images."""
        return min(1.0, sum(image.p for image in self.images))

    @property
    def proved(self) -> str:
        """The words "which is proved", with p where random numbers were drawn."""
        return proof_in_words(self.p, None if not self.images or self.images[0].is_drawn else self.images[0].seed)

    @property
    def estimate(self) -> float:
        """The largest first-order value of a largest output or a margin."""
        found = (one for image in self.images for one in (image.estimate, *(each.estimate for each in image.margins)))
        return max(found, default=0.0)

    @property
    def in_words(self) -> str:
        """The certificate for people: the run's error first, then who may change a class, then the estimate."""
        count = len(self.images)
        if not count:
            return "No image was given."
        how, certified = _IN_WORDS[self.images[0].hypothesis], sum(image.certified for image in self.images)
        opened = next((image.opens for image in self.images if image.opens is not None), None)
        why = "" if opened is None else f" ({opened.layer}: {opened.reason})"
        here = f"{count} image{'s' * (count != 1)}"
        run = (
            f"On {here}, how far this run is from exact arithmetic is not proved"
            if self.error is None
            else f"On {here}, this run is within {self.error:.2g} of exact arithmetic, {self.proved}"
        )
        moved = (
            f"How far {how} moves an output has no bound{why}"
            if self.bound is None
            else f"{how[0].upper()}{how[1:]} moves no output by more than {self.bound:.2g}"
        )
        found = [
            f"{run}. {moved} (first-order estimate {self.estimate:.2g}); it cannot change the class of {certified} of "
            f"the {here}.",
            *(
                f"Image {n} contradicts that: {one.contradiction}."
                for n, one in enumerate(self.images)
                if one.contradiction
            ),
        ]
        return " ".join(found)

    def to_json(self) -> dict[str, Any]:
        """The certificate as plain data; a number that is not finite becomes null."""
        data = asdict(self) | {"bound": self.bound, "error": self.error, "estimate": self.estimate, "p": self.p}
        data["images"] = [one | {"error": image.error} for one, image in zip(data["images"], self.images, strict=True)]
        found: dict[str, Any] = tree_map(
            lambda one: one if not isinstance(one, float) or math.isfinite(one) else None,
            data | {"in_words": self.in_words},
        )
        return found


def proof_in_words(p: float, seed: int | None) -> str:
    """The words "which is proved", with the probability that it is not.

    Args:
        p: That probability; 0 where nothing was random.
        seed: Of the random numbers, if it was not drawn.
    """
    fixed = "" if seed is None else f" (of random numbers with the fixed seed {seed})"
    return f"which is proved but for a probability of {p:.2g}{fixed}" if p else "which is proved"


def _largest(values: Iterable[float | None]) -> float | None:
    """The largest number, 0 where there is none; None where one is missing."""
    found = list(values)
    return None if None in found else max((one for one in found if one is not None), default=0.0)


_IN_WORDS = {
    "once": "rounding each operation once",
    "any order": "any order of the sums",
}


def certify_images(
    model: nn.Module,
    images: Tensor,
    *,
    other: nn.Module | None = None,
    hypothesis: str = "once",
    margins: int = MARGINS,
    p: float = P,
    seed: int | None = None,
) -> ImagesCertificate:
    """Proves what rounding does to a network's outputs on images: in the run that is made, and in a class of runs.

    Args:
        model: A network in eval mode that takes one batch of images, converted or not, which is run image by image.
        images: [count, channels, *size], each certified by itself.
        other: Another network for the same images, such as the CNN or a compiled one, whose run is measured, too.
        hypothesis: The class of programs of ``bound``: "once" or "any order".
        margins: Number of next largest outputs for which margins are given.
        p: Probability that wrong ranges pass the test, of ideal random numbers; it adds up over images. It is at least
            2^-100.
        seed: Of these numbers; drawn if None, 128 bits, and recorded. Chosen after N results were seen, a certificate
            has N p in place of p.

    Raises:
        ConversionError: the network cannot be recorded, it is in train mode, an image is not finite, an operation has
            no rule, or torch cannot compute its rule, p is out of range, or there is no such hypothesis.
        InputError: A network does not run on the images, or gives other outputs.
    """
    return _certified(model, images, other, hypothesis, margins, p, seed, is_shown=False)


def certify_shown(model: nn.Module, images: Tensor, *, margins: int = 1) -> ImagesCertificate:
    """As ``certify_images``, with seed 0 and the proofs that take seconds (``SHOWN``), for commands and pages."""
    return _certified(model, images, None, "once", margins, P, 0, is_shown=True)


@torch.inference_mode(False)
def _certified(
    model: nn.Module,
    images: Tensor,
    other: nn.Module | None,
    hypothesis: str,
    margins: int,
    p: float,
    seed: int | None,
    *,
    is_shown: bool,
) -> ImagesCertificate:
    if hypothesis not in HYPOTHESES:
        raise ConversionError(f"hypothesis must be one of {', '.join(map(repr, HYPOTHESES))}; got {hypothesis!r:.80}")
    count, p = as_integer(margins, "margins", least=0), checked_probability(p)
    is_drawn, seed = seed is None, _seed(seed)
    program, images = program_for(model, images)
    found = []
    with torch.device("cpu"):  # whatever torch's default is
        for number, image in enumerate(images.split(1)):
            own = program_of(program.model, image) if program.reads and number else program  # it may go another way
            one = _Image(own, image, hypothesis, p, seed + number, is_drawn=is_drawn, is_shown=is_shown)
            found.append(one.certificate((model, other) if other is not None else (model,), count))
    return ImagesCertificate(tuple(found))


def _seed(seed: int | None) -> int:
    """The seed that is given, or one that is drawn."""
    return secrets.randbits(128) if seed is None else as_integer(seed, "seed", least=0, most=2**129)


def program_for(model: nn.Module, images: Any) -> tuple[Program, Tensor]:
    """A network's program for images, and the images in the network's precision.

    Raises:
        ConversionError: As ``certify_images``.
    """
    model = checked_model(model)
    if any(module.training for module in model.modules()):
        raise ConversionError("the network is in train mode: call model.eval() first")
    if not isinstance(images, Tensor) or images.ndim < 2 or not images.is_floating_point():
        raise ConversionError("images must be a tensor of floating-point numbers, [count, channels, *size]")
    if not bool(images.isfinite().all()):
        raise ConversionError("images must be finite; one holds NaN or an infinite value")
    like = next((one for one in (*model.parameters(), *model.buffers()) if one.is_floating_point()), images)
    images = images.to(like.dtype)
    first = images[:1] if len(images) else images.new_zeros(1, *images.shape[1:])
    return program_of(model, first), images


class _Image:
    """One image of a program."""

    def __init__(
        self,
        program: Program,
        image: Tensor,
        hypothesis: str,
        p: float,
        seed: int,
        *,
        is_drawn: bool = False,
        is_shown: bool = False,
    ) -> None:
        self._most = SHOWN if is_shown else {}
        self._program, self._image, self._hypothesis, self._p = program, image, hypothesis, p
        self._seed, self._is_drawn, self._draws = seed, is_drawn, Draws(seed)
        self._exact = Linearised(program, image, EXACT)
        if self._exact.problems:
            raise ConversionError(f"nothing can be said of the network: {'; '.join(map(str, self._exact.problems))}")
        self.truth, _ = self._exact.values()
        if not self.truth.numel():
            raise ConversionError("nothing can be said of the network: its outputs do not depend on the images")
        if not bool(self.truth.isfinite().all()):
            raise ConversionError("the network's outputs are not finite in float64")
        self._order = self.truth.argsort(descending=True).tolist()

    def certificate(self, networks: Sequence[nn.Module], margins: int) -> ImageCertificate:
        """The certificate, whose class of programs and run of float64 have half of p each.

        Margins and their bounds are of one class: the center is a program of it that rounds nothing, so every other
        one's margin is less than its by no more than half of the bound on two.
        """
        runs = [run_of(one, self._image, self.truth) for one in networks]
        reference, unproved = self.reference()
        first = first_order(self._program, self._image, self._hypothesis)
        center, _ = first.values()
        self._order = center.argsort(descending=True, stable=True).tolist()
        top, others = self._order[0], self._order[1 : margins + 1]
        proof = self._proof(self._hypothesis, first)
        proved, opens = (proof, None) if isinstance(proof, Proof) else (None, proof)
        estimates, bounds = _pairs(first, self._factors(others)), list[float | None]([None] * (1 + len(others)))
        certified, contradiction = False, None
        if proved is not None:
            found = _pairs(proved.ranges, self._factors(others))
            certified = self._is_certified(proved, center, others, found)
            contradiction = self._contradiction(runs[0], center, others, found, certified)
            bounds = list(found) if contradiction is None else bounds
        values = [float(center[top] - center[one]) for one in others]
        units, unstable = (0, 0) if proved is None else proved.ranges.counted
        return ImageCertificate(
            top=top,
            outputs=float(self.truth.abs().max()),
            measured=max(_farthest(one, self.truth) for one in runs),
            reference=reference,
            estimate=estimates[0],
            bound=bounds[0],
            hypothesis=self._hypothesis,
            margins=tuple(Margin(*row) for row in zip(others, values, bounds[1:], estimates[1:], strict=True)),
            certified=certified and contradiction is None,
            p=self._p if proved is None or proved.columns else 0.0,
            seed=self._seed,
            is_drawn=self._is_drawn,
            units=units,
            unstable=unstable,
            opens=opens,
            unproved=unproved,
            contradiction=contradiction,
        )

    def _contradiction(
        self, run: Tensor, center: Tensor, others: Sequence[int], bounds: Sequence[float], certified: bool
    ) -> str | None:
        """Where the run that was made is not one of those that the proof is of.

        A run of torch adds up in some order, so it is of the class "any order", and as near to the center as any two
        programs are to each other; its class is compared under either hypothesis.
        """
        top = self._order[0]
        best = int(run.nan_to_num(nan=math.inf, neginf=-math.inf).argmax())
        if certified and best != top:
            return f"the run that was made has the class {best}, not {top}"
        if self._hypothesis != "any order":
            return None
        apart = self._factors(others) @ (run - center)
        over = [n for n, most in enumerate(bounds) if not abs(float(apart[n])) <= most]
        if not over:
            return None
        most = abs(float(apart[over[0]]))
        return f"the run that was made is {most:.2g} from float64, and the bound {bounds[over[0]]:.2g}"

    def reference(self) -> tuple[float | None, Opens | None]:
        """Bound on what float64 leaves, at every output."""
        found = self._proof(EXACT, self._exact)
        if isinstance(found, Opens):
            return None, found
        center, _ = found.ranges.values()
        return float(((center - self.truth).abs() + found.radius).max()) * OUTWARD, None

    def _proof(self, hypothesis: str, first: Linearised) -> Proof | Opens:
        if self._program.reads:
            return Opens(self._program.reads[0], "its run reads values there, and another program may go another way")
        top, units = self._factors([]), units_of(first)
        if units > self._most.get(hypothesis, units):
            return Opens("the whole network", f"its {units:,} units are left to certify_images")
        return prove(self._program, self._image, hypothesis, first, top, p=self._p / 2, draws=self._draws)

    def _factors(self, others: Sequence[int]) -> Tensor:
        """Factors of the largest output and its margins over others, [1 + others, outputs]."""
        found = torch.zeros(1 + len(others), len(self.truth), dtype=torch.float64, device="cpu")
        found[:, self._order[0]] = 1.0
        found[torch.arange(1, 1 + len(others), device="cpu"), torch.tensor(others, dtype=torch.long, device="cpu")] -= (
            1.0
        )
        return found

    def _is_certified(self, proof: Proof, center: Tensor, others: Sequence[int], bounds: Sequence[float]) -> bool:
        """Whether the largest output stays so: over these others by their bounds, over all by ranges or bounds."""
        values = center[self._order[0]] - center[list(others)]
        if not bool((values > torch.tensor(bounds[1:], dtype=torch.float64, device="cpu")).all()):
            return False
        (middle, _), radius = proof.ranges.values(), proof.radius
        low = middle[self._order[0]] - radius[self._order[0]]
        rest = [one for one in self._order[1 + len(others) :] if not middle[one] + radius[one] < low]
        for some in torch.tensor(rest, dtype=torch.long, device="cpu").split(16):
            found = _pairs(proof.ranges, self._factors(some.tolist()))[1:]
            values = center[self._order[0]] - center[some]
            if not bool((values > torch.tensor(found, dtype=torch.float64, device="cpu")).all()):
                return False
        return True


def _farthest(run: Tensor, truth: Tensor) -> float:
    """The largest difference of a run from float64."""
    return float((run - truth).abs().nan_to_num(nan=math.inf, posinf=math.inf).max())


def first_order(program: Program, image: Tensor, hypothesis: str) -> Linearised:
    """A network near an image, to first order.

    Raises:
        ConversionError: An operation has no bound.
    """
    found = Linearised(program, image, hypothesis)
    if found.problems:
        raise ConversionError(f"nothing can be estimated for the network: {'; '.join(map(str, found.problems))}")
    return found


def _pairs(ranges: Linearised, factors: Tensor) -> list[float]:
    """Bounds on the difference of two programs, of which one may have soft attention's tails."""
    found, tails = ranges.reach(factors)
    return ((2 * found - tails) * OUTWARD).tolist()


def truth_of(
    program: Program, images: Tensor, *, p: float = P, seed: int | None = None
) -> list[tuple[Tensor, float | None]]:
    """A network's outputs in float64, and what is proved of them: for those that hold other runs against the truth.

    Args:
        program: The network's; the truth of attention is its convolution.
        images: [count, channels, *size].
        p: As for ``certify_images``.
        seed: As for ``certify_images``.

    Returns:
        For each image its outputs, one after another, and a bound on how far any is from exact arithmetic, or None.

    Raises:
        ConversionError: As ``certify_images``.
    """
    p, seed = checked_probability(p), _seed(seed)
    with torch.device("cpu"):  # whatever torch's default is
        found = [_Image(program, image, EXACT, 2 * p, seed + n) for n, image in enumerate(images.split(1))]
        return [(one.truth, one.reference()[0]) for one in found]


def most_at(
    program: Program, image: Tensor, output: int, number: int, apart: float, *, seed: int, is_asked: bool = False
) -> tuple[float, float | None, str, float]:
    """Bounds on the difference of two programs at a number of one of a network's outputs.

    Args:
        program: The network's.
        image: [1, channels, *size].
        output: The output's place.
        number: The number's place in it.
        apart: What two runs differ by there. Unasked, a bound is proved only where that is more than the estimate, and
            takes seconds.
        seed: Of the test's random numbers.
        is_asked: Whether a bound is proved in any case: with sums in any order, or else with each operation rounded
            once.

    Returns:
        The estimate to first order with sums in any order; a proved bound or None; the hypothesis of the bound; and the
        probability that it is wrong, 0 where nothing was random.

    Raises:
        ConversionError: An operation has no rule.
    """
    found: list[float] = []
    for hypothesis in ("any order", "once") if is_asked else ("any order",):
        with torch.device("cpu"):  # whatever torch's default is
            first = first_order(program, image, hypothesis)
            before = sum(one.center.numel() for one in first.outputs[:output])
            factors = torch.zeros(1, len(first.values()[0]), dtype=torch.float64, device="cpu")
            factors[0, before + number] = 1.0
            found += _pairs(first, factors)
            if is_asked or (apart > found[0] and units_of(first) <= SHOWN["once"]):
                proof = prove(program, image, hypothesis, first, factors, p=P, draws=Draws(seed))
                if isinstance(proof, Proof):
                    return found[0], _pairs(proof.ranges, factors)[0], hypothesis, P if proof.columns else 0.0
    return found[0], None, "any order", 0.0


def run_of(network: nn.Module, image: Tensor, like: Tensor) -> Tensor:
    """A network's outputs on an image, one after another, in double precision.

    Raises:
        InputError: It does not run on it, or gives another number of outputs.
    """
    first = next((one for one in (*network.parameters(), *network.buffers()) if one.is_floating_point()), image)
    with torch.no_grad(), refusing("a network does not run on the images", InputError):
        leaves = tree_leaves(network(image.to(first)))
    outputs = [one.detach().cpu().double().flatten() for one in leaves if isinstance(one, Tensor)]
    found = (
        torch.cat([one for one in outputs if one.numel()])
        if outputs
        else torch.zeros(0, dtype=torch.float64, device="cpu")
    )
    if found.shape != like.shape:
        raise InputError(f"a network gives {found.numel()} outputs for an image, where its program has {like.numel()}")
    return found
