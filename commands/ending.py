"""How a run ends early: by an error, which is one sentence on stderr with its exit code, or by a signal."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..show.text import printable
from .places import MissingPathError
from .terminal import JSON_VERSION, ReaderLeftError, say, say_document

WRONG_USE, WRONG_INPUT, UNSUPPORTED, CANNOT_SAY = 2, 3, 4, 5
BUG, INTERRUPTED, READER_LEFT = 70, 130, 141  # the last two as shells do
_EXAMPLE = "torchvision.models:resnet18"
_MOST_NETWORKS = 3  # of files beside a checkpoint that are proposed
_NO_MEMORY = "t allocate memory: you tried to allocate"  # torch's RuntimeError for it
_OWN = __name__.partition(".")[0]
_TOOLS = {"torch", "numpy", "typer", "click", "rich", "sympy", "pebble", "lightning", *sys.stdlib_module_names}
"""Top-level modules whose frames do not tell whose error it is."""
_UNCHECKED = "nothing was checked"
_NOTHING = "nothing was written"
_LEFT = {
    **dict.fromkeys(("verify", "check", "formal", "soak"), _UNCHECKED),
    "prove": "only what is printed above was decided",
    "same": "nothing was compared",
    "demo": "folders that were finished stay",
    "help": "nothing was done",
    "plan": "nothing was done",
    "claims": "nothing was done",
}
"""State after an interrupt, by command; elsewhere nothing was written."""
_SIGNALS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]  # a closed terminal


class EndedBySignal(KeyboardInterrupt):
    """A signal that ends a run as Ctrl-C does.

    Attributes:
        number: The signal's number.
    """

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.number = number


class InterruptedRunError(Exception):
    """Ctrl-C, or a signal that is heard as one, as an exception that typer does not take for its own."""


_heard: list[int] = []  # signals that ended this run, also where a command has its result all the same


def code_of_interrupt() -> int:
    """The exit code of a run that was interrupted: 128 and the signal's number, as shells have it."""
    return 128 + (_heard[0] if _heard else signal.SIGINT)


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
    # a sentence and a code for each kind of error
    if isinstance(error, ReaderLeftError):
        _abandon_stdout()
        return READER_LEFT
    if isinstance(error, InterruptedRunError):
        sentence, code = f"interrupted; {_after_interrupt(arguments)}", code_of_interrupt()
    elif is_usage(error):
        error.message = printable(_plain(error))
        sentence, code = error.format_message(), error.exit_code
    elif isinstance(error, MissingPathError):
        sentence, code = str(error), WRONG_INPUT
    elif isinstance(error, OSError):
        _abandon_stdout()
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)} "
        sentence, code = f"{where or 'the output '}cannot be read or written: {error.strerror or error}", WRONG_INPUT
    elif isinstance(error, MemoryError) or _NO_MEMORY in str(error):
        sentence, code = "there is not enough memory; smaller images, or fewer at a time, need less", WRONG_INPUT
    else:
        sentence, code = _described(error, arguments)
    # said as JSON, or as a line on stderr
    if "--json" in arguments:
        with suppress(OSError, ValueError):
            say_document(json.dumps({"version": JSON_VERSION, "error": sentence, "exit_code": code}, indent=2) + "\n")
    elif is_usage(error):
        with suppress(OSError):
            error.show()
        example = error.ctx and error.ctx.command.epilog
        say(*([example] if example and example.startswith("Example: ") else []), err=True)
    else:
        say(f"conv2attn: {sentence}", err=True)
        if code == BUG:
            say("This is a bug in conv2attn; please report it with the output of --debug.", err=True)
    return int(code)


def _after_interrupt(arguments: Sequence[str]) -> str:
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    if command == "learn" or (command == "graft" and "--data" in arguments):
        folder = Path(_value_of(("--out", "-o"), arguments) or "learned")
        return f"{folder} has what was trained so far, and --resume continues it" if folder.is_dir() else _NOTHING
    return _LEFT.get(command, _NOTHING)


def _value_of(names: Sequence[str], arguments: Sequence[str]) -> str | None:
    """The value of an option on the command line, by any of its names; None if it is not given."""
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in names:
            return value if equals else next(iter(arguments[place + 1 :]), None)
    return None


