"""Something that happens at one step of a run; run again and again, at each of its steps."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from conv2attn.convert.errors import ConversionError
from tests.processes import finished


def at_step(step: int, happens: Callable[[], object], *, times: int = 1) -> None:
    """From now on, lets something happen when this process opens or changes a file for the ``step``-th time.

    Args:
        step: From 1 on.
        happens: What does; what it opens itself is not counted where it happens once.
        times: Where else: at so many steps in a row.
    """
    seen = happened = 0

    def count(event: str, _: object) -> None:
        nonlocal seen, happened
        if happened < times and event.startswith(("open", "os.")):
            seen += 1
            if seen >= step:
                happened += 1
                happens()

    sys.addaudithook(count)


def ending(run: Callable[[], object]) -> int:
    """The exit code of a fork of this process that runs something, as the command line has them."""
    child = os.fork()
    if child == 0:
        code: object = 70
        try:
            run()
            code = 0
        except SystemExit as end:
            code = end.code
        except KeyboardInterrupt:
            code = 130
        except ConversionError:
            code = 3
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(code if isinstance(code, int) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def told(program: str, *arguments: object, folder: Path) -> list[str]:
    """The lines that a program prints, run in a folder by a Python that finds what this one finds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = finished([sys.executable, "-c", program, *arguments], cwd=folder, env=environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()
