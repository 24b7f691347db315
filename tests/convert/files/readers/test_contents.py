"""What a checkpoint holds: of which file, in which order, and what is said when it holds something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files import readers
from conv2attn.convert.files.readers import FOLDER_FILES, located, read_contents
from conv2attn.convert.files.readers.common import limits
from conv2attn.convert.files.readers.common.limits import Budget
from conv2attn.convert.files.readers.common.stored import StoredTensor


def number(contents: readers.Contents, key: str) -> float:
    assert isinstance(contents.value, dict)
    tensor = contents.value[key]
    assert isinstance(tensor, StoredTensor)
    return float(tensor.read())


def write_numbers(path: Path, **numbers: float) -> None:
    save_file({key: torch.tensor(each) for key, each in numbers.items()}, path)


def index(folder: Path, **places: object) -> Path:
    (folder / "index").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder / "index"


def test_an_index_takes_each_tensor_from_the_file_that_it_says(tmp_path: Path) -> None:
    write_numbers(tmp_path / "b", x=1.0, y=2.0)
    write_numbers(tmp_path / "a", x=3.0, y=4.0, z=5.0)
    contents = read_contents(index(tmp_path, y="b", x="a", z="a"))
    assert isinstance(contents.value, dict)
    assert {key: number(contents, key) for key in contents.value} == {"y": 2.0, "x": 3.0, "z": 5.0}
    assert contents.files == (tmp_path / "index", tmp_path / "a", tmp_path / "b")


def test_of_what_an_index_says_wrongly_the_first_is_named(tmp_path: Path) -> None:
    write_numbers(tmp_path / "a", x=1.0)
    write_numbers(tmp_path / "b", y=1.0)
    with pytest.raises(CheckpointError, match=r"index says that b holds 'x', which it lacks"):
        read_contents(index(tmp_path, y="b", x="b", z="a"))


@pytest.mark.parametrize("text", ["{}", '{"weight_map": []}', '{"weight_map": {"x": "a", "y": 1}}', '{"x": "a"}'])
def test_json_that_is_no_index_is_named_so(text: str, tmp_path: Path) -> None:
    write_numbers(tmp_path / "a", x=1.0)
    (tmp_path / "index").write_text(text)
    with pytest.raises(CheckpointError, match="is JSON, but no index of a checkpoint in several files"):
        read_contents(tmp_path / "index")


def test_a_listed_file_holds_named_tensors_and_is_no_index(tmp_path: Path) -> None:
    torch.save([1], tmp_path / "a")
    with pytest.raises(CheckpointError, match=r"a holds no named tensors"):
        read_contents(index(tmp_path, x="a"))
    (tmp_path / "a").write_text('  {"weight_map": {}}')
    with pytest.raises(CheckpointError, match=r"a is an index, listed in another"):
        read_contents(index(tmp_path, x="a"))


def test_an_index_is_read_up_to_its_largest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_numbers(tmp_path / "a", x=1.0)
    path = index(tmp_path, x="a")
    path.write_text(path.read_text().ljust(100))
    for module in (readers, limits):
        monkeypatch.setattr(module, "MAX_HEADER", 100)
    assert number(read_contents(path), "x") == 1.0
    path.write_text(path.read_text() + " ")
    with pytest.raises(CheckpointError, match=r"has 101 bytes; at most 100 are read"):
        read_contents(path)


def test_a_file_system_that_fails_is_no_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise OSError("the disk is gone")

    (tmp_path / "w").write_bytes(b"PK\3\4")
    with pytest.raises(CheckpointError, match=r"w is damaged, incomplete or no zip archive"):
        read_contents(tmp_path / "w")
    monkeypatch.setattr(readers, "open_archive", fails)
    with pytest.raises(OSError, match="the disk is gone"):
        read_contents(tmp_path / "w")


def test_an_error_says_where_it_was_met_once(tmp_path: Path) -> None:
    assert str(located(CheckpointError("it is odd"), tmp_path / "w")) == f"{tmp_path / 'w'}: it is odd"
    named = CheckpointError(f"{tmp_path / 'w'} is odd")
    assert located(named, tmp_path / "w") is named
    (tmp_path / "w").write_bytes(b"\x80\x02.")
    with pytest.raises(CheckpointError, match=r"\(IndexError while reading it\)"):
        read_contents(tmp_path / "w")


@pytest.mark.parametrize("place", range(len(FOLDER_FILES)))
def test_the_weights_of_a_folder_are_in_the_first_of_the_files_that_it_may_have(place: int, tmp_path: Path) -> None:
    for later, name in enumerate(FOLDER_FILES[place:]):
        numbers = tmp_path / f"n{later}" if name.endswith("json") else tmp_path / name
        write_numbers(numbers, x=float(later))
        if name.endswith("json"):
            index(tmp_path, x=numbers.name).rename(tmp_path / name)
    contents = read_contents(tmp_path)
    assert number(contents, "x") == 0.0
    assert contents.files[0] == tmp_path / FOLDER_FILES[place]


def test_a_folder_without_weights_is_named_for_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"a folder without weights, sought in model.safetensors"):
        read_contents(tmp_path)
    (tmp_path / ".metadata").touch()
    with pytest.raises(CheckpointError, match="a distributed checkpoint; python -m"):
        read_contents(tmp_path)
    with pytest.raises(CheckpointError, match="there is no file"):
        read_contents(tmp_path / "w")


def test_all_files_of_a_checkpoint_are_charged_to_the_budget_that_it_is_given(tmp_path: Path) -> None:
    write_numbers(tmp_path / "a", x=1.0)
    budget = Budget()
    assert read_contents(index(tmp_path, x="a"), budget).budget is budget
    assert budget.size == sum((tmp_path / name).stat().st_size for name in ("a", "index"))
    assert read_contents(tmp_path / "a").budget.size == (tmp_path / "a").stat().st_size
