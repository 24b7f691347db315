"""Measures what reading a file takes, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

ALLOWED = 256 * 2**20  # bytes, and twice the file
SECONDS = 5.0  # of processor time, and one for each megabyte of the file; half of that is used on a free machine
MILLION = (
    0.06  # seconds in which the processor of that machine counts to a million; the time of slower ones counts less
)

# Forks for each line that it is given; a ``work`` that precedes this maps the line to a text that begins with "read".
_FORKS = (
    f"""
MILLION = {MILLION}
"""
    + """
import os, resource, sys, time
from conv2attn.convert.errors import CheckpointError

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def counting():
    before, number = time.process_time(), 0
    while number < 10**6:
        number += 1
    return time.process_time() - before

for line in map(str.rstrip, sys.stdin):
    child = os.fork()
    if child == 0:
        before = peak()
        try:
            outcome = work(line)
        except CheckpointError as error:
            outcome = f"refused: {error}"
        taken = time.process_time()
        print(peak() - before, taken * min(1, MILLION / counting()), outcome, sep="|", flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print("-1|0|crashed", flush=True)
"""
)

# Reads a checkpoint, looks at every number, and builds the layers.
READ = """
import torch
from conv2attn.convert.files.checkpoint import non_finite_keys, read_checkpoint
from conv2attn.convert.files.layers import layer_tree

def work(name):
    checkpoint = read_checkpoint(name)
    non_finite_keys(checkpoint.state_dict)
    layer_tree(checkpoint.convolutions, checkpoint.state_dict)
    return f"read {len(checkpoint.state_dict)}"
"""

# Takes a folder, and the way in which it is opened, after a colon.
OPEN = """
from pathlib import Path
from conv2attn.convert.files.open import load_converted
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.restore import restored_state

ways = {"open": open_network, "load": load_converted, "restore": lambda folder: restored_state(Path(folder))}

def work(line):
    folder, _, way = line.rpartition(":")
    ways[way](folder)
    return "read"
"""

Measure = Callable[[Path | str], tuple[int, float, str]]


@contextmanager
def measuring(work: str) -> Iterator[Measure]:
    """Tells the memory in bytes and the processor time in seconds that reading a file takes, and how it ends.

    A processor that counts slower than ``MILLION`` takes as many times longer for everything, and its time is told as
    that of one which does not.

    Args:
        work: A program that defines ``work``, such as ``READ``: what is done with a line, which is a path or
            more, and the text of how it ended.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", work + _FORKS]
    with subprocess.Popen(command, env=environment, stdin=PIPE, stdout=PIPE, text=True) as process:
        asked, told = process.stdin, process.stdout
        assert asked is not None
        assert told is not None

        def measure(path: Path | str) -> tuple[int, float, str]:
            print(path, file=asked, flush=True)
            memory, seconds, outcome = told.readline().rstrip().split("|", 2)
            return int(memory), float(seconds), outcome

        yield measure
        asked.close()
