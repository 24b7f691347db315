"""Error messages on stderr, one sentence each, and exit codes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Protocol, runtime_checkable

from ..terminal.output import say
from ..terminal.printable import printable

WRONG_USE, WRONG_INPUT, UNSUPPORTED, BUG = 2, 3, 4, 70
_NO_MEMORY = "t allocate memory: you tried to allocate"  # torch's RuntimeError for it


@runtime_checkable
class _UsageError(Protocol):
    """Errors that typer raises for arguments, which have no common public class."""

    message: str
    exit_code: int

    def show(self) -> None:
        """Prints the command's usage and the message on stderr."""


def is_usage(error: Exception) -> bool:
    """Whether the command line was used wrongly, which no traceback explains."""
    return isinstance(error, _UsageError)


def explain(error: Exception) -> int:
    """Prints an error on stderr, and returns its exit code."""
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
    """As ``explain``, for errors from neither the command line nor the system; imports torch."""
    try:
        from ...convert import errors
        from ...learn.data.pictures import ImageSizesError
    except (ImportError, OSError, MemoryError) as failed:  # as where memory is limited
        say(f"conv2attn: PyTorch cannot be loaded: {failed or 'there is not enough memory'}", err=True)
        return WRONG_INPUT
    if not isinstance(error, errors.ConversionError):
        say(f"conv2attn: internal error: {type(error).__name__}: {error}", err=True)
        say("This is a bug in conv2attn; please report it with the output of --debug.", err=True)
        return BUG
    hints = {  # the library does not know the options' names
        errors.ArchitectureNeededError: "--arch names the code that builds it",
        errors.TrustNeededError: "--trust runs it",
        errors.SeveralNetworksError: "--weights KEY takes one",
        errors.RunExistsError: "--resume goes on with it",
        errors.OutputExistsError: "--force replaces it",
        ImageSizesError: "--size makes pictures one size",
    }
    hint = next((f" ({hint})" for kind, hint in hints.items() if isinstance(error, kind)), "")
    say(f"conv2attn: {error}{hint}", err=True)
    wrong_use = errors.SelectionError | errors.OptionError | errors.ArchitectureNeededError | errors.ToolError
    if isinstance(error, wrong_use):
        return WRONG_USE
    return UNSUPPORTED if isinstance(error, errors.UnsupportedLayerError) else WRONG_INPUT


def _abandon_stdout() -> None:
    """Discards the remaining output, which would otherwise make the interpreter fail again at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