def _described(error: Exception, arguments: Sequence[str]) -> tuple[str, int]:
    """Sentence and exit code for errors from neither the command line nor the system; imports torch."""
    from ..convert import errors

    if not isinstance(error, errors.ConversionError):
        culprit, said = _culprit(error), errors.first_line(error)
        return (f"internal error: {said}", BUG) if culprit is None else (f"{culprit}: {said}", WRONG_INPUT)
    command = f"conv2attn {shlex.join(arguments)}"
    if isinstance(error, errors.OnnxNetworkError):
        return f"{error} (--arch)", WRONG_USE
    if isinstance(error, errors.ArchitectureNeededError):
        return f"{_missing_architecture(error, arguments)}; {error}", WRONG_USE
    hints = {  # the library does not know the options' names
        errors.TrustNeededError: f"--trust runs it: {command} --trust",
        errors.InputError: "--size sets the size of an image; verify, same and export take other inputs by "
        "--input NAME=SHAPE[:DTYPE]",
        errors.SeveralNetworksError: "--weights KEY takes one",
        errors.ClassesDifferError: _other_classes(error, arguments),
        errors.RunExistsError: "--resume continues it",
        errors.OutputExistsError: "--force replaces it",
        errors.ImageSizesError: "--size makes pictures one size",
    }
    if isinstance(error, errors.NotAConvolutionError) and str(error) != error.sentence:
        hints[errors.NotAConvolutionError] = "conv2attn restore --ungraft takes them off"
    hint = next((f" ({hint})" for kind, hint in hints.items() if isinstance(error, kind)), "")
    wrong_use = errors.SelectionError | errors.OptionError | errors.UnknownEngineError
    sentence = f"{error.sentence if hint else error}{hint}"  # one cure, the command line's own where there is one
    if isinstance(error, wrong_use):
        return sentence, WRONG_USE
    return sentence, UNSUPPORTED if isinstance(error, errors.UnsupportedLayerError) else WRONG_INPUT


def _other_classes(error: Any, arguments: Sequence[str]) -> str:
    """The option by which the architecture gets as many classes as the weights have."""
    argument = getattr(error, "argument", None)
    takes = "the architecture takes" if argument else "most architectures take"
    arch = "--arch NAME " * ("--arch" not in arguments)
    return f"{takes} {arch}--arch-arg {argument or 'num_classes'}={getattr(error, 'classes', None)}"


def _missing_architecture(error: Exception, arguments: Sequence[str]) -> str:
    """Says that --arch is missing, with a command: of networks in files beside the checkpoint, if there are some."""
    from ..convert.errors import PickledNetworkError
    from ..convert.files.architecture import networks_beside

    paths = [Path(each) for each in arguments[1:] if not each.startswith("-") and os.path.exists(each)]
    beside = networks_beside(paths[0]) if paths else []
    command = shlex.join(["conv2attn", *arguments, "--arch", beside[0] if beside else _EXAMPLE])
    others = [shlex.quote(each) for each in beside[1:_MOST_NETWORKS]]
    command += f" or {' or '.join(others)}" if others else ""
    command += " or FILE.py:NAME" if len(beside) > _MOST_NETWORKS else ""
    trust = ", or --trust, which runs the pickle's code" if isinstance(error, PickledNetworkError) else ""
    return f"--arch is missing{trust}: {command} (timm:NAME, torchvision.models:NAME, hf:FOLDER or FILE.py:NAME)"


def _culprit(error: Exception) -> str | None:
    """The user's network or the library that failed, where an error is not a bug of this program; else None.

    The frames within the last one of ours tell: a module that was called, other code, or the import of a library.
    Without any, or with torch's and tools' alone, the error is ours.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = [str(frame.f_globals.get("__name__", "")) for frame in frames]
    own = [place for place, name in enumerate(names) if name.partition(".")[0] == _OWN]
    inner = list(zip(frames, names, strict=True))[own[-1] + 1 if own else 0 :]
    if any(name == "torch.nn.modules.module" and frame.f_code.co_name == "_call_impl" for frame, name in inner):
        return "the network does not run"
    others = [(frame, name.partition(".")[0]) for frame, name in inner if name.partition(".")[0] not in _TOOLS]
    if not others:
        return None
    frame, package = others[0]
    if any(name.startswith("importlib.") for _, name in inner):
        return f"importing {package} failed"
    return f"{package} failed" if "site-packages" in frame.f_code.co_filename else "the network does not run"


def _plain(error: Any) -> str:
    """The message about a value without the words of pydantic, with which typer reads values, and with the value."""
    message = re.sub(r", unable to parse string as an? \w+", "", error.message.replace("Value error, ", ""))
    plain = message.replace("Input should be", "must be")
    errors = getattr(error.__cause__, "errors", None)  # pydantic's, unless a function of ours raised its own
    return f"{plain}; got {errors()[0]['input']}" if errors is not None and plain != message else plain


def _abandon_stdout() -> None:
    """Discards the remaining output, which would otherwise make the interpreter fail again at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextmanager
def libraries_quiet() -> Iterator[None]:
    """Keeps off stderr the logs of torch, which print graphs, and warnings of libraries to those who call them."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(before)


def _is_importing_torch() -> bool:
    """Whether torch is being imported, whose C++ ends the process by a message of its own at any exception."""
    return bool(getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False))


@contextmanager
def ended_by_signals(arguments: Sequence[str] = ()) -> Iterator[None]:
    """Makes signals that end a run raise what Ctrl-C raises; afterwards their former handlers are back.

    While torch is imported, when no command has begun its work, they end the process at once, as ``explain`` says.
    """

    def end(number: int, _: object) -> None:
        _heard.append(number)
        if _is_importing_torch():
            os._exit(explain(InterruptedRunError(), arguments))
        raise EndedBySignal(number)

    heard = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]  # nohup ignores one
    before = [signal.signal(number, end) for number in heard]
    _heard.clear()
    try:
        yield
    finally:
        _heard.clear()
        for number, handler in zip(heard, before, strict=True):
            signal.signal(number, handler)
