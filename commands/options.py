"""Options shared by several commands, and the parsing of their values. Torch is imported inside the functions.

Features that every command shares: JSON output, exit codes, options for opening a checkpoint.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from .ending import INTERRUPTED, InterruptedRunError, code_of_interrupt, is_usage
from .machine import use_threads
from .places import check_there
from .terminal import Outcome, print_outcome, results_alone

if TYPE_CHECKING:
    from ..convert.arguments import Size
    from ..convert.files.opening import Opening
    from ..convert.files.preprocessing import Normalization
    from ..convert.input_specs import InputSpec


_Number = TypeVar("_Number", int, float)

Dtype = Literal["float64", "float32", "bfloat16", "float16"]
"""Precisions that a model can be converted in."""
DTYPE_NAMES: tuple[str, ...] = get_args(Dtype)

Picture = Literal["maps", "contours", "error", "kernel", "training", "curves"]
"""Pictures of a converted network: the first four; of an experiment: maps, contours and the last two."""

RecipeName = Literal["small", "medium", "paper"]
"""Recipes of experiments."""

ProofFormat = Literal["text", "markdown", "json"]
"""Formats of the document that holds the proofs."""

ENGINE_NAMES = ("literal", "sdpa", "separable", "factored")
"""Names of engines. They stand here, too, so that a wrong one is refused before torch is imported."""


def positive(value: Any) -> Any:
    """Refuses a number, or a list of them, that is not positive and finite; None is fine."""
    for number in value if isinstance(value, list) else [] if value is None else [value]:
        if not (number > 0 and math.isfinite(number)):
            raise typer.BadParameter(f"must be positive and finite; got {number}")
    return value


def one_of(known: Sequence[str]) -> Callable[[list[str] | None], list[str] | None]:
    """Returns the callback of a repeatable option that refuses names that are not known."""

    def check(names: list[str] | None) -> list[str] | None:
        for name in names or ():
            if name not in known:
                raise typer.BadParameter(f"must be one of {', '.join(known)}; got {name}")
        return names

    return check


class MisuseError(typer.BadParameter):
    """Options that do not go together, or one that is missing: a sentence that begins with the option's name."""

    def format_message(self) -> str:
        """The sentence alone."""
        return self.message


LEAST_ALPHA, LARGEST_ALPHA = 1e-4, 1e6


def alpha_of(text: str) -> float:
    """Parses an alpha; refuses one with which nothing is known, or that means nothing more.

    Below ``LEAST_ALPHA`` 2^22 keys weigh something in single precision, for which no rounding is derived (claim
    ``key-accumulation``).
    """
    with suppress(ValueError):
        value = float(text)
        if LEAST_ALPHA <= value <= LARGEST_ALPHA:
            return value
    from ..convert.heads.sharpness import ONE_PIXEL

    raise typer.BadParameter(
        f"must be a number from {LEAST_ALPHA:g}, where a head sees some 1,000 pixels each way, to {LARGEST_ALPHA:g} "
        f"({ONE_PIXEL}); got {text}"
    )


