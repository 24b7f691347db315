"""The program that is extracted from ``Checker.v`` accepts true certificates, and refuses every other.

Those that ask it are slow; ``make slow`` builds it before them.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from conv2attn.convert import SelfAttention2d, attention_from_conv, certify_report, convert_model, save_converted
from conv2attn.convert.errors import CheckpointError, ToolError
from conv2attn.convert.files.folder import read_folder
from conv2attn.convert.network.report import LayerRecord, Report
from conv2attn.proofs.formal import certificates as program
from conv2attn.proofs.formal.certificates import (
    OTHER_FOLDER,
    REFUSALS,
    CheckedLayer,
    Running,
    Verdict,
    check_folder,
    check_layer,
    running,
)
from tests.command import exit_code, result_of

TAMPERED = 1000
RANGE = (-1.0, 1.0)
KINDS = [
    nn.Conv1d(4, 6, 5, stride=2, padding=2, groups=2),
    nn.Conv1d(3, 2, 2, padding="same", padding_mode="circular"),
    nn.Conv2d(4, 6, (2, 3), stride=(1, 2), padding=1, dilation=(2, 1), groups=2),
    nn.Conv2d(3, 5, 1, bias=False),
    nn.Conv2d(4, 4, 3, padding="valid", padding_mode="reflect"),
    nn.Conv3d(2, 3, (1, 2, 3), padding=(0, 1, 1)),
    nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1, groups=2),
    nn.ConvTranspose2d(3, 4, (3, 2), stride=2, padding=1),
    nn.ConvTranspose3d(2, 2, 2, bias=False),
]


def is_covered(kind: nn.Module, dtype: torch.dtype) -> bool:
    """PyTorch rounds each tap of a transposed convolution in half precision, which no theorem is about."""
    return not (isinstance(kind, nn.modules.conv._ConvTransposeNd) and dtype in (torch.float16, torch.bfloat16))


def with_values(kind: nn.Module, dtype: torch.dtype, values: str) -> nn.Module:
    conv = deepcopy(kind).to(dtype)
    with torch.no_grad():
        for parameter in conv.parameters():
            if values == "zeros":
                parameter.zero_()
            elif values == "subnormal":
                parameter.copy_((torch.rand_like(parameter, dtype=torch.float64) * 1e-39).to(dtype))
            elif values == "of all sizes":
                spread = torch.randn_like(parameter, dtype=torch.float64) * 10.0 ** torch.randint(
                    -9, 3, parameter.shape
                )
                parameter.copy_(spread.to(dtype))
    return conv


def saved(folder: Path, *layers: nn.Module, alpha: float | None = None) -> Path:
    """A folder of layers."""
    if alpha is None:
        conversion = convert_model(nn.ModuleList(layers))
    else:
        conversion = convert_model(nn.ModuleList(layers), alpha=alpha)
    save_converted(conversion.model, folder, report=certify_report(*conversion))
    return folder


def report_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return found


def change_report(folder: Path, change: dict[str, Any], layer: int = 0) -> None:
    report = report_of(folder)
    report["layers"][layer] |= change
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")


def change_weights(folder: Path, key: str, value: Tensor) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {key: value}, folder / "model.safetensors", metadata={"format": "pt", "conv2attn": "3"})


@pytest.fixture
def built() -> None:
    try:
        program.find_program()
    except ToolError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def asked(built: None) -> Iterator[Running]:
    with running() as found:
        yield found


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (torch.float16, "zeros"),
        (torch.float16, "subnormal"),
        (torch.bfloat16, "of all sizes"),
        (torch.float32, "subnormal"),
        (torch.float64, "of all sizes"),
    ],
)
def test_certificates_of_one_hot_layers_are_accepted(tmp_path: Path, dtype: torch.dtype, values: str) -> None:
    torch.manual_seed(0)
    kinds = [kind for kind in KINDS if is_covered(kind, dtype)]
    folder = saved(tmp_path / "folder", *(with_values(kind, dtype, values) for kind in kinds))
    checked = check_folder(folder)
    assert [(layer.verdict, layer.reason) for layer in checked.layers] == [(Verdict.ACCEPTED, None)] * len(kinds)
    assert checked.exit_code == 0


def honest(folder: Path) -> tuple[list[tuple[dict[str, Any], LayerRecord]], dict[str, Tensor]]:
    """Report and entry of each layer, and the weights."""
    config, weights = read_folder(folder)
    records = {tuple(record["names"]): record for record in report_of(folder)["layers"]}
    return [(records[tuple(entry.names)], entry) for entry in config.layers], dict(weights.state_dict)


def tampered(
    record: dict[str, Any], entry: LayerRecord, state: dict[str, Tensor], draw: random.Random
) -> tuple[str, dict[str, Any], dict[str, Tensor], tuple[float, float]]:
    """The same with one thing changed that the theorem tells: bound, a weight, alpha, range, dtype or geometry."""
    changed, low, high = deepcopy(record), *RANGE
    kind = draw.choice(("bound", "weight", "alpha", "range", "dtype", "geometry"))
    if kind == "bound":  # 1e-6 below what the theorem gives, which is at most 1e-8 below what is certified
        certificate = changed["certificate"]
        changed["certificate"] = {name: value * (1 - 1e-6 - 1e-8) for name, value in certificate.items()}
    elif kind == "weight":
        key = f"{entry.names[0]}.{draw.choice(('weight', 'bias') if record['spec']['bias'] else ('weight',))}"
        larger = state[key].clone()
        larger.view(-1)[draw.randrange(larger.numel())] = draw.choice((-64.0, 64.0, torch.inf))
        state = state | {key: larger}
    elif kind == "alpha":
        changed["alpha"] *= draw.choice((0.5, 2.0, 1 + 2**-20))
    elif kind == "range":
        low, high = draw.choice(((low * 1.25, high), (low, high * (1 + 2**-15)), (low / 2, high / 2)))
    elif kind == "dtype":
        names = ("float16", "bfloat16", "float32", "float64", "int8")
        changed["dtype"] = draw.choice([name for name in names if name != record["dtype"]])
    else:
        changed["spec"] = other_geometry(changed["spec"], draw)
    return kind, changed, state, (low, high)


def other_geometry(spec: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """A geometry with one entry changed."""
    name = draw.choice([name for name in spec if name != "transposed"])
    value = spec[name]
    if name == "padding_mode":
        value = draw.choice([mode for mode in ("zeros", "reflect", "replicate", "circular") if mode != value])
    elif isinstance(value, bool):
        value = not value
    elif isinstance(value, str):
        value = "valid" if value == "same" else "same_lower"
    elif isinstance(value, list):
        place = draw.randrange(len(value))
        value = [number + (draw.choice((1, 2)) if i == place else 0) for i, number in enumerate(value)]
    else:
        value = value + draw.choice((1, 2))
    return spec | {name: value}


@pytest.mark.fault
@pytest.mark.slow
def test_tampered_certificates_are_refused(asked: Running, tmp_path: Path) -> None:
    torch.manual_seed(0)
    draw = random.Random(0)
    dtypes = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    kinds = [deepcopy(kind).to(dtype) for kind in KINDS for dtype in dtypes if is_covered(kind, dtype)]
    layers, state = honest(saved(tmp_path / "folder", *kinds))
    found: dict[str, set[str | None]] = {}
    for _ in range(TAMPERED):
        record, entry = draw.choice(layers)
        kind, changed, weights, input_range = tampered(record, entry, state, draw)
        checked = check_layer(asked, changed, entry, weights, input_range)
        assert checked.verdict is Verdict.REFUSED, (kind, entry, changed, input_range)
        found.setdefault(kind, set()).add(checked.reason)
    assert found["bound"] == {REFUSALS["Too_small"]}
    assert found["weight"] <= {REFUSALS["Too_small"], REFUSALS["May_overflow"], REFUSALS["Not_finite"]}
    assert found["alpha"] == {REFUSALS["Other_alpha"]}
    assert found["range"] == {REFUSALS["Too_small"], REFUSALS["Too_large"]}
    assert {REFUSALS["Other_dtype"]} <= found["dtype"]
    assert {REFUSALS["Other_shape"]} <= found["geometry"]
    for record, entry in layers:
        assert check_layer(asked, record, entry, state, RANGE).verdict is Verdict.ACCEPTED


def after(folder: Path, change: dict[str, Any]) -> CheckedLayer:
    """What is found of a folder's only layer after such a change of its report."""
    change_report(folder, change)
    (layer,) = check_folder(folder).layers
    return layer


