"""Which weights a file gives, what they may cost, and how files are summed up."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files import checkpoint as module
from conv2attn.convert.files.checkpoint import Checkpoint, charge_heads, charge_modules, read_checkpoint, size_on_disk
from conv2attn.convert.files.readers import Contents, read_contents
from conv2attn.convert.files.readers.common import limits
from conv2attn.convert.files.readers.common.limits import Budget
from conv2attn.convert.files.readers.common.stored import StoredTensor
from conv2attn.convert.files.readers.modules import flatten
from conv2attn.convert.files.readers.pickle_machine import StandIn
from conv2attn.convert.spec import ConvSpec
from tests.hostile.files import state, tensor, weight, write_exported, write_torch

NUMBERS = bytes(9600)  # a storage of 2400 floats
LAYOUTS = (((2400,), (1,)), ((1200, 2), (2, 1)), ((2, 1200), (1200, 1)), ((3, 800), (800, 1)))  # shapes and strides


class Kept(dict[str, object]):
    """A dictionary of its own class, as training programs have."""


def saved(path: Path, value: object) -> Path:
    torch.save(value, path)
    return path


def safe(path: Path, tensors: dict[str, Tensor]) -> Path:
    safetensors.torch.save_file(tensors, path)
    return path


def overlapping(path: Path, *layouts: tuple[tuple[int, ...], tuple[int, ...]]) -> Path:
    """Tensors that have all the numbers of one storage."""
    tensors = {f"t{i}": tensor(shape, stride=stride, count=2400) for i, (shape, stride) in enumerate(layouts)}
    write_torch(path, state(tensors), storage=NUMBERS)
    return path


def in_two_files(folder: Path) -> list[Path]:
    """An index and the files that it lists, in the order in which they are read."""
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"v": "b.safetensors", "w": "a.safetensors"}}))
    parts = {"w": "a.safetensors", "v": "b.safetensors"}
    return [index, *(safe(folder / name, {key: torch.ones(len(key))}) for key, name in parts.items())]


def refusal(path: Path, *, ema: bool = False, budget: Budget | None = None) -> str:
    """Why a file is refused, with FILE for its path."""
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path, ema=ema, budget=budget)
    return str(caught.value).replace(str(path), "FILE")


def read(path: Path, *, ema: bool = False) -> dict[str, object]:
    """The numbers of a file's weights by name."""
    return {key: value.tolist() for key, value in read_checkpoint(path, ema=ema).state_dict.items()}


def spent(path: Path) -> tuple[int, int]:
    """Memory and steps that are charged for the tensors and layers of a file, beside those for finding them."""
    before, after = Budget(), Budget()
    contents = read_contents(path, before)
    if isinstance(contents.value, StandIn):
        flatten(contents.value, before)
    elif isinstance(contents.value, dict):  # numbers that are not aligned are copied
        _ = [value.read() for value in contents.value.values() if isinstance(value, StoredTensor)]
    read_checkpoint(path, budget=after)
    return before.memory - after.memory, before.steps - after.steps


# Which weights


@pytest.mark.parametrize("kind", [dict, Kept])
def test_the_first_place_that_holds_tensors_is_taken(
    kind: Callable[[Mapping[str, object]], object], tmp_path: Path
) -> None:
    one, two, top = (kind({"w": torch.tensor(number)}) for number in (1, 2, 3))
    path, other = tmp_path / "w", torch.tensor(4)
    assert read(saved(path, top)) == {"w": 3}
    assert read(saved(path, kind({"model": two, "state_dict": one, "w": other}))) == {"w": 1}
    assert read(saved(path, kind({"model": two, "state_dict": kind({}), "w": other}))) == {"w": 2}
    assert read(saved(path, kind({"model": kind({"epoch": 1}), "state_dict": 5, "w": other}))) == {"w": 4}
    averages = {"model_ema": two, "state_dict": top, "model": top, "w": other}
    assert read(saved(path, kind({"state_dict_ema": one, **averages})), ema=True) == {"w": 1}
    assert read(saved(path, kind({"state_dict_ema": kind({}), **averages})), ema=True) == {"w": 2}


def test_a_file_without_weights_says_where_they_were_sought(tmp_path: Path) -> None:
    averages = {"model_ema": {"w": torch.ones(1)}}
    path = saved(tmp_path / "w", averages)
    assert refusal(path) == "FILE holds no named tensors, sought at the top level and under state_dict or model"
    sought = "FILE holds no moving average of the weights, sought under state_dict_ema or model_ema"
    for value in ({"w": torch.ones(1)}, {"model_ema": {"n_averaged": torch.tensor(1)}}, nn.Linear(1, 1), [averages]):
        assert refusal(saved(path, value), ema=True) == sought


