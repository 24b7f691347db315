"""``conv2attn check``: the certificates of a folder, checked by a program that Coq extracts from its proof.

Every certificate in the folder's ``report.json`` is checked against the weights in the folder. The report says
geometry, dtype, alpha, range and bound. What is stored of the layers is read from ``config.json`` and the weights
alone, and so is whether a layer is one that the theorem covers: the report cannot change that. A checksum
(``convert/files/folder.py``) says whether report, description and weights were written together.

What goes to the program, which ``make checker`` extracts from ``Checker.v``, is bits: of the report's floats, and of
the layer's numbers as they are stored. Python is trusted with nothing else. ``main.ml`` has the form of a question, and
``proofs/claims/certificate/rounding.py`` names the theorems.
"""

from __future__ import annotations

import math
import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, get_args

import torch
from torch import Tensor

from ...convert.errors import CheckpointError, ConversionError, ToolError
from ...convert.files.folder import checksum, read_folder
from ...convert.heads.encoding import is_power_of_two
from ...convert.heads.regime import ONE_HOT_ALPHA, compute_dtype
from ...convert.network.report import LayerRecord
from ...convert.plain import from_plain, path_in, read_json, read_object
from ...convert.spec import ConvSpec, NamedPadding, PaddingMode
from ...convert.write import CONFIG, REPORT
from ...show.text import Table, layer_name

PROGRAM = "conv2attn-checker"
BUILT = Path(__file__).parents[2] / "build" / "checker" / PROGRAM  # where make checker puts it, in a checkout
DTYPES = {torch.float16: 0, torch.bfloat16: 1, torch.float32: 2, torch.float64: 3}  # their numbers in Checker.v

_INTEGERS = {0: torch.int16, 1: torch.int16, 2: torch.int32, 3: torch.int64}
_LOWEST = {torch.float16: -24, torch.bfloat16: -133, torch.float32: -149, torch.float64: -1074}  # exponents of numbers


@dataclass(frozen=True)
class Claimed:
    """A report's claim about a layer."""

    spec: ConvSpec
    dtype: torch.dtype  # precision of its weights
    alpha: float  # sharpness of its first head
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
    alphas: Tensor  # sharpnesses, [heads]
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
            f"certificates are checked by the program {PROGRAM}, which is not built: git clone "
            "https://github.com/conv2attn/conv2attn, and make checker there extracts it from its proof in Coq; run "
            f"conv2attn from there, or put build/checker/{PROGRAM} on the PATH"
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


