"""The whole network that ``conv2attn convert`` writes where the network came as an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from ...convert.errors import CheckpointError, OptionError, Problem
from ...convert.export.onnx.forms import DEFAULT_FORM
from ...convert.export.onnx.whole import WholeModel, attention_model, flaw
from ...convert.files.open import Network
from ...convert.files.readers.sniff import Kind, sniff
from ...convert.files.write import PROGRAM
from ..terminal.names import problem_lines


@dataclass
class Program:
    """A network as an ONNX file in which convolutions are attention."""

    source: Path  # the original file
    whole: WholeModel | None  # None if some of its nodes cannot be replaced
    left: tuple[Problem, ...]  # nodes that are left, or that cannot be replaced
    notes: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Writes the file, and has onnx's checker look at it.

        Raises:
            CheckpointError: The checker refuses it, and not the file that it is made of.
        """
        if self.whole is None:
            return
        self.whole.write(path)
        found = flaw(path)
        if found is not None and flaw(self.source) is None:
            raise CheckpointError(f"onnx's checker refuses what would be written: {found}")
        self.notes += [] if found is None else [f"onnx's checker refuses the file, and the original too: {found}"]

    @property
    def lines(self) -> list[str]:
        """Lines about it for the terminal."""
        if self.whole is None:
            return [f"No {PROGRAM} was written:", *problem_lines("cannot be replaced", self.left)]
        count = len(self.whole.layers)
        told = f"{PROGRAM} runs by itself, with attention in the form {self.whole.form} for {count} convolution nodes."
        return [told, *problem_lines("left in it", self.left), *self.notes]

    def to_json(self) -> dict[str, Any]:
        """The file as plain data."""
        return {
            "file": None if self.whole is None else PROGRAM,
            "form": None if self.whole is None else self.whole.form,
            "nodes": 0 if self.whole is None else len(self.whole.layers),
            "left": [vars(problem) for problem in self.left],
            "notes": self.notes,
        }


def program_of(
    network: Network,
    model: nn.Module,
    *,
    form: str | None,
    skip_unsupported: bool,
    told: Mapping[str, Mapping[str, object]],
) -> Program | None:
    """The program to write beside a converted network, with what is told of each layer; None for other than ONNX files.

    Raises:
        OptionError: A form is given, and it is no ONNX file.
    """
    path = network.checkpoint.path
    if network.architecture is not None or not is_onnx(path):
        if form is not None:
            raise OptionError("a form is for ONNX files, of which a whole network is written")
        return None
    named, sha256 = dict(model.named_modules(remove_duplicate=False)).get, network.checkpoint.sha256
    whole = attention_model(path, named, form=form or DEFAULT_FORM, source_sha256=sha256, remarks=told)
    is_whole = bool(whole.layers) and (skip_unsupported or not whole.refused)
    return Program(path, whole if is_whole else None, (*whole.refused, *whole.left))


def is_onnx(path: Path) -> bool:
    """Whether a file is an ONNX model, by its first bytes."""
    return path.is_file() and sniff(path) is Kind.ONNX
