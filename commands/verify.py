"""Chooses what ``conv2attn verify`` checks: random layers, a network that PyTorch runs, or one in an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..convert.files.weights import Opening
from ..convert.inputs import parse_inputs
from ..convert.write import PROGRAM
from ..proofs.campaign.results import Settings
from .convert import is_onnx
from .options import Dtype, MisuseError, normalization_of, refuse_options, size_of, torch_dtype
from .soak import soak_layers
from .terminal import Outcome, progress, result_file
from .verify_network import verify_checkpoint
from .verify_onnx import verify_onnx_file


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """The options of the command, as its help names them."""

    checkpoint: Path | None
    opening: Opening
    alpha: float | None
    skip_unsupported: bool
    engine: Sequence[str] | None
    device: str
    dtype: Dtype | None
    data: Path | None
    random: int | None
    seed: int | None
    size: str | None
    input_: Sequence[str] | None
    mean: str | None
    std: str | None
    original: Path | None
    form: str | None
    whole: bool

    @property
    def of_images(self) -> dict[str, object]:
        """The options that are about images of a network in PyTorch."""
        return {
            "--arch": self.opening.architecture,
            "--data": self.data,
            "--mean": self.mean,
            "--std": self.std,
            "--input": self.input_,
            "--all": self.whole,
        }

    @property
    def is_of_onnx(self) -> bool:
        """Whether ONNX Runtime runs the network."""
        if self.original is not None or self.form is not None:
            return True
        return self.checkpoint is not None and self.opening.architecture is None and is_onnx(self.checkpoint)


def verify_chosen(options: VerifyOptions, *, out: Path | None) -> Outcome:
    """``conv2attn verify``.

    Args:
        options: What is verified, and how.
        out: File for the result as JSON.

    Raises:
        MisuseError: Options that have no meaning for what is verified, or one is missing.
        ConversionError: As the check.
    """
    if options.checkpoint is None:
        return _layers(options, out)
    if options.original is None and options.opening.architecture is None and (options.checkpoint / PROGRAM).is_file():
        raise MisuseError(
            f"--original is missing, the ONNX file that {options.checkpoint} was converted from: "
            f"conv2attn verify {options.checkpoint} --original FILE.onnx"
        )
    with result_file(out, "verify", sources=[options.checkpoint]) as write:
        check = _onnx if options.is_of_onnx else _network
        found = check(options, options.checkpoint)
        write(found)
    return found


def _layers(options: VerifyOptions, out: Path | None) -> Outcome:
    """Checks random layers."""
    if options.random is None:
        raise MisuseError(
            "CHECKPOINT is missing: conv2attn verify attention checks what convert wrote, "
            "conv2attn verify --random 100 checks random layers"
        )
    no_layers = {
        "--alpha": options.alpha,
        "--size": options.size,
        "--original": options.original,
        "--form": options.form,
    }
    refuse_options("random layers", options.of_images | no_layers)
    dtypes = [] if options.dtype is None else [options.dtype]
    settings = Settings.of(options.engine, dtypes, device=options.device)
    return soak_layers(settings, options.random, seed=options.seed or 0, out=out, name="verify")


def _onnx(options: VerifyOptions, checkpoint: Path) -> Outcome:
    """Checks a network in an ONNX file, or a folder that was converted from one."""
    weighed = {
        "--engine": options.engine,
        "--dtype": options.dtype,
        "--ema": options.opening.ema,
        "--weights": options.opening.weights,
    }
    refuse_options("an ONNX file that ONNX Runtime runs", options.of_images | weighed)
    return verify_onnx_file(
        checkpoint,
        original=options.original,
        form=options.form,
        alpha=options.alpha,
        skip_unsupported=options.skip_unsupported,
        count=options.random,
        size=size_of(options.size),
        seed=options.seed,
    )


def _network(options: VerifyOptions, checkpoint: Path) -> Outcome:
    """Checks a network that PyTorch runs."""
    return verify_checkpoint(
        checkpoint,
        opening=options.opening,
        alpha=options.alpha,
        skip_unsupported=options.skip_unsupported,
        device=options.device,
        dtype=torch_dtype(options.dtype),
        engines=options.engine,
        folder=options.data,
        count=options.random,
        size=size_of(options.size),
        seed=options.seed,
        normalization=normalization_of(options.mean, options.std),
        specs=parse_inputs(options.input_ or ()),
        whole=options.whole,
        progress=partial(progress, "Running CNN and attention"),
    )