CheckpointArgument = Annotated[
    Path,
    typer.Argument(
        metavar="CHECKPOINT", help="PyTorch, safetensors, .pt2 or ONNX file, Hugging Face folder, or output of convert."
    ),
]
ArchOption = Annotated[
    str | None,
    typer.Option("--arch", metavar="SPEC", help="Network: timm:NAME, ... (conv2attn help arch)."),
]
SidesArchOption = Annotated[
    list[str] | None,
    typer.Option(
        "--arch", metavar="SPEC", help="Network, if A or B names none; twice: A's, then B's (conv2attn help arch)."
    ),
]
ArchArgOption = Annotated[
    list[str] | None,
    typer.Option("--arch-arg", metavar="NAME=JSON", help="Constructor argument. Repeatable."),
]
AlphaOption = Annotated[
    float | None, typer.Option(parser=alpha_of, metavar="NUMBER", help="Sharpness (default: makes attention one-hot).")
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help='Convert only these layers: a name, a glob or "re:REGEX". Repeatable.'),
]
ExcludeOption = Annotated[list[str] | None, typer.Option(metavar="PATTERN", help="Layers to leave alone. Repeatable.")]
EmaOption = Annotated[bool, typer.Option("--ema", help="Use the moving average of the weights.")]
WeightsOption = Annotated[str | None, typer.Option("--weights", metavar="KEY", help="Key of the weights in the file.")]
TrustOption = Annotated[bool, typer.Option("--trust", help="Run code that the checkpoint holds or names.")]
InputOption = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME=SHAPE[:DTYPE]", help="Random input, e.g. mask=1x64:bool. Repeatable."),
]
DeviceOption = Annotated[str, typer.Option(metavar="NAME", help="Device: cpu, cuda, ...")]
DtypeOption = Annotated[
    Dtype | None, typer.Option(metavar="DTYPE", help="Precision: float64, float32, bfloat16 or float16.")
]
SkipOption = Annotated[bool, typer.Option("--skip-unsupported", help="Leave unconvertible layers as they are.")]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace an existing file, or a folder that conv2attn wrote.")
]
FormOption = Annotated[
    str | None,
    typer.Option(metavar="FORM", help="Form of attention in ONNX: separable or literal (see conv2attn help engines)."),
]
EngineOption = Annotated[
    list[str] | None,
    typer.Option(
        callback=one_of((*ENGINE_NAMES, "auto")),
        metavar="NAME",
        help="Engine to check (see conv2attn help engines). Repeatable.",
    ),
]
ResultOption = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Also write the result as JSON.")
]
DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="PATH", help="Folder of images, or of subfolders for classes.")
]
RandomOption = Annotated[
    int | None, typer.Option("--random", metavar="N", min=1, help="Number of random inputs (default 2).")
]
SeedOption = Annotated[int | None, typer.Option("--seed", metavar="N", min=0, help="Random seed (default 0).")]
ImageSizeOption = Annotated[
    str | None,
    typer.Option("--size", metavar="ROWSxCOLUMNS", help="Image size (default: the network's, or 224x224)."),
]
PictureSizeOption = Annotated[
    str | None,
    typer.Option("--size", metavar="ROWSxCOLUMNS", help="Image size, to which pictures are scaled."),
]
MeanOption = Annotated[str | None, typer.Option(metavar="R,G,B", help="Channel means, for pixel values from 0 to 1.")]
StdOption = Annotated[str | None, typer.Option(metavar="R,G,B", help="Channel standard deviations, with --mean.")]
AcceleratorOption = Annotated[str, typer.Option(metavar="NAME", help="Lightning accelerator: cpu, gpu, ...")]
DevicesOption = Annotated[int, typer.Option(metavar="N", min=1, help="Processes, one on each device.")]
PrecisionOption = Annotated[str, typer.Option(metavar="NAME", help="Training precision: 16-mixed, ...")]
OPENING: dict[str, tuple[Any, Any]] = {
    "arch": (ArchOption, None),
    "arch_arg": (ArchArgOption, None),
    "ema": (EmaOption, False),
    "weights": (WeightsOption, None),
    "trust": (TrustOption, False),
}


SIDES: dict[str, tuple[Any, Any]] = {**OPENING, "arch": (SidesArchOption, None)}


def opening_of(*, arch: str | None, arch_arg: list[str] | None, ema: bool, weights: str | None, trust: bool) -> Opening:
    """Returns the ``Opening`` that the options of these names describe."""
    from ..convert.files.architecture import Architecture, parse_arguments
    from ..convert.files.opening import Opening

    if arch is None and arch_arg:
        raise MisuseError("--arch-arg goes with --arch, whose network takes the argument")
    architecture = None if arch is None else Architecture(arch, parse_arguments(arch_arg or ()))
    return Opening(architecture, ema, weights, trust)


def sides_of(*, arch: list[str] | None, **others: Any) -> tuple[Opening, ...]:
    """Returns an ``Opening`` for both sides of a comparison or, of two architectures, one for each."""
    if len(arch or ()) > 2:
        raise MisuseError(f"--arch is for two sides; got {', '.join(arch or ())}")
    return tuple(opening_of(arch=each, **others) for each in arch or (None,))


@dataclass(frozen=True)
class InputOptions:
    """Choice of what networks are run on: by the options ``INPUTS``, or ``PICTURES`` alone.

    Attributes:
        data: Folder of images, or file of inputs; None means random inputs.
        count: Number of random inputs; None means ``DEFAULT_IMAGES``, or one batch of described inputs.
        seed: Seed of random inputs; None means 0.
        specs: The networks' inputs by name, to be drawn at random.
        size: Size of random images and of pictures: rows and columns, perhaps after channels; None means the size that
            the network was trained on, or the usual one (``USUAL_SIZES``).
        normalization: Normalization of a folder's pictures; None means the network's own, or values from -1 to 1.
    """

    data: Path | None = None
    count: int | None = None
    seed: int | None = None
    specs: tuple[InputSpec, ...] = ()
    size: Size | None = None
    normalization: Normalization | None = None


_NORMALIZATION: dict[str, tuple[Any, Any]] = {"mean": (MeanOption, None), "std": (StdOption, None)}
PICTURES: dict[str, tuple[Any, Any]] = {"size": (PictureSizeOption, None), **_NORMALIZATION}
INPUTS: dict[str, tuple[Any, Any]] = {
    "data": (DataOption, None),
    "random": (RandomOption, None),
    "seed": (SeedOption, None),
    "input_": (InputOption, None),
    "size": (ImageSizeOption, None),
    **_NORMALIZATION,
}