class Verdict(StrEnum):
    """Verdict on a certificate."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    NOT_COVERED = "not covered"


OTHER_FOLDER = "report, description and weights are not those that were written together (SHA-256)"

# What the program's refusals mean.
REFUSALS = {
    "Other_shape": "its geometry is not the stored layer's",
    "Other_dtype": "its dtype is not the stored layer's",
    "Other_alpha": "its alpha is not the stored layer's",
    "Not_one_hot": "the stored alphas are too small for one-hot attention",
    "Other_centers": "the stored heads do not sit at the kernel's taps",
    "Malformed": "its numbers do not fit its geometry",
    "May_overflow": "a sum could overflow, and then nothing is proved",
    "Too_small": "its bound is smaller than what is proved",
    "Too_large": "its bound is larger than what is proved, so it is that of another layer or range",
    "Not_finite": "a number is infinite or NaN",
}


@dataclass(frozen=True)
class CheckedLayer:
    """The certificate of a layer."""

    name: str
    verdict: Verdict
    reason: str | None = None
    bound: float | None = None


@dataclass(frozen=True)
class Checked:
    """The certificates of a folder."""

    folder: Path
    input_range: tuple[float, float]
    layers: tuple[CheckedLayer, ...]

    @property
    def exit_code(self) -> int:
        """0 if every layer has a certificate, and all were accepted."""
        return 0 if all(layer.verdict is Verdict.ACCEPTED for layer in self.layers) else 1

    def to_json(self) -> dict[str, Any]:
        """The verdicts as plain data."""
        return {
            "folder": str(self.folder),
            "certified_range": list(self.input_range),
            "layers": [asdict(layer) for layer in self.layers],
        }

    def shown(self) -> list[Table | str]:
        """A row for each layer, and the number of accepted certificates."""
        low, high = self.input_range
        rows = []
        for layer in self.layers:
            said = str(layer.verdict) if layer.reason is None else f"{layer.verdict}: {layer.reason}"
            rows.append((layer_name(layer.name), "" if layer.bound is None else f"{layer.bound:.3g}", said))
        counts = Counter(layer.verdict for layer in self.layers)
        found = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)
        return [
            Table(("layer", f"bound on [{low:g}, {high:g}]", "certificate"), tuple(rows)),
            f"Certificates of {len(self.layers)} layers: {found}.",
            "Not checked: engines, largest outputs, versions, the bound of the whole network, and measurements.",
        ]


_MOST = 200  # characters of a report's text that are repeated


@dataclass(frozen=True)
class _Certificate:
    bound: float
    tail: float
    rounding_attention: float
    rounding_convolution: float


@dataclass(frozen=True)
class _Record:
    spec: ConvSpec
    heads: int
    dtype: str
    alpha: float
    certificate: _Certificate


def check_folder(folder: Path, *, progress: Callable[[int], None] = lambda _: None) -> Checked:
    """Checks the certificate of every layer in a folder.

    Args:
        folder: Folder that ``save_converted`` wrote.
        progress: Called with 1 after each layer.

    Raises:
        CheckpointError: The folder is not a converted model, or is damaged.
        ToolError: The program that checks is not built.
    """
    config, saved = read_folder(folder)
    report = read_object(folder / REPORT)
    if report.get("certified_range", ()) is None:
        raise CheckpointError(f"{folder} has no certificates: conv2attn convert writes them, save_converted does not")
    input_range, records = _read(report, folder / REPORT)
    description: Any = read_json(path_in(folder, CONFIG))
    is_whole = report.get("sha256") == checksum(report, description, saved.state_dict)
    layers = []
    with running() as program:
        for entry in config.layers:
            record = records.pop(tuple(entry.names), None)
            layer = check_layer(program, record, entry, saved.state_dict, input_range)
            if layer.verdict is Verdict.ACCEPTED and not is_whole:
                layer = replace(layer, verdict=Verdict.REFUSED, reason=OTHER_FOLDER)
            layers.append(layer)
            progress(1)
    layers += [CheckedLayer(str(names[0]), Verdict.REFUSED, "the folder holds no such layer") for names in records]
    return Checked(folder, input_range, tuple(layers))


def _read(report: Mapping[str, Any], path: Path) -> tuple[tuple[float, float], dict[tuple[str, ...], Any]]:
    """A report's range, and its record of each layer, by the layer's names.

    Raises:
        CheckpointError: It is malformed.
    """
    try:
        low, high = report["certified_range"]
        records = {tuple(record["names"]): record for record in report["layers"]}
        if len(records) < len(report["layers"]) or not all(records) or {type(low), type(high)} - {int, float}:
            raise ValueError("a layer has no name, or one that another has, or the range is none")
        return (float(low), float(high)), records
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"{path} is malformed: {error!r:.{_MOST}}") from error


def check_layer(
    program: Running,
    record: Mapping[str, Any] | None,
    entry: LayerRecord,
    state: Mapping[str, Tensor],
    input_range: tuple[float, float],
) -> CheckedLayer:
    """Checks a certificate: a report's record of a layer against the folder's description and weights of it."""
    name = entry.names[0]
    if record is None:
        return CheckedLayer(name, Verdict.REFUSED, "the report does not name this layer")
    if (reason := _scores_otherwise(entry, state)) is not None:
        return CheckedLayer(name, Verdict.NOT_COVERED, reason)
    stored = _stored(entry, state)
    if isinstance(stored, str):
        return CheckedLayer(name, Verdict.REFUSED, stored)
    if (reason := _computed_otherwise(stored)) is not None:
        return CheckedLayer(name, Verdict.NOT_COVERED, reason)
    if record.get("certificate") is None:
        given = str(record.get("uncertified"))[:_MOST]
        return CheckedLayer(name, Verdict.NOT_COVERED, f"the report has no certificate: {given}")
    try:
        claimed = _claimed(record, input_range)
    except (KeyError, TypeError, ValueError) as error:
        return CheckedLayer(name, Verdict.REFUSED, f"the report is malformed: {str(error)[:_MOST]}")
    answer = program.verdict(claimed, stored)
    if answer == "Accepted":
        return CheckedLayer(name, Verdict.ACCEPTED, None, claimed.bound)
    return CheckedLayer(name, Verdict.REFUSED, REFUSALS.get(answer, answer), claimed.bound)


def _scores_otherwise(entry: LayerRecord, state: Mapping[str, Tensor]) -> str | None:
    """Why a layer has other than plain weights and scores by distance alone, or None if it has just these."""
    if entry.kind is not None:
        return f"its weights are computed, as {entry.kind[:_MOST]}"
    own = {key.removeprefix(_key(entry, "")) for key in state if key.startswith(_key(entry, ""))}
    if any(key.startswith("content.") for key in own):
        return "it has content terms"
    if any(key.startswith("axis_scores.") for key in own):
        return "it has learned positional scores"
    return None


def _stored(entry: LayerRecord, state: Mapping[str, Tensor]) -> Stored | str:
    """A layer as the folder holds it, or its flaw in words."""
    spec = entry.spec
    shapes = {
        "weight": spec.weight_shape,
        "alpha": (spec.num_heads,),
        "centers": (spec.num_heads, spec.axes),
        **({"bias": (spec.out_channels,)} if spec.bias else {}),
    }
    found = {own: state[_key(entry, own)] for own in shapes if _key(entry, own) in state}
    for own, shape in shapes.items():
        if own not in found or found[own].shape != shape or found[own].dtype not in DTYPES:
            return f"the folder's {own} is missing, or is not that of its geometry"
    weight, alphas, centers = found["weight"], found["alpha"], found["centers"]
    bias = found.get("bias", weight.new_zeros(spec.out_channels))
    if weight.dtype != bias.dtype or alphas.dtype != centers.dtype:
        return "the folder's numbers are of several dtypes"
    return Stored(spec, spec.kernel(weight), bias, alphas, centers)


def _computed_otherwise(stored: Stored) -> str | None:
    """Why attention is not one-hot by the theorem, or sums are not as it has them; None if they are."""
    if stored.spec.transposed and stored.kernel.dtype != compute_dtype(stored.kernel.dtype):
        return "it is transposed and in half precision, where PyTorch rounds each tap"
    threshold = ONE_HOT_ALPHA[compute_dtype(stored.kernel.dtype)]
    alphas = stored.alphas.double().tolist()
    if not all(alpha >= threshold for alpha in alphas):
        return f"attention is soft: an alpha is below {threshold:g}"
    if not all(map(is_power_of_two, alphas)):
        return "an alpha is no power of two, so that scores are rounded"
    return None


def _claimed(record: Mapping[str, Any], input_range: tuple[float, float]) -> Claimed:
    """A report's claim about a layer.

    Raises:
        KeyError: Something is missing.
        TypeError: The certificate is no mapping.
        ValueError: Something is of another kind, or has another value.
    """
    certificate = {name: record["certificate"][name] for name in _Certificate.__dataclass_fields__}
    plain = {name: record[name] for name in _Record.__dataclass_fields__} | {"certificate": certificate}
    found = from_plain(_Record, plain)
    bounds, dtypes = found.certificate, {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES}
    parts = (bounds.tail, bounds.rounding_attention, bounds.rounding_convolution)
    if min(parts) < 0 or not math.isclose(math.fsum(parts), bounds.bound, rel_tol=2.0**-20):
        raise ValueError("tail and rounding do not add up to the bound")
    if found.dtype not in dtypes:
        raise ValueError(f"there is no dtype {found.dtype!r:.80}")
    if found.heads != found.spec.num_heads:
        raise ValueError(f"a layer of {found.spec} has {found.spec.num_heads} heads")
    return Claimed(found.spec, dtypes[found.dtype], found.alpha, *input_range, bounds.bound)


def _key(entry: LayerRecord, own: str) -> str:
    """The key of a layer's tensor in the folder's weights; of an empty name, what all keys of the layer start with."""
    return f"{entry.names[0]}.{own}" if entry.names[0] else own
