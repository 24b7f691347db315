"""Commands have threads that sleep while they wait, memory that is kept, and as many threads as they are told."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

GROWS = """
import resource, sys
from conv2attn.commands.machine import keep_memory
import numpy
kept = keep_memory()
for _ in range(50):
    numpy.ones(2**21)  # 16 MiB
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def kept(**variables: str) -> tuple[str, int]:
    """Whether memory is kept, and the page faults of fifty arrays of 16 MiB."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), **variables}
    found = subprocess.run([sys.executable, "-c", GROWS], env=environment, capture_output=True, text=True, check=True)
    said, faults = found.stdout.split()
    return said, int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_memory_is_kept_unless_the_user_chose_otherwise() -> None:
    (own, few), (chosen, many) = kept(), kept(MALLOC_TRIM_THRESHOLD_="131072")
    assert (own, chosen) == ("True", "False")
    assert many - few > 49 * 2**24 / 2**21 / 2  # half of what as many pages of 2 MiB would fault


THREADS = """
import sys
from conv2attn.cli import app
from conv2attn.commands.options import command
from conv2attn.commands.terminal import Done

@command(app, "Look", computes=True)
def told():
    import os, torch
    return Done({}, [f"{torch.get_num_threads()} {os.environ['OMP_WAIT_POLICY']}"])

app(["told", *sys.argv[1:]])
"""


def test_a_command_computes_with_the_threads_that_it_is_told() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "2"}
    environment.pop("OMP_WAIT_POLICY", None)
    command = [sys.executable, "-c", THREADS, "--threads", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "PASSIVE"], done.stderr
