"""What went wrong, in a sentence on stderr, and the exit code that it has."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Protocol, runtime_checkable

from ..terminal.output import say
from ..terminal.printable import printable

WRONG_USE, WRONG_INPUT, UNSUPPORTED, BUG = 2, 3, 4, 70
_NO_MEMORY = "t allocate memory: you tried to allocate"  # what torch says of it, as a RuntimeError


@runtime_checkable
class _UsageError(Protocol):
    """What typer raises for arguments that it refuses; it names no class for all of them."""

    message: str
    exit_code: int

    def show(self) -> None:
        """Prints the command's usage and the message on stderr."""


def is_usage(error: Exception) -> bool:
    """Whether the command line was used wrongly, which no traceback explains."""
    return isinstance(error, _UsageError)


def explain(error: Exception) -> int:
    """Says on stderr what went wrong, and gives the exit code."""
    if isinstance(error, _UsageError):
        error.message = printable(error.message)
        with suppress(OSError):
            error.show()
        return error.exit_code
    if isinstance(error, OSError):
        _abandon_stdout()
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)} "
        said = f"{where or 'the output '}cannot be read or written: {error.strerror or error}"
    elif isinstance(error, MemoryError) or _NO_MEMORY in str(error):
        said = "there is not enough memory"
    else:
        return _explain_other(error)
    say(f"conv2attn: {said}", err=True)
    return WRONG_INPUT


def _explain_other(error: Exception) -> int:
    """As ``explain``, of what neither the command line nor the system says; imports torch, unlike those."""
    try:
        from ...convert.errors import ConversionError
    except (ImportError, OSError, MemoryError) as failed:  # as where memory is limited
        say(f"conv2attn: PyTorch cannot be loaded: {failed or 'there is not enough memory'}", err=True)
        return WRONG_INPUT
    if isinstance(error, ConversionError):
        say(f"conv2attn: {error}{_hint(error)}", err=True)
        return _exit_code(error)
    say(f"conv2attn: internal error: {type(error).__name__}: {error}", err=True)
    say("This is a bug in conv2attn; please report it with the output of --debug.", err=True)
    return BUG


def _exit_code(error: Exception) -> int:
    """Of an error of the library."""
    from ...convert.errors import (
        ArchitectureNeededError,
        OptionError,
        SelectionError,
        ToolError,
        UnsupportedLayerError,
    )

    if isinstance(error, SelectionError | OptionError | ArchitectureNeededError | ToolError):
        return WRONG_USE
    return UNSUPPORTED if isinstance(error, UnsupportedLayerError) else WRONG_INPUT


def _hint(error: Exception) -> str:
    """Which option helps, as the end of an error's sentence: the library does not know how it is called."""
    from ...convert.errors import (
        ArchitectureNeededError,
        OutputExistsError,
        RunExistsError,
        SeveralNetworksError,
        TrustNeededError,
    )
    from ...learn.data.pictures import ImageSizesError

    hints = {
        ArchitectureNeededError: "--arch names the code that builds it",
        TrustNeededError: "--trust runs it",
        SeveralNetworksError: "--weights KEY takes one",
        RunExistsError: "--resume goes on with it",
        OutputExistsError: "--force replaces it",
        ImageSizesError: "--size makes pictures one size",
    }
    found = next((hint for kind, hint in hints.items() if isinstance(error, kind)), None)
    return "" if found is None else f" ({found})"


def _abandon_stdout() -> None:
    """Sends what is left of the output nowhere, or the interpreter fails once more when it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
