"""Times several calls against one another, fairly.

All calls are timed in turn, round after round, so that what slows the machine down for a while slows all of them.
Each round starts with another call. Before each sample, a call that is not timed brings the caches into the state that
the call itself leaves, so that nobody pays for what ran before. A sample repeats short calls until the clock's
resolution does not matter.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import torch

SAMPLE_SECONDS = 5e-3  # shortest sample
LONG_SECONDS = 0.1  # a call that takes longer fills the caches by itself
MIN_ROUNDS = 5

Call = Callable[[], object]


def time_interleaved(
    calls: Mapping[str, Call], *, rounds: int, device: torch.device, sample_seconds: float = SAMPLE_SECONDS
) -> dict[str, tuple[float, ...]]:
    """Seconds that each call takes, in each round.

    Args:
        calls: What to time, by name.
        rounds: Samples of each call.
        device: Where the calls work; a GPU is waited for.
        sample_seconds: Shortest sample.

    Returns:
        For each name, the seconds of one call in each round, the mean over the repeats of that round's sample.
    """
    wait = _waiter(device)
    repeats = {name: _repeats(call, wait, sample_seconds) for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for number in range(rounds):
        first = number % max(len(names), 1)
        for name in (*names[first:], *names[:first]):
            seconds[name].append(_sample(calls[name], wait, repeats[name]))
    return {name: tuple(samples) for name, samples in seconds.items()}


def _waiter(device: torch.device) -> Callable[[], None]:
    """Returns a function that waits until the device has finished its work."""
    return (lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else (lambda: None)


def _repeats(call: Call, wait: Callable[[], None], sample_seconds: float) -> int:
    """Calls in a sample, so that it is long enough; warms the call up on the way."""
    repeats, seconds = 1, _elapsed(call, wait, 1)
    if seconds > LONG_SECONDS:
        return repeats
    while (seconds := _elapsed(call, wait, repeats)) < sample_seconds:
        repeats = max(2 * repeats, math.ceil(repeats * sample_seconds / max(seconds, 1e-9)))
    return repeats


def _sample(call: Call, wait: Callable[[], None], repeats: int) -> float:
    """Seconds of one call."""
    if repeats > 1:
        call()
    return _elapsed(call, wait, repeats) / repeats


def _elapsed(call: Call, wait: Callable[[], None], repeats: int) -> float:
    wait()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    wait()
    return time.perf_counter() - start
