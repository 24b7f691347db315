"""Runs the program that ``make checker`` extracts from ``Checker.v``, which gives verdicts on certificates.

What goes to the program is bits: of the report's floats, and of the layer's numbers as they are stored. That is all
that it trusts Python with. ``main.ml`` has the form of a question.
"""

from __future__ import annotations

import math
import shutil
import struct
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, get_args

import torch
from torch import Tensor

from ....convert.errors import ConversionError, ToolError
from ....convert.spec import ConvSpec, NamedPadding, PaddingMode

PROGRAM = "conv2attn-checker"
BUILT = Path(__file__).parents[3] / "build" / "checker" / PROGRAM  # where make checker puts it, in a checkout
DTYPES = {torch.float16: 0, torch.bfloat16: 1, torch.float32: 2, torch.float64: 3}  # their numbers in Checker.v

_INTEGERS = {0: torch.int16, 1: torch.int16, 2: torch.int32, 3: torch.int64}
_LOWEST = {torch.float16: -24, torch.bfloat16: -133, torch.float32: -149, torch.float64: -1074}  # exponents of numbers


@dataclass(frozen=True)
class Claimed:
    """A report's claim about a layer."""

    spec: ConvSpec
    dtype: torch.dtype  # precision of its weights
    alpha: float  # locality strength of its first head
    low: float  # smallest value of the input
    high: float  # largest value of the input
    bound: float  # bound on |fl(Attention) - fl(Conv)|

    def words(self) -> list[str]:
        """The claim in the program's words."""
        floats = (self.alpha, self.low, self.high, self.bound)
        bits = [str(int.from_bytes(struct.pack("<d", number), "little")) for number in floats]
        return [*_shape(self.spec), str(DTYPES[self.dtype]), *bits]

    @property
    def exponent(self) -> int:
        """None of alpha and the range has a smaller exponent of 2, as binary64 stores them."""
        return min(max(math.frexp(number)[1] - 53, -1074) for number in (self.alpha, self.low, self.high))


@dataclass(frozen=True)
class Stored:
    """A layer as it is stored."""

    spec: ConvSpec
    kernel: Tensor  # weights, [out_channels, in_channels / groups, *kernel_size]
    bias: Tensor  # [out_channels]
    alphas: Tensor  # locality strengths, [heads]
    centers: Tensor  # centres, [heads, axes], of the same dtype

    def words(self) -> list[str]:
        """Kinds and counts of the numbers, in the program's words."""
        dtype, positions = DTYPES[self.kernel.dtype], DTYPES[self.alphas.dtype]
        heads, axes = self.centers.shape
        channels, weights = self.kernel.flatten(1).shape
        return [*_shape(self.spec), *map(str, (dtype, positions, axes, heads, channels, weights))]

    @property
    def exponent(self) -> int:
        """No number of the layer has a smaller exponent of 2; that of the sums' smallest is not smaller, either."""
        return min(_LOWEST[self.alphas.dtype], _LOWEST[self.kernel.dtype], _LOWEST[torch.float32])

    def blocks(self) -> Iterator[bytes]:
        """The bits of the numbers."""
        for tensor in (self.alphas, self.centers, *self.kernel, self.bias):
            integers = _INTEGERS[DTYPES[tensor.dtype]]
            bits = tensor.detach().cpu().contiguous().view(integers).numpy()
            yield bits.astype(bits.dtype.newbyteorder("<")).tobytes()


class Running:
    """The program, waiting for questions."""

    def __init__(self, questions: IO[bytes], answers: IO[bytes]) -> None:
        self._questions = questions
        self._answers = answers

    def verdict(self, claimed: Claimed, stored: Stored) -> str:
        """Its verdict, a constructor of ``verdict`` in Checker.v or "Not_finite".

        Raises:
            ConversionError: The program ended.
        """
        try:
            exponent = min(claimed.exponent, stored.exponent)
            words = [*claimed.words(), str(exponent), *stored.words()]
            self._questions.write(" ".join(words).encode("ascii") + b"\n")
            for block in stored.blocks():
                self._questions.write(block)
            self._questions.flush()
        except BrokenPipeError as error:
            raise ConversionError(f"{PROGRAM} ended before it was asked everything") from error
        answer = self._answers.readline().decode("ascii", "replace").strip()
        if not answer:
            raise ConversionError(f"{PROGRAM} ended without a verdict")
        return answer


def find_program() -> str:
    """The program that ``make checker`` built, in this checkout or on the path.

    Raises:
        ToolError: There is none.
    """
    found = str(BUILT) if BUILT.is_file() else shutil.which(PROGRAM)
    if found is None:
        raise ToolError(
            f"certificates are checked by the program {PROGRAM}, which is not built: make checker, in a checkout of "
            "conv2attn, extracts it from its proof in Coq"
        )
    return found


@contextmanager
def running() -> Iterator[Running]:
    """Starts the program, which ends where its questions do, and so at the latest with this process.

    Raises:
        ToolError: It is not built.
    """
    with subprocess.Popen([find_program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdin is None or process.stdout is None:
            raise ToolError(f"{PROGRAM} has no standard streams")
        try:
            yield Running(process.stdin, process.stdout)
        finally:
            process.kill()
            with suppress(BrokenPipeError):  # unsent data is dropped
                process.stdin.close()


def _shape(spec: ConvSpec) -> list[str]:
    """A geometry in the program's words; what enters no bound is a list of numbers that must be the same."""
    padding = spec.padding
    if isinstance(padding, str):
        added = [-1 - get_args(NamedPadding).index(padding)]
    else:
        added = [number for pair in padding for number in (pair if isinstance(pair, tuple) else (pair, pair))]
    kind = [int(spec.transposed), int(spec.bias), get_args(PaddingMode).index(spec.padding_mode)]
    lists: tuple[Iterable[int], ...] = (
        spec.kernel_size,
        spec.query_stride,
        spec.dilation,
        [*kind, *spec.stride, *spec.output_padding, *added],
    )
    counts = (spec.groups, spec.in_channels // spec.groups, spec.out_channels // spec.groups)
    return [*(",".join(map(str, numbers)) for numbers in lists), *map(str, counts)]
