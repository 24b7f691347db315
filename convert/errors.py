"""The errors that conv2attn raises for what a caller can cause.

One family, so that ``except ConversionError`` catches every refusal and nothing else. A message is one
sentence: what was asked, what was got, what is allowed, where.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_LONGEST = 300  # most characters that an error repeats of other code's message
_LISTED = 10
_CLOSE = 4  # names that are suggested
_ALIKE = 0.7  # of difflib's similarity, from which on a name may be meant


class ConversionError(ValueError):
    """Base of every error that conv2attn raises on purpose.

    Attributes:
        sentence: What is wrong, without the cure.

    Args:
        sentence: What is wrong.
        cure: What to write in Python instead; the command line names its own option in its place.

    Examples:
        >>> try:
        ...     c2a.attention_from_conv(torch.nn.Linear(2, 2))
        ... except c2a.ConversionError:
        ...     print("refused")
        refused
    """

    def __init__(self, sentence: str = "", *, cure: str = "") -> None:
        super().__init__(f"{sentence}; {cure}" if cure else sentence)
        self.sentence = sentence


class GeometryError(ConversionError):
    """A convolution, or an input size, whose output would not exist."""


class EngineError(ConversionError):
    """An engine that does not exist, is not exact for the layer's parameters, or does not fit in memory."""


class UnknownEngineError(EngineError):
    """A name that no engine has."""


class MemoryLimitError(EngineError):
    """A computation that would hold more than ``memory_limit``, or than the machine has."""


class NotAConvolutionError(ConversionError):
    """An attention layer that computes something no convolution computes."""


class SelectionError(ConversionError):
    """A selection of layers, claims or other named things that does not match any."""


class DivergedError(ConversionError):
    """A training whose loss is not finite."""


class ToolError(ConversionError):
    """A program, or an optional package, that is needed and is not installed."""


class LibraryError(ConversionError):
    """An optional library that is installed, and fails while it is imported."""


class ArchitectureError(ConversionError):
    """An architecture that could not be found or built."""


class ArchitectureNeededError(ConversionError):
    """Weights or layers without the network that they belong to, given without the code that builds it."""


class PickledNetworkError(ArchitectureNeededError):
    """Weights of a pickled network, which is of classes whose code is not run."""


class OnnxNetworkError(ArchitectureNeededError):
    """Layers of an ONNX file, whose network runs by itself, where a network of PyTorch is needed."""


class OptionError(ConversionError):
    """Options that have no meaning together, or with what they are given for."""


class InputError(ConversionError):
    """An input that a network does not run on."""


class CheckpointError(ConversionError):
    """A file that could not be read, or whose weights do not fit."""


class OtherNetworkError(CheckpointError):
    """A file that was rewritten, and computes something else than the original."""


class ClassesDifferError(CheckpointError):
    """Weights that fit an architecture but for the number of classes.

    Attributes:
        classes: How many the weights are of.
        argument: The constructor's argument for it, as far as its name tells; else None.
    """

    def __init__(self, sentence: str, classes: int, argument: str | None = None) -> None:
        super().__init__(sentence)
        self.classes, self.argument = classes, argument


class TrustNeededError(CheckpointError):
    """A file that is a program, opened without the caller's consent to run it."""


class SeveralNetworksError(CheckpointError):
    """A checkpoint of several networks, opened without saying which."""


class OutputError(ConversionError):
    """A folder or a file that could not be written."""


class OutputExistsError(OutputError):
    """A folder or a file that exists, and that the caller did not allow to be replaced."""


class RunExistsError(OutputExistsError):
    """A folder of trainings that the caller did not ask to continue."""


@dataclass(frozen=True)
class Problem:
    """One layer that cannot be converted.

    Attributes:
        name: Fully qualified name of the module; "" is the model itself.
        reason: Why not, as the end of the sentence "the layer cannot be converted: ...".
    """

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name or 'the model itself'}: {self.reason}"


def first_line(error: BaseException) -> str:
    """An exception's name, and the first line of what it says if it says anything; for errors of others' code."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


_PARTS = "export_onnx(network.backbone, FILE), freeze(network.backbone, TOLERANCE)"


def untraceable(error: Exception, parts: str = _PARTS) -> str:
    """Why torch.export cannot follow a network, and what can be done where that is known: calls of its `parts`."""
    if type(error).__name__ == "GuardOnDataDependentSymNode":
        return (
            "sizes or branches in it depend on values, as where a detector chooses among boxes; what comes before can "
            f"be taken alone, in Python: {parts}"
        )
    while isinstance(error.__cause__, Exception) and type(error.__cause__).__module__.startswith("torch.onnx"):
        error = error.__cause__  # the exporter's first error only says that there was one
    return first_line(error)[:300]


def listed(texts: Sequence[str], between: str = ", ") -> str:
    """The first ten of some texts in one, and how many more there are."""
    more = f"{between}and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return between.join(texts[:_LISTED]) + more


def close_names(name: str, names: Iterable[str]) -> str:
    """The end of a sentence that lists names which a misspelt or shortened one may mean; empty if none is close."""
    others = sorted({*names} - {name}, key=len)
    close = difflib.get_close_matches(name, others, n=_CLOSE, cutoff=_ALIKE)
    whole = [other for other in others if len(name) > 2 and name.lower() in other.lower()]
    found = list(dict.fromkeys([*close, *whole]))[:_CLOSE]
    return f"; close names: {', '.join(found)}" if found else ""


@contextmanager
def refusing(what: str, kind: type[ConversionError] = ConversionError) -> Iterator[None]:
    """Refuses whatever a user's code raises within, but for errors of ours and a lack of memory.

    Args:
        what: What then cannot be done, as the beginning of a sentence that ends with the error's first line.
        kind: The error's class.

    Raises:
        ConversionError: The code raised something.
    """
    try:
        yield
    except (ConversionError, MemoryError):
        raise
    except Exception as error:
        raise kind(f"{what}: {first_line(error)[:_LONGEST]}") from error


@contextmanager
def importing(name: str, missing: ConversionError, *, broken: type[ConversionError] = LibraryError) -> Iterator[None]:
    """Tells an optional library that is missing from one that fails while it is imported within.

    Args:
        name: The library's name.
        missing: What is raised where it is not installed.
        broken: The error's class where importing it raises anything else, such as the lack of a library of its own.

    Raises:
        ConversionError: It is not installed, or cannot be imported.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise missing from None  # the sentence says all
        raise broken(f"importing {name} failed: {first_line(error)[:_LONGEST]}") from error


class UnsupportedLayerError(ConversionError):
    """A model with layers that cannot be converted, or with none that can.

    Attributes:
        problems: Every unsupported layer of the model, not only the first.
    """

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class ImageSizesError(ConversionError):
    """Images of several sizes, where one is needed."""