def test_how_often_was_averaged_is_no_weight_of_an_average_and_one_elsewhere(tmp_path: Path) -> None:
    averaged = AveragedModel(nn.Conv2d(1, 2, 1))
    path = saved(tmp_path / "w", {"model_ema": averaged, "model": averaged})
    assert list(read(path, ema=True)) == ["module.weight", "module.bias"]
    assert list(read(path)) == ["n_averaged", "module.weight", "module.bias"]


def test_as_many_tensors_are_read_as_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.MAX_TENSORS == 100_000
    monkeypatch.setattr(module, "MAX_TENSORS", 2)
    ones = {str(i): torch.ones(1) for i in range(4)}
    path = saved(tmp_path / "w", {"model_ema": {"n_averaged": torch.tensor(1), "a": ones["0"], "b": ones["1"]}})
    assert list(read(path, ema=True)) == ["a", "b"]
    for count in (3, 4):
        saved(path, dict(list(ones.items())[:count]))
        assert refusal(path) == f"FILE has {count} tensors; at most 2 are read"


def test_a_name_has_at_most_4096_letters(tmp_path: Path) -> None:
    assert list(read(safe(tmp_path / "w", {"n" * 4096: torch.ones(1)}))) == ["n" * 4096]
    for length in (4097, 5000):
        path = safe(tmp_path / "w", {"n" * length: torch.ones(1)})
        assert refusal(path) == f"FILE has a tensor whose name has {length} letters; at most {limits.MAX_NAME} are read"


def test_a_tensor_that_is_odd_or_damaged_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path / "w", {"x": torch.ones(2, device="meta")})
    assert refusal(path) == "FILE holds a meta tensor, 'x'; only dense, plain ones are read"
    write_torch(path, state({"x": tensor((30,), stride=(1,))}))
    assert refusal(path) == "FILE is damaged: 'x' has 30 numbers, but its storage has only 96 bytes"


# What they cost


def test_tensors_that_are_one_in_the_file_are_one_and_each_takes_500_bytes(tmp_path: Path) -> None:
    one, other = torch.ones(6), torch.zeros(6)
    path = saved(tmp_path / "w", {"a": one, "b": other, "c": one, "d": one.view(2, 3)})
    found = read_checkpoint(path).state_dict
    assert [found[key] is found["a"] for key in "abcd"] == [True, False, True, False]
    assert spent(path) == (1500, 0)
    assert spent(safe(tmp_path / "w", {"a": one, "b": other})) == (1000, 0)


def test_a_convolution_takes_3750_bytes_its_name_and_104_steps_and_those_around_it_3500_and_100(tmp_path: Path) -> None:
    conv = nn.Conv2d(1, 2, 1, bias=False)
    assert spent(saved(tmp_path / "w", nn.Sequential(nn.Sequential(conv)))) == (500 + 3503 + 3501 + 250, 204)
    write_exported(tmp_path / "w", {"config": {"c.weight": weight()}})
    (stored,) = read_checkpoint(tmp_path / "w").convolutions.values()
    assert stored.spec is not None
    heads = stored.spec.num_heads
    assert heads > 1
    assert spent(tmp_path / "w") == (500 + 3501 + 250 * heads, 100 + 4 * heads)


@pytest.mark.parametrize(
    ("names", "letters"),
    [
        ([], ()),
        (["", "abc"], (3,)),
        (["block.conv", "block"], (10, 5)),
        (["block", "block.a", "b.block.a"], (5, 7, 9, 7, 1)),
    ],
)
def test_modules_are_charged_once_each(names: list[str], letters: tuple[int, ...]) -> None:
    budget, full = Budget(), Budget()
    charge_modules([*names, *names], budget)
    assert full.memory - budget.memory == 3500 * len(letters) + sum(letters)
    assert full.steps - budget.steps == 100 * len(letters)


def test_heads_are_charged_for_in_every_layer_that_has_them() -> None:
    specs = [ConvSpec(1, 1, (2, 3)), ConvSpec(1, 1, (2, 3), stride=(2, 2)), ConvSpec(1, 1, (7,))]
    budget, full = Budget(), Budget()
    charge_heads(specs, budget)
    assert (full.memory - budget.memory, full.steps - budget.steps) == (19 * 250, 19 * 4)
    charge_heads([ConvSpec(1, 1, (400, 400))], Budget())  # one large kernel is no fault
    with pytest.raises(CheckpointError, match="it takes more"):
        charge_heads([ConvSpec(1, 1, (300, 300), padding=(number, 0)) for number in range(9)], Budget())


