"""Options that several commands have, and the values that texts stand for. Torch is imported inside the functions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ...convert.files.checkpoint import Opening
    from ...convert.preprocessing import Normalization
    from ...convert.size import Size


class Dtype(StrEnum):
    """Precisions that a model can be converted in."""

    float64 = "float64"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class Picture(StrEnum):
    """Pictures of a converted network: the first four; of an experiment: maps, contours and the last three."""

    maps = "maps"
    contours = "contours"
    error = "error"
    kernel = "kernel"
    training = "training"
    curves = "curves"
    table = "table"


class Target(StrEnum):
    """Other people's attention."""

    onnx = "onnx"
    mha = "mha"
    gpsa = "gpsa"


class ProofFormat(StrEnum):
    """Forms of the document that holds the proofs."""

    text = "text"
    markdown = "markdown"
    json = "json"


def positive(value: float | None) -> float | None:
    """Refuses a number that is not positive and finite."""
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise typer.BadParameter(f"must be positive and finite; got {value}")
    return value


def all_positive(values: list[float] | None) -> list[float] | None:
    """Refuses numbers of which one is not positive and finite."""
    for value in values or ():
        positive(value)
    return values


CheckpointArgument = Annotated[
    Path,
    typer.Argument(
        metavar="CHECKPOINT",
        help="A file of PyTorch's, safetensors, .pt2 or ONNX, a Hugging Face folder, or what convert wrote.",
    ),
]
ArchOption = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="SPEC",
        help="timm:NAME, torchvision.models:NAME, hf:FOLDER, or code, which runs: package.module:factory, "
        "path/to/file.py:factory. Not needed for a Hugging Face folder, or what convert wrote. Without it, ONNX and "
        "pickled modules give their layers alone; with --trust, programs give the whole network.",
    ),
]
ArchArgOption = Annotated[
    list[str] | None, typer.Option("--arch-arg", metavar="NAME=JSON", help="Argument of the factory; repeatable.")
]
AlphaOption = Annotated[
    float | None,
    typer.Option(callback=positive, help="Locality strength; by default so large that attention is exactly one-hot."),
]
IncludeOption = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help='Layer name, glob, or "re:" and a regular expression.')
]
ExcludeOption = Annotated[list[str] | None, typer.Option(metavar="PATTERN", help="Leave these layers alone.")]
EmaOption = Annotated[bool, typer.Option("--ema", help="Take the moving average of the weights.")]
WeightsOption = Annotated[
    str | None,
    typer.Option("--weights", metavar="KEY", help="Key of the weights, in a checkpoint with several networks."),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust", help="Run the code in the checkpoint: own classes, TorchScript, .pt2, or the architecture it names."
    ),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=SHAPE[:DTYPE]",
        help="An input of the network, drawn at random, like pixel_values=1x3x224x224 or timestep=1:int64; repeatable.",
    ),
]
DeviceOption = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, ...")]
DtypeOption = Annotated[Dtype | None, typer.Option(help="Precision of the weights; by default the architecture's.")]
SkipOption = Annotated[
    bool, typer.Option("--skip-unsupported", help="Leave layers that cannot be converted as they are.")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace what is there; a folder only if conv2attn wrote all of it.")
]
FormOption = Annotated[
    str | None,
    typer.Option(metavar="FORM", help="How attention is written in ONNX: separable, literal or attention."),
]
EngineOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Verify this engine; repeatable; all by default.")
]
ResultOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as JSON, too.")]
PictureSizeOption = Annotated[
    str | None, typer.Option("--size", metavar="ROWSxCOLUMNS", help="Scale a folder's pictures to this size.")
]
MeanOption = Annotated[
    str | None,
    typer.Option(
        metavar="R,G,B",
        help="Mean of each channel that the network was trained with, for pictures from 0 to 1 "
        "(0.485,0.456,0.406 for most ImageNet models); by default pictures get values from -1 to 1.",
    ),
]
StdOption = Annotated[
    str | None, typer.Option(metavar="R,G,B", help="Standard deviation of each channel; goes with --mean.")
]
AcceleratorOption = Annotated[str, typer.Option(help="As for Lightning's Trainer: auto, cpu, gpu, ...")]
DevicesOption = Annotated[int, typer.Option(min=1, help="As for Lightning's Trainer: how many.")]
StrategyOption = Annotated[str, typer.Option(help="As for Lightning's Trainer: auto, ddp, ...")]
PrecisionOption = Annotated[str, typer.Option(help="As for Lightning's Trainer: 32-true, bf16-mixed, ...")]
OPENING: dict[str, tuple[Any, Any]] = {
    "arch": (ArchOption, None),
    "arch_arg": (ArchArgOption, None),
    "ema": (EmaOption, False),
    "weights": (WeightsOption, None),
    "trust": (TrustOption, False),
}
"""The options that say how a checkpoint is opened, each with its default."""