@pytest.mark.fault
@pytest.mark.usefixtures("built")
def test_a_bound_of_another_range_is_too_large(tmp_path: Path) -> None:
    folder = saved(tmp_path / "folder", nn.Conv2d(2, 3, 3))
    certificate = report_of(folder)["layers"][0]["certificate"]
    layer = after(folder, {"certificate": {name: value * (1 + 1e-5) for name, value in certificate.items()}})
    assert (layer.verdict, layer.reason) == (Verdict.REFUSED, REFUSALS["Too_large"])


@pytest.mark.fault
@pytest.mark.usefixtures("built")
def test_weights_that_were_trained_further_are_not_those_of_the_report(tmp_path: Path) -> None:
    folder = saved(tmp_path / "folder", nn.Conv2d(2, 3, 3))
    change_weights(folder, "0.weight", load_file(folder / "model.safetensors")["0.weight"] * 1.01)
    (layer,) = check_folder(folder).layers
    assert (layer.verdict, layer.reason) == (Verdict.REFUSED, REFUSALS["Too_small"])
    change_weights(folder, "0.weight", load_file(folder / "model.safetensors")["0.weight"] / 1.01 * (1 - 2**-22))
    (layer,) = check_folder(folder).layers
    assert (layer.verdict, layer.reason) == (Verdict.REFUSED, OTHER_FOLDER)


