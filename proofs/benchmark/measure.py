"""Measures calls that do the same work: first memory, then time, in turns."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.autograd.profiler import profile
from torch.utils.benchmark import Timer

from ...convert.attention.layer import DEFAULT_MEMORY_LIMIT
from ...convert.errors import ConversionError, first_line
from .results import Measurement, Phase

CPU = torch.device("cpu")
Call = Callable[[], object]
LAYER_BATCH, NETWORK_BATCH = 8, 4
ROUNDS, MIN_ROUNDS = 7, 5
SAMPLE_SECONDS = 5e-3  # shortest sample
LIMIT_FLOPS = {"cpu": 2.5e11, "cuda": 1e13}  # some seconds; dense attention at 56x56 takes 1.9e11 for 8 images

_BLOCK = "[memory]"  # the name of the profiler's record of an allocation (positive) or a release (negative)
_KEEP_MEMORY = {-1: -1, -2: 64 * 2**20, -4: 0}  # options of glibc's mallopt by number: trim, top pad, no mmap


@dataclass(frozen=True)
class Settings:
    """Settings of a measurement.

    Raises:
        ConversionError: Too few rounds.
    """

    device: torch.device = CPU
    dtype: torch.dtype = torch.float32  # precision of weights and inputs
    backward: bool = False  # whether to measure forward + backward too
    compile: bool = False  # whether to measure each candidate compiled by torch.compile
    # images in a call; None takes ``LAYER_BATCH`` for layers and ``NETWORK_BATCH`` for networks
    batch: int | None = None
    rounds: int = ROUNDS  # samples of each call, at least ``MIN_ROUNDS``
    threads: int | None = None
    tf32: bool = False  # whether a GPU may use TF32
    seed: int = 0  # seed of weights, inputs and free heads
    # dense and literal attention that takes more for one call is left out; None takes ``LIMIT_FLOPS``
    limit_flops: float | None = None
    memory_limit: int = DEFAULT_MEMORY_LIMIT  # bytes that a score for every head, query and key may take

    def __post_init__(self) -> None:
        if self.rounds < MIN_ROUNDS:
            raise ConversionError(f"a median needs at least {MIN_ROUNDS} rounds; got {self.rounds}")

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Phases to time."""
        return (Phase.forward, Phase.training) if self.backward else (Phase.forward,)

    def to_json(self) -> dict[str, Any]:
        """The settings as plain data."""
        return asdict(self) | {"device": str(self.device), "dtype": str(self.dtype).removeprefix("torch.")}


def measure(calls: Mapping[str, Call], settings: Settings) -> dict[str, Measurement | str]:
    """Measures calls against the first of them.

    Args:
        calls: Calls by name. The first call of each finds nothing prepared by an earlier one, unless it is compiled.
        settings: Settings of the measurement.

    Returns:
        The measurement of each name, or why the call failed.
    """
    peaks: dict[str, int] = {}
    found: dict[str, Measurement | str] = {}
    for name, call in calls.items():
        try:
            if settings.compile:
                call()
            peaks[name] = peak_bytes(call, device=settings.device)
        except ConversionError as error:
            found[name] = str(error)
        except RuntimeError as error:  # torch's, also of exhausted memory and failed compilation
            found[name] = first_line(error)
    times = time_in_turns({name: calls[name] for name in peaks}, rounds=settings.rounds, device=settings.device)
    base = next(iter(times.values()), ())
    for name, seconds in times.items():
        ratios = tuple(one / other for one, other in zip(seconds, base, strict=True))
        found[name] = Measurement(seconds, ratios, peaks[name])
    return found


def time_in_turns(calls: Mapping[str, Call], *, rounds: int, device: torch.device) -> dict[str, tuple[float, ...]]:
    """Seconds that each call takes, in each round, by torch's own timer; a GPU is waited for.

    All calls are timed in turn, so that what slows the machine down for a while slows all of them, and each round
    starts with another one. The timer calls once more before it counts, so that nobody pays for what ran before.
    """

    def clock() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    threads = torch.get_num_threads()
    timers = {name: Timer("call()", globals={"call": c}, timer=clock, num_threads=threads) for name, c in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for number in range(rounds):
        first = number % max(len(names), 1)
        for name in (*names[first:], *names[:first]):
            seconds[name].append(timers[name].blocked_autorange(min_run_time=SAMPLE_SECONDS).median)
    return {name: tuple(samples) for name, samples in seconds.items()}


def peak_bytes(call: Call, *, device: torch.device) -> int:
    """The most bytes that a call holds at one time beside its arguments, the result included.

    On a CPU: every block that torch's allocator hands out or takes back, as torch's profiler records them. That
    includes what a kernel allocates for itself inside torch (reordered weights, the scratch memory of oneDNN) and
    excludes what a library gets from the system by itself (the packing buffers of a matrix product). On a GPU: the most
    that torch's caching allocator had handed out at one time, less what it had before.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = int(torch.cuda.memory_allocated(device))
        call()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device)) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # above every level of message that the profiler prints
    with profile(profile_memory=True) as profiler:
        call()
    results: Any = profiler.kineto_results
    blocks = sorted((e.start_ns(), e.nbytes()) for e in results.events() if e.name() == _BLOCK)
    return max(accumulate((int(count) for _, count in blocks), initial=0))


@contextmanager
def settings_applied(settings: Settings) -> Iterator[None]:
    """Applies threads and TF32 of the settings; from now on, the C library keeps freed memory if it is glibc.

    Otherwise glibc gives large blocks back to the system and gets them again, page by page, whenever a limit happens to
    be crossed. A call can then take several times as long, and no ratio of two calls means anything.
    """
    if platform.libc_ver()[0] == "glibc":
        for option, value in _KEEP_MEMORY.items():
            ctypes.CDLL(None).mallopt(option, value)
    before = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        torch.set_num_threads(settings.threads or before[0])
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = settings.tf32
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before[1:]


def forward_call(function: Callable[[Tensor], Tensor], x: Tensor) -> Call:
    """A call that computes the output and nothing for a backward pass."""
    return torch.no_grad()(lambda: function(x))


def training_call(
    function: Callable[[Tensor], Tensor], x: Tensor, parameters: Sequence[Tensor], cotangent: Tensor
) -> Call:
    """A call that computes the output and the gradients of sum(output * cotangent) for input and parameters."""
    x = x.detach().requires_grad_()
    wanted = [x, *(parameter.requires_grad_() for parameter in parameters)]
    return lambda: torch.autograd.grad(function(x), wanted, cotangent)
