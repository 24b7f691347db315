"""Mutates modules with cosmic-ray, in a copy of the tree, and prints what survived: ``make mutants``.

    python -m tests.mutation.run COSMIC_RAY_FOLDER SAMPLE SINCE [MODULE...]

COSMIC_RAY_FOLDER holds cosmic-ray's programs. SAMPLE mutants of each module run, or all for 0: those of the lines that
changed since the commit SINCE, or of all lines if it is empty. What was killed is kept in build/mutation, and not run
again until the module changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mutation.modules import TESTS

_ROOT = Path(__file__).parents[2]
_KEPT = _ROOT / "build" / "mutation"
_CONFIG = """\
[cosmic-ray]
module-path = {module}
timeout = 1.0
excluded-modules = []
test-command = "mutants.py runs them"

[cosmic-ray.distributor]
name = "local"
"""


def main(programs: Path, sample: int, since: str, modules: list[str]) -> None:
    """Runs what is left of the modules' mutants, and prints a table and the survivors.

    Args:
        programs: Folder of cosmic-ray's programs.
        sample: Mutants of each module; 0 means all.
        since: A commit, of the lines that changed after which mutants are made; "" means all lines.
        modules: Paths in the tree, out of ``TESTS``.
    """
    _KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tree, socket = Path(folder, "tree"), Path(folder, "socket")
        _copy(tree)
        with _server(tree, socket):
            for module in modules:
                _mutate(programs, tree, socket, module, sample, since)
    print(report(programs, since, modules))


def report(programs: Path, since: str, modules: list[str]) -> str:
    """A Markdown table, and the difference that each survivor makes."""
    lines = ["| module | mutants | killed | survived | killed of all |", "| --- | ---: | ---: | ---: | ---: |"]
    survivors = []
    for module in modules:
        outcomes = list(_outcomes(programs, module, since))
        lived = [difference for outcome, difference in outcomes if outcome == "survived"]
        killed = len(outcomes) - len(lived)
        share = killed / len(outcomes) if outcomes else 0.0
        lines.append(f"| `{module}` | {len(outcomes)} | {killed} | {len(lived)} | {share:.1%} |")
        survivors += lived
    return "\n".join([*lines, "", *survivors])


def _copy(tree: Path) -> None:
    """Copies what git knows or would know of the tree."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=_ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, files.split("\0")):
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_ROOT / name, target)
    link = tree / "build" / "types" / "conv2attn"
    link.parent.mkdir(parents=True)
    link.symlink_to(tree)
    # What is compiled once need not be by each fork, and is looked up by a hash of its text: a mutant is never stale.
    compiled = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "convert", "proofs", "tests"]
    subprocess.run([sys.executable, *compiled], cwd=tree, check=True)


@contextmanager
def _server(tree: Path, socket: Path) -> Iterator[None]:
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    process = subprocess.Popen([sys.executable, "-m", "tests.mutation.server", str(socket)], cwd=tree, env=environment)
    try:
        while not socket.exists():
            if process.poll() is not None:
                raise RuntimeError("the server did not start")
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def _mutate(programs: Path, tree: Path, socket: Path, module: str, sample: int, since: str) -> None:
    """Runs the mutants of a module that have not run, after seeing that without a mutation its tests pass."""
    config, session = tree / "cosmic-ray.toml", _session(module, since)
    if not session.exists():
        config.write_text(_CONFIG.format(module=json.dumps(module)))
        subprocess.run([programs / "cosmic-ray", "init", config, session], cwd=tree, check=True)
        lines = json.dumps(_changed_lines(module, since) if since else None)
        _call(programs, tree, "choose", session, str(sample), lines)
    _call(programs, tree, "mutants", session, module, socket)


def _call(programs: Path, tree: Path, name: str, *arguments: str | Path) -> None:
    """Runs a program that uses cosmic-ray."""
    subprocess.run([programs / "python", "-m", f"tests.mutation.{name}", *arguments], cwd=tree, check=True)


def _changed_lines(module: str, since: str) -> list[int]:
    """Numbers of the lines of a module that are not as they were in a commit."""
    command = ["git", "diff", "--unified=0", since, "--", module]
    told = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^@@ .* \+(\d+)(?:,(\d+))? @@", told, re.MULTILINE)
    return [line for start, count in found for line in range(int(start), int(start) + int(count or 1))]


def _session(module: str, since: str) -> Path:
    text = hashlib.sha256((_ROOT / module).read_bytes()).hexdigest()[:8]
    after = f"-since-{since}" if since else ""
    return _KEPT / f"{module.removesuffix('.py').replace('/', '-')}-{text}{after}.sqlite"


def _outcomes(programs: Path, module: str, since: str) -> Iterator[tuple[str, str]]:
    """The outcome and the difference of each mutant that ran."""
    dumped = subprocess.run(
        [programs / "cosmic-ray", "dump", _session(module, since)], check=True, capture_output=True, text=True
    ).stdout
    for line in dumped.splitlines():
        _, result = json.loads(line)
        if result is not None and result["worker_outcome"] == "normal":
            yield result["test_outcome"], result["diff"]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what it started, too
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), sys.argv[3], sys.argv[4:] or list(TESTS))
