"""Measures calls that do the same work: memory first, then time, interleaved."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ....convert.attention.layer import DEFAULT_MEMORY_LIMIT
from ....convert.errors import ConversionError
from ..candidates.cases import Limits
from ..candidates.results import Measurement, Phase
from .memory import peak_bytes
from .timing import MIN_ROUNDS, Call, time_interleaved

CPU = torch.device("cpu")
LAYER_BATCH, NETWORK_BATCH = 8, 4
ROUNDS = 7
LIMIT_FLOPS = {"cpu": 2.5e11, "cuda": 1e13}  # some seconds; dense attention at 56x56 takes 1.9e11 for 8 images

# What a candidate that cannot run raises; torch reports exhausted memory and failed compilation as RuntimeError.
FAILURES = (ConversionError, RuntimeError)


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes:
        device: Where.
        dtype: Precision of weights and inputs.
        backward: Whether to measure forward + backward too.
        compile: Whether to measure what torch.compile makes of each candidate.
        batch: Images in a call; None takes ``LAYER_BATCH`` for layers and ``NETWORK_BATCH`` for networks.
        rounds: Samples of each call, at least ``MIN_ROUNDS``.
        threads: Threads for torch; None leaves them.
        tf32: Whether a GPU may use TF32.
        seed: Of weights, inputs and free heads.
        limit_flops: Dense and literal attention that takes more for one call is left out; None takes
            ``LIMIT_FLOPS``.
        memory_limit: Bytes that a score for every head, query and key may take.

    Raises:
        ConversionError: Too few rounds.
    """

    device: torch.device = CPU
    dtype: torch.dtype = torch.float32
    backward: bool = False
    compile: bool = False
    batch: int | None = None
    rounds: int = ROUNDS
    threads: int | None = None
    tf32: bool = False
    seed: int = 0
    limit_flops: float | None = None
    memory_limit: int = DEFAULT_MEMORY_LIMIT

    def __post_init__(self) -> None:
        if self.rounds < MIN_ROUNDS:
            raise ConversionError(f"a median needs at least {MIN_ROUNDS} rounds; got {self.rounds}")

    @property
    def phases(self) -> tuple[Phase, ...]:
        """What is timed."""
        return (Phase.forward, Phase.training) if self.backward else (Phase.forward,)

    @property
    def limits(self) -> Limits:
        """What is not tried."""
        return Limits(self.memory_limit, self.limit_flops or LIMIT_FLOPS.get(self.device.type, math.inf))

    def to_json(self) -> dict[str, Any]:
        """The settings as plain data."""
        return asdict(self) | {"device": str(self.device), "dtype": str(self.dtype).removeprefix("torch.")}


def measure(calls: Mapping[str, Call], settings: Settings) -> dict[str, Measurement | str]:
    """Measures calls against the first of them.

    Args:
        calls: By name. The first call of each finds nothing prepared by an earlier one, unless it is compiled.
        settings: How.

    Returns:
        For each name what was found, or why the call failed.
    """
    peaks: dict[str, int] = {}
    found: dict[str, Measurement | str] = {}
    for name, call in calls.items():
        try:
            if settings.compile:
                call()
            peaks[name] = peak_bytes(call, device=settings.device)
        except FAILURES as error:
            found[name] = failure(error)
    running = {name: calls[name] for name in peaks}
    times = time_interleaved(running, rounds=settings.rounds, device=settings.device)
    base = next(iter(times.values()), ())
    for name, seconds in times.items():
        ratios = tuple(one / other for one, other in zip(seconds, base, strict=True))
        found[name] = Measurement(seconds, ratios, peaks[name])
    return found


def failure(error: Exception) -> str:
    """Why something could not run, in one line."""
    text = str(error).strip().partition("\n")[0]
    return text if isinstance(error, ConversionError) else f"{type(error).__name__}: {text}"


def forward_call(function: Callable[[Tensor], Tensor], x: Tensor) -> Call:
    """A call that computes the output and nothing for a backward pass."""

    @torch.no_grad()
    def call() -> Tensor:
        return function(x)

    return call


def training_call(
    function: Callable[[Tensor], Tensor], x: Tensor, parameters: Sequence[Tensor], cotangent: Tensor
) -> Call:
    """A call that computes the output and the gradients of sum(output * cotangent) for input and parameters."""
    x = x.detach().requires_grad_()
    wanted = [x, *(parameter.requires_grad_() for parameter in parameters)]

    def call() -> object:
        return torch.autograd.grad(function(x), wanted, cotangent)

    return call
