"""Work in child processes whose time of the processor is limited, and lines of JSON that several runs may add to."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Record = dict[str, Any]
PATIENCE = 30  # seconds of the clock for one of the processor: other programs run, too
_EVERY = 0.5  # seconds


def records_of(work: Callable[..., Iterator[Record]], *args: Any, first: float, limit: float) -> Iterator[Record]:
    """The records of a child, until it ends, dies, or takes too long. It is forked, as importing takes seconds.

    Args:
        work: Its work.
        args: Arguments of the work.
        first: Seconds of the processor until the first record; of the clock, ``PATIENCE`` times as many.
        limit: The same for each record after that.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, work, args))
    process.start()
    theirs.close()
    try:
        while _speaks(ours, process.pid or 0, first):
            yield ours.recv()
            first = limit
    except EOFError:
        pass
    finally:
        process.kill()
        process.join()


def _speaks(pipe: Any, pid: int, limit: float) -> bool:
    """Whether a child has something to say before it has used up its time."""
    start, used = time.monotonic(), _seconds(pid)
    while not pipe.poll(_EVERY):
        if _seconds(pid) - used > limit or time.monotonic() - start > limit * PATIENCE:
            return False
    return True


def _seconds(pid: int) -> float:
    """Seconds of the processor that a process and the children that it waited for have used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it ended
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _work(pipe: Any, work: Callable[..., Iterator[Record]], args: tuple[Any, ...]) -> None:
    """A child's work, without what libraries print."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    for record in work(*args):
        pipe.send(record)


def read(out: Path) -> list[Record]:
    """The lines so far; a killed run may have left half a line."""
    lines = out.read_text(encoding="utf-8").splitlines() if out.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def write(out: Path, record: Record) -> None:
    """Adds a line."""
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