@pytest.mark.usefixtures("built")
def test_soft_attention_is_named_as_not_covered_whatever_the_report_says(tmp_path: Path) -> None:
    folder = saved(tmp_path / "soft", nn.Conv2d(2, 3, 3), alpha=2.0)
    layer = after(folder, {"alpha": 128.0})
    assert (layer.verdict, layer.reason) == (Verdict.NOT_COVERED, "attention is soft: an alpha is below 104")
    folder = saved(tmp_path / "uneven", nn.Conv2d(2, 3, 3), alpha=130.0)
    (layer,) = check_folder(folder).layers
    assert layer.verdict is Verdict.NOT_COVERED
    assert check_folder(folder).exit_code == 1


@pytest.mark.usefixtures("built")
def test_what_no_theorem_is_about_is_named_as_not_covered(tmp_path: Path) -> None:
    layers = [attention_from_conv(nn.Conv2d(2, 3, 3)) for _ in range(2)]
    first, second = layers
    assert isinstance(first, SelfAttention2d)
    first.add_content(2)
    second.set_axis_scores(torch.zeros(9, 5), torch.zeros(9, 5))
    computed = convert_model(nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 3, 3))).model
    transposed = attention_from_conv(nn.ConvTranspose2d(2, 3, 3).bfloat16())
    model = nn.ModuleList([*layers, computed, transposed])
    save_converted(model, tmp_path / "folder", report=certify_report(model, Report.of(model)))
    found = [(layer.verdict, layer.reason) for layer in check_folder(tmp_path / "folder").layers]
    assert found == [
        (Verdict.NOT_COVERED, "it has content terms"),
        (Verdict.NOT_COVERED, "it has learned positional scores"),
        (Verdict.NOT_COVERED, "its weights are computed, as parametrised Conv2d"),
        (Verdict.NOT_COVERED, "it is transposed and in half precision, where PyTorch rounds each tap"),
    ]