def test_a_budget_is_spent_to_its_end_and_its_refusal_names_the_file(tmp_path: Path) -> None:
    path, enough, less, first = overlapping(tmp_path / "w", LAYOUTS[0]), Budget(), Budget(), Budget()
    assert list(read_checkpoint(path, budget=first).state_dict) == ["t0"]
    assert first.size == path.stat().st_size
    enough.memory = limits.MAX_MEMORY - first.memory
    less.memory = enough.memory - 1
    read_checkpoint(path, budget=enough)
    assert enough.memory == 0
    assert refusal(path, budget=less) == "FILE: it takes more memory to read than any checkpoint of its size needs"


def test_different_tensors_come_to_twice_the_file_and_a_spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (limits.MAX_OVERLAP, limits.SPARE) == (2, 2**28)
    path = overlapping(tmp_path / "w", *LAYOUTS)
    spare = len(LAYOUTS) * len(NUMBERS) - 2 * path.stat().st_size
    assert spare > 0
    monkeypatch.setattr(module, "SPARE", spare)
    assert {len(value.reshape(-1)) for value in read_checkpoint(path).state_dict.values()} == {2400}
    for short in (1, 1000):
        monkeypatch.setattr(module, "SPARE", spare - short)
        assert refusal(path) == "FILE is damaged: its tensors overlap, and come to far more bytes than it has"


def test_all_names_come_to_a_multiple_of_the_file_and_a_spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.MAX_SHARING == 256
    monkeypatch.setattr(module, "MAX_SHARING", 3)
    path = overlapping(tmp_path / "w", *[LAYOUTS[1]] * 8)
    spare = 8 * len(NUMBERS) - 3 * path.stat().st_size
    assert spare > 0
    monkeypatch.setattr(module, "SPARE", spare)
    assert len(set(map(id, read_checkpoint(path).state_dict.values()))) == 1
    for short in (1, 1000):
        monkeypatch.setattr(module, "SPARE", spare - short)
        assert refusal(path) == "FILE names its tensors more than 3 times"


# Files and their sums


@pytest.mark.parametrize(("words", "told"), [((13, "Permission denied"), "Permission denied"), (("gone",), "gone")])
def test_what_the_file_system_says_is_told(
    words: tuple[object, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, budget: Budget | None) -> Contents:
        raise OSError(*words)

    monkeypatch.setattr(module, "read_contents", fail)
    assert refusal(tmp_path / "w") == f"FILE cannot be read: {told}"


def test_the_sum_of_several_files_is_that_of_their_sorted_names_and_sums(tmp_path: Path) -> None:
    files, told = in_two_files(tmp_path), list[int]()
    found = read_checkpoint(tmp_path, progress=told.append)
    lines = sorted(f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n" for file in files)
    assert lines[0].startswith("a.safetensors ")
    assert found.sha256 == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert (found.path, found.files) == (tmp_path, tuple(files))
    assert told == [file.stat().st_size for file in files]
    assert read_checkpoint(tmp_path).sha256 == found.sha256


def test_tensors_of_no_file_have_the_sum_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = read_contents(safe(tmp_path / "w", {"w": torch.ones(1)}))
    monkeypatch.setattr(module, "read_contents", lambda path, budget: Contents(contents.value, budget=contents.budget))
    found = read_checkpoint(tmp_path / "w")
    assert (found.sha256, found.files) == (hashlib.sha256(b"").hexdigest(), ())
    assert Checkpoint(tmp_path, {}, "") == Checkpoint(tmp_path, {}, "", {}, {}, ())


def test_a_file_is_summed_up_four_megabytes_at_a_time(tmp_path: Path) -> None:
    path, told = safe(tmp_path / "w", {"w": torch.zeros(2**22, dtype=torch.uint8)}), list[int]()
    digest = read_checkpoint(path, progress=told.append).sha256
    assert told == [2**22, path.stat().st_size - 2**22]
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_size_of_a_folder_is_that_of_the_files_in_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(5))
    (tmp_path / "b").write_bytes(bytes(7))
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "d").write_bytes(bytes(11))
    assert [size_on_disk(tmp_path / name) for name in (".", "a", "c", "none")] == [12, 5, 11, 0]