def inputs_of(
    *,
    size: str | None,
    mean: str | None,
    std: str | None,
    data: Path | None = None,
    random: int | None = None,
    seed: int | None = None,
    input_: list[str] | None = None,
    axes: int | None = None,
) -> InputOptions:
    """Returns the ``InputOptions`` that the options of these names describe, with a size of ``axes`` lengths."""
    from ..convert.input_specs import parse_inputs

    specs, normalization = tuple(parse_inputs(input_ or ())), normalization_of(mean, std)
    return InputOptions(data, random, seed, specs, size_of(size, axes), normalization)


def named_after(source: Path, ending: str) -> Path:
    """Default path of a command's output: in the working folder, named after the file or folder that it read."""
    return Path(f"{source.resolve().stem}{ending}")


def refuse_options(what: str, given: Mapping[str, object]) -> None:
    """Refuses options that have no meaning here."""
    named = [option for option, value in given.items() if value]
    if named:
        raise MisuseError(f"{named[0]} has no meaning for {what}")


def torch_dtype(dtype: Dtype | None) -> Any:
    """Returns torch's dtype of a precision."""
    import torch

    return None if dtype is None else getattr(torch, dtype)


def size_of(text: str | None, axes: int | None = None) -> Size | None:
    """Parses a size such as 224x224, of one to three numbers; None gives None."""
    if text is None:
        return None
    from ..convert.arguments import Size, check_memory

    wanted = "ROWSxCOLUMNS, like 224x224, or 224 for a square (LENGTH for sequences, PLANESxROWSxCOLUMNS for volumes)"
    lengths = _numbers(text.lower(), int, "--size", wanted, (1, 2, 3), separator="x")
    if min(lengths) < 1:
        raise typer.BadParameter(f"must be {wanted}; got {text}", param_hint="--size")
    size = Size(*lengths) if axes is None else Size(*lengths).along(axes)
    check_memory(4 * math.prod(size), f"an image of {size}, as --size says,")
    return size


def range_of(text: str) -> tuple[float, float]:
    """Parses a smallest and a largest value, such as -1,1."""
    low, high = _numbers(text, float, "--input-range", "LOW,HIGH, like -1,1", (2,))
    if not -math.inf < low <= high < math.inf:
        fault = "whose LOW is above its HIGH" if low > high else "which is not finite"
        raise typer.BadParameter(f"must be LOW,HIGH, like -1,1; got {text}, {fault}", param_hint="--input-range")
    return low, high


def normalization_of(mean: str | None, std: str | None) -> Normalization | None:
    """Parses the normalization of pictures from texts such as 0.485,0.456,0.406."""
    from ..convert.files.preprocessing import Normalization

    if mean is None and std is None:
        return None
    if mean is None or std is None:
        given, missing = ("--std", "--mean") if mean is None else ("--mean", "--std")
        raise MisuseError(f"{given} needs {missing}, and {missing} is missing")
    wanted = "numbers separated by commas, like 0.485,0.456,0.406"
    return Normalization(_numbers(mean, float, "--mean", wanted), _numbers(std, float, "--std", wanted))


def check_data(text: str, size: Size | None) -> None:
    """Refuses data that there is not, and a size of images that are not scaled, before anything is read.

    Raises:
        OptionError: There is no such kind of data.
    """
    from ..learn.data.kinds import data_kind, sized

    kind, path = data_kind(text)
    if size is not None and kind != "folder":
        data = sized(kind, size)
        instead = f"--data {data} has images of {size}" if data else "leave --size out"
        raise MisuseError(f"--size {size} is for a folder of pictures, which are scaled to it; {instead}")
    if kind in ("folder", "cifar10"):
        check_there(Path(path))


def pixel_of(text: str) -> tuple[int, int]:
    """Parses a row and a column, such as 12,40."""
    row, column = _numbers(text, int, "--query", "ROW,COLUMN, like 12,40", (2,))
    return row, column


def _numbers(
    text: str,
    kind: Callable[[str], _Number],
    option: str,
    wanted: str,
    counts: tuple[int, ...] = (),
    *,
    separator: str = ",",
) -> tuple[_Number, ...]:
    """Parses numbers; ``counts`` are the numbers of them that are allowed, all if it is empty."""
    try:
        found = tuple(map(kind, text.split(separator)))
        if not counts or len(found) in counts:
            return found
    except ValueError:
        pass
    raise typer.BadParameter(f"must be {wanted}; got {text}", param_hint=option)