@pytest.mark.usefixtures("built")
def test_the_command_prints_a_verdict_for_each_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved(tmp_path / "folder", nn.Conv2d(2, 3, 3), nn.Conv1d(2, 3, 3))
    assert exit_code("check", folder) == 0
    assert "Certificates of 2 layers: 2 accepted, 0 refused, 0 not covered." in capsys.readouterr().out
    change_report(folder, {"dtype": "float16"}, layer=1)
    assert exit_code("check", folder, "--json") == 1
    found = result_of("check", capsys.readouterr().out)
    assert [layer["reason"] for layer in found["layers"]] == [OTHER_FOLDER, REFUSALS["Other_dtype"]]
    assert found["certified_range"] == [-1, 1]


UNCHECKED = {"engine", "outputs", "version", "versions", "attention", "literal", "network", "comparison"}


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where numbers, texts and truth values are in plain data."""
    parts = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else None
    if parts is None:
        yield path
        return
    for key, part in parts:
        yield from places(part, (*path, key))


def put(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of plain data with another value at a place."""
    found = deepcopy(data)
    place = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return found


def others(value: Any) -> list[Any]:
    """Values near another one, and of other types."""
    if isinstance(value, bool):
        return [not value, None, int(value)]
    if isinstance(value, int | float):
        return [value + 1, str(value), -value - 0.5, None, [value]]
    return [f"{value}x", None, 1, ""]


@pytest.mark.fault
@pytest.mark.usefixtures("built")
def test_every_field_of_a_folder_is_checked_or_named_as_unchecked(tmp_path: Path) -> None:
    torch.manual_seed(0)
    folder = saved(tmp_path / "folder", nn.Conv2d(2, 3, 3, padding=1, groups=1), nn.Conv1d(2, 2, 3, bias=False))
    accepted, tried = [], 0
    for name in ("report.json", "config.json"):
        kept = (folder / name).read_text(encoding="utf-8")
        data = json.loads(kept)
        for path in places(data):
            value = data
            for key in path:
                value = value[key]
            for other in (each for each in others(value) if each != value or type(each) is not type(value)):
                (folder / name).write_text(json.dumps(put(data, path, other)), encoding="utf-8")
                tried += 1
                if check_folder_code(folder) == 0 and not UNCHECKED & set(path):
                    accepted.append((name, path, other))
        (folder / name).write_text(kept, encoding="utf-8")
    assert tried >= 200
    assert accepted == []
    assert check_folder_code(folder) == 0


def check_folder_code(folder: Path) -> int:
    """The exit code of the command."""
    try:
        return check_folder(folder).exit_code
    except CheckpointError:
        return 3


def test_without_the_program_the_command_says_how_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved(tmp_path / "folder", nn.Conv2d(2, 3, 3))
    monkeypatch.setattr(program, "BUILT", tmp_path / "nowhere")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert exit_code("check", folder) == 3
    told = capsys.readouterr().err
    assert "git clone https://github.com/conv2attn/conv2attn, and make checker there" in told
    assert f"put build/checker/{program.PROGRAM} on the PATH" in told


def test_a_program_that_ends_early_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "find_program", lambda: "/bin/true")
    with pytest.raises(ValueError, match="conv2attn-checker ended"):
        check_folder(saved(tmp_path / "folder", nn.Conv2d(2, 3, 3)))


def test_a_folder_without_certificates_says_who_writes_them(tmp_path: Path) -> None:
    save_converted(convert_model(nn.Conv2d(1, 1, 1)).model, tmp_path / "folder")
    with pytest.raises(CheckpointError, match="has no certificates: conv2attn convert writes them"):
        check_folder(tmp_path / "folder")
