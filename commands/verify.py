"""Chooses what ``conv2attn verify`` checks: random layers, a network that PyTorch runs, or one in an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..convert.files.opening import Opening
from ..convert.write import PROGRAM
from ..proofs.campaign.results import Settings
from .convert import is_onnx
from .options import Dtype, InputOptions, MisuseError, refuse_options, torch_dtype
from .soak import soak_layers
from .terminal import Outcome, result_file
from .verify_network import DEFAULT_ENGINES, verify_checkpoint
from .verify_onnx import verify_onnx_file


def verify_chosen(
    checkpoint: Path | None,
    *,
    opening: Opening,
    inputs: InputOptions,
    alpha: float | None,
    skip_unsupported: bool,
    engines: Sequence[str] | None,
    device: str,
    dtype: Dtype | None,
    original: Path | None,
    form: str | None,
    whole: bool,
    out: Path | None,
) -> Outcome:
    """``conv2attn verify``. The arguments are the command's options."""
    # options that have no meaning for the first two kinds
    of_images: dict[str, object] = {
        "--arch": opening.architecture,
        "--data": inputs.data,
        "--mean": inputs.normalization,
        "--input": inputs.specs,
    }
    # random layers
    if checkpoint is None:
        others: dict[str, object] = {
            "--all": whole,
            "--alpha": alpha,
            "--size": inputs.size,
            "--original": original,
            "--form": form,
        }
        refuse_options("random layers", of_images | others)
        settings = Settings.of(engines, [] if dtype is None else [dtype], device=device)
        return soak_layers(settings, inputs.count, seed=inputs.seed or 0, out=out, name="verify")
    # a network that ONNX Runtime runs, or PyTorch
    if original is None and opening.architecture is None and (checkpoint / PROGRAM).is_file():
        raise MisuseError(
            f"--original is missing, the ONNX file that {checkpoint} was converted from: "
            f"conv2attn verify {checkpoint} --original FILE.onnx"
        )
    is_run_by_onnx = original is not None or form is not None or (opening.architecture is None and is_onnx(checkpoint))
    common: dict[str, Any] = {"inputs": inputs, "alpha": alpha, "skip_unsupported": skip_unsupported, "whole": whole}
    found: Outcome
    with result_file(out, "verify", sources=[checkpoint]) as write:
        if is_run_by_onnx:
            others = {"--engine": engines, "--dtype": dtype, "--ema": opening.ema, "--weights": opening.weights}
            refuse_options("an ONNX file that ONNX Runtime runs", of_images | others)
            found = verify_onnx_file(checkpoint, original=original, form=form, **common)
        else:
            taken: dict[str, Any] = {
                "device": device,
                "dtype": torch_dtype(dtype),
                "engines": engines or DEFAULT_ENGINES,
            }
            found = verify_checkpoint(checkpoint, opening=opening, **taken, **common)
        write(found)
    return found
