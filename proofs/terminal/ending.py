"""How a run ends early: by an error, told in one sentence on stderr with its exit code, or by a signal."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from .outcome import JSON_VERSION
from .output import say, say_document
from .printable import printable

WRONG_USE, WRONG_INPUT, UNSUPPORTED, BUG = 2, 3, 4, 70
_EXAMPLE = "torchvision.models:resnet18"
_NO_MEMORY = "t allocate memory: you tried to allocate"  # torch's RuntimeError for it
_SIGNALS = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]  # the latter: a closed terminal


def is_usage(error: Exception) -> bool:
    """Whether the command line was used wrongly, which no traceback explains: typer's errors have no public class."""
    return hasattr(error, "format_message")


def explain(error: Any, arguments: Sequence[str] = ()) -> int:
    """Prints an error, and returns its exit code.

    Args:
        error: The error.
        arguments: Arguments of the command line. With ``--json`` among them, one JSON object is printed on standard
            output in place of a sentence on stderr.
    """
    if is_usage(error):
        error.message = printable(_plain(error.message))
        sentence, code = error.format_message(), error.exit_code
    elif isinstance(error, OSError):
        _abandon_stdout()
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)} "
        sentence, code = f"{where or 'the output '}cannot be read or written: {error.strerror or error}", WRONG_INPUT
    elif isinstance(error, MemoryError) or _NO_MEMORY in str(error):
        sentence, code = "there is not enough memory; smaller images, or fewer at a time, need less", WRONG_INPUT
    else:
        sentence, code = _described(error, arguments)
    if "--json" in arguments:
        with suppress(OSError, ValueError):
            say_document(json.dumps({"version": JSON_VERSION, "error": sentence, "exit_code": code}, indent=2) + "\n")
    elif is_usage(error):
        with suppress(OSError):
            error.show()
        example = error.ctx and error.ctx.command.epilog
        say(*([example] if example else []), err=True)
    else:
        say(f"conv2attn: {sentence}", err=True)
        if code == BUG:
            say("This is a bug in conv2attn; please report it with the output of --debug.", err=True)
    return int(code)


def _described(error: Exception, arguments: Sequence[str]) -> tuple[str, int]:
    """Sentence and exit code for errors from neither the command line nor the system; imports torch."""
    from ...convert import errors
    from ...learn.data.pictures import ImageSizesError

    if not isinstance(error, errors.ConversionError):
        return f"internal error: {type(error).__name__}: {error}", BUG
    command = f"conv2attn {shlex.join(arguments)}"
    hints = {  # the library does not know the options' names
        errors.ArchitectureNeededError: "--arch names it: timm:NAME, torchvision.models:NAME, hf:FOLDER or "
        f"FILE.py:FUNCTION, as in {command} --arch {_EXAMPLE}; of a pickle, --trust takes the network itself",
        errors.TrustNeededError: f"--trust runs it: {command} --trust",
        errors.InputError: "--size sets the size of an image; verify and export take other inputs by "
        "--input NAME=SHAPE[:DTYPE]",
        errors.SeveralNetworksError: "--weights KEY takes one",
        errors.RunExistsError: "--resume continues it",
        errors.OutputExistsError: "--force replaces it",
        ImageSizesError: "--size makes pictures one size",
    }
    hint = next((f" ({hint})" for kind, hint in hints.items() if isinstance(error, kind)), "")
    wrong_use = errors.SelectionError | errors.OptionError | errors.ArchitectureNeededError | errors.ToolError
    if isinstance(error, wrong_use):
        return f"{error}{hint}", WRONG_USE
    return f"{error}{hint}", UNSUPPORTED if isinstance(error, errors.UnsupportedLayerError) else WRONG_INPUT


def _plain(message: str) -> str:
    """A message about a value without the words of pydantic, with which typer reads values."""
    message = re.sub(r", unable to parse string as an? \w+", "", message.replace("Value error, ", ""))
    return message.replace("Input should be", "must be")


def _abandon_stdout() -> None:
    """Discards the remaining output, which would otherwise make the interpreter fail again at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Makes signals that end a run raise SystemExit, so that it cleans up; their former handlers come back."""
    heard = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]  # nohup ignores one
    before = [signal.signal(number, lambda number, _: sys.exit(128 + number)) for number in heard]
    try:
        yield
    finally:
        for number, handler in zip(heard, before, strict=True):
            signal.signal(number, handler)