def opening_of(*, arch: str | None, arch_arg: list[str] | None, ema: bool, weights: str | None, trust: bool) -> Opening:
    """How a checkpoint is opened, as the options of these names say."""
    from ...convert.files.architecture import Architecture, parse_arguments
    from ...convert.files.checkpoint import Opening

    if arch is None and arch_arg:
        raise typer.BadParameter("goes with --arch", param_hint="--arch-arg")
    architecture = None if arch is None else Architecture(arch, parse_arguments(arch_arg or ()))
    return Opening(architecture, ema, weights, trust)


def refuse_options(what: str, given: Mapping[str, object]) -> None:
    """Refuses options that have no meaning with what is given."""
    named = [option for option, value in given.items() if value]
    if named:
        raise typer.BadParameter(f"has no meaning for {what}", param_hint=named[0])


def torch_dtype(dtype: Dtype | None) -> Any:
    """The precision, for torch."""
    import torch

    return None if dtype is None else getattr(torch, dtype.value)


def torch_device(name: str) -> Any:
    """The device, for torch."""
    import torch

    try:
        return torch.device(name)
    except RuntimeError as error:
        raise typer.BadParameter(f"there is no device {name!r}", param_hint="--device") from error


def size_of(text: str | None) -> Size | None:
    """A size, from a text like 224x224, or of one or three numbers; None of no text."""
    if text is None:
        return None
    from ...convert.size import Size

    found = re.fullmatch(r"\d{1,99}(x\d{1,99}){0,2}", text.lower())
    lengths = [] if found is None else [int(number) for number in text.lower().split("x")]
    if not lengths or not all(lengths):
        wanted = "must be ROWSxCOLUMNS, like 224x224 (LENGTH for sequences, PLANESxROWSxCOLUMNS for volumes)"
        raise typer.BadParameter(f"{wanted}; got {text}", param_hint="--size")
    return Size(*lengths)


def range_of(text: str) -> tuple[float, float]:
    """Smallest and largest value, from a text like -1,1."""
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        low, high = math.nan, math.nan
    if not -math.inf < low <= high < math.inf:
        raise typer.BadParameter(f"must be LOW,HIGH, like -1,1; got {text}", param_hint="--input-range")
    return low, high


def normalization_of(mean: str | None, std: str | None) -> Normalization | None:
    """Normalization of pictures, from texts like 0.485,0.456,0.406."""
    from ...convert.preprocessing import Normalization

    if mean is None and std is None:
        return None
    if mean is None or std is None:
        raise typer.BadParameter("goes with the other one", param_hint="--std" if mean is None else "--mean")
    return Normalization(_numbers(mean, "--mean"), _numbers(std, "--std"))


def _numbers(text: str, option: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(",")))
    except ValueError as error:
        wanted = "must be numbers with commas between them, like 0.485,0.456,0.406"
        raise typer.BadParameter(f"{wanted}; got {text}", param_hint=option) from error


def pixel_of(text: str) -> tuple[int, int]:
    """Row and column, from a text like 12,40."""
    found = re.fullmatch(r"(\d{1,99}),(\d{1,99})", text)
    if found is None:
        raise typer.BadParameter(f"must be ROW,COLUMN, like 12,40; got {text}", param_hint="--query")
    return int(found[1]), int(found[2])