GROUPS: dict[str, tuple[dict[str, tuple[Any, Any]], Callable[..., Any]]] = {
    "opening": (OPENING, opening_of),
    "openings": (SIDES, sides_of),
    "pictures": (PICTURES, partial(inputs_of, axes=2)),
    "inputs": (INPUTS, inputs_of),
}
"""Options that several commands have together: each with its default, and the function that makes one value of them."""
_GROUP_TYPES = ("Opening", "InputOptions")
Run = Callable[..., Outcome]
_READ = {"checkpoint", "source", "a", "b", "folder", "original", "image", "data"}  # parameters that are paths to read
_JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

MOST_THREADS = 4096
_THREADS = Annotated[
    int | None,
    typer.Option("--threads", metavar="N", min=1, max=MOST_THREADS, help="Threads (default: one per processor)."),
]


@contextmanager
def interrupts_raised() -> Iterator[None]:
    """Makes an exception of an interrupt, at which typer would end silently."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise InterruptedRunError from interrupt


class Command(TyperCommand):
    """A command that prints nothing but its result to standard output, even if the user's code prints more."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the command line; refuses a second value of an option that takes one, as typer would take the last."""
        order: list[Any] = self.make_parser(ctx).parse_args(args=list(args))[2]
        for option, count in Counter(order).items():
            if count > 1 and option.param_type_name == "option" and not (option.multiple or option.is_flag):
                raise MisuseError(f"{option.opts[0]} takes one value, and is given {count} times", ctx=ctx)
        return super().parse_args(ctx, args)

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parses the command line."""
        with interrupts_raised():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        with interrupts_raised(), results_alone():
            return super().invoke(ctx)


class Program(TyperGroup):
    """The program, whose help lists commands by their panels also where nobody looks at a terminal."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parses the command line."""
        with interrupts_raised():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Runs a command."""
        with interrupts_raised():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds a command; of a name that none has, says where the names are, after typer's near ones."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as usage:
            error: Any = usage
            if is_usage(error) and args[0] not in self.commands:
                said, lists = error.message.removesuffix("."), "conv2attn --help lists all."
                error.message = f"{said} {lists}" if said.endswith("?") else f"{said}; {lists}"
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes a section for each panel."""
        panels: dict[str, list[tuple[str, str]]] = {}
        widest = max(map(len, self.commands))
        for name, each in self.commands.items():
            if each.hidden:
                continue
            short = each.get_short_help_str(formatter.width - 6 - widest)
            panels.setdefault(cast(Any, each).rich_help_panel, []).append((name.ljust(widest), short))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


def command(
    app: typer.Typer, panel: str, *, example: str | None = None, computes: bool = False
) -> Callable[[Run], Run]:
    """Registers a function as a command that prints the returned outcome and ends with its exit code.

    The command also has the option ``--json``, and a group's options (``GROUPS``) in place of a parameter of its name.

    Args:
        app: The program.
        panel: Panel of the help that lists the command.
        example: Arguments that work, for the help and after wrong usage.
        computes: Whether the command has the option ``--threads``.
    """

    def register(run: Run) -> Run:
        types = get_type_hints(run, include_extras=True, localns=dict.fromkeys(_GROUP_TYPES, object))
        groups = {name: group for name, group in GROUPS.items() if name in types}

        def called(*, as_json: bool, threads: int | None = None, **given: Any) -> None:
            if threads is not None:
                use_threads(threads)
            for name in _READ & given.keys():
                if isinstance(given[name], Path):
                    check_there(given[name])
            for group, (members, parse) in groups.items():
                given[group] = parse(**{name: given.pop(name) for name in members})
            outcome = run(**given)
            print_outcome(run.__name__, outcome, as_json=as_json)
            if outcome.exit_code:
                raise typer.Exit(code_of_interrupt() if outcome.exit_code == INTERRUPTED else outcome.exit_code)

        # typer reads options from the signature, in which a group is its members
        options: dict[str, tuple[Any, Any]] = {}
        for name, parameter in inspect.signature(run).parameters.items():
            options |= groups[name][0] if name in groups else {name: (types[name], parameter.default)}
        options |= {"threads": (_THREADS, None)} if computes else {}
        options["as_json"] = (_JSON, False)
        kind = inspect.Parameter.KEYWORD_ONLY
        called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, kind, annotation=a, default=d) for name, (a, d) in options.items()]
        )
        called.__annotations__ = {name: annotation for name, (annotation, _) in options.items()}
        name = run.__name__.replace("_", "-")
        epilog = example and f"Example: conv2attn {name} {example}"
        app.command(name, cls=Command, help=inspect.getdoc(run), epilog=epilog, rich_help_panel=panel)(called)
        return run

    return register
