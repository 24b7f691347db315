"""Whatever archive torch.load reads gives the same tensors here, bit for bit, whatever the bytes of its name."""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save
from torch import Tensor, nn

from conv2attn.convert import convert_model, load_converted, save_converted
from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.opening import Opening
from conv2attn.convert.files.pickles import read_torch

_PRESSES = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)


@st.composite
def states(draw: st.DrawFn) -> dict[str, Tensor]:
    """Tensors of several dtypes, some of which are views of one storage, and compress well."""
    count = draw(st.integers(1, 4))
    base = torch.arange(draw(st.integers(8, 400)), dtype=torch.float32) % 5
    dtypes = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool]
    made: dict[str, Tensor] = {}
    for index in range(count):
        start = draw(st.integers(0, len(base) - 4))
        view = base[start : start + 4].view(2, 2)
        made[f"t{index}"] = draw(
            st.sampled_from([view, view.T, base[::2], base.to(draw(st.sampled_from(dtypes))), torch.tensor(3)])
        )
    return made


def packed(source: Path, target: Path, presses: list[int]) -> None:
    """The same archive with each record compressed in another way."""
    with zipfile.ZipFile(source) as stored, zipfile.ZipFile(target, "w") as out:
        for index, name in enumerate(stored.namelist()):
            out.writestr(name, stored.read(name), presses[index % len(presses)])


@given(state=states(), presses=st.lists(st.sampled_from(_PRESSES), min_size=1, max_size=3), is_old=st.booleans())
def test_a_file_gives_what_torch_load_gives(state: dict[str, Tensor], presses: list[int], is_old: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w.pth"
        torch.save(state, path, _use_new_zipfile_serialization=not is_old)
        if not is_old:
            packed(path, path.with_suffix(".packed"), presses)
            path = path.with_suffix(".packed")
        try:
            expected = torch.load(path, weights_only=True)
        except RuntimeError:  # bzip2
            with pytest.raises(CheckpointError):
                read_torch(path)
            return
        found = read_torch(path)
        assert isinstance(found, dict)
        assert list(found) == list(expected)
        for name, value in expected.items():
            assert found[name].dtype == value.dtype
            assert torch.equal(found[name], value)
            assert found[name].stride() == value.stride()
        shared = [(a, b) for a in expected for b in expected]
        assert all(
            (found[a].untyped_storage().data_ptr() == found[b].untyped_storage().data_ptr())
            == (expected[a].untyped_storage().data_ptr() == expected[b].untyped_storage().data_ptr())
            for a, b in shared
        )


@pytest.mark.parametrize("name", [b"plain.pth", b"k\xe9rn\xff.pth"])
@pytest.mark.parametrize("kind", ["torch", "legacy", "safetensors", "folder"])
def test_what_is_read_may_have_a_name_of_any_bytes(kind: str, name: bytes, tmp_path: Path) -> None:
    conv = nn.Conv2d(2, 3, 3)
    path = tmp_path / os.fsdecode(name)
    if kind == "folder":
        save_converted(convert_model(conv).model, tmp_path / "out")
        (tmp_path / "out").rename(path)
    elif kind == "safetensors":
        path.write_bytes(save(conv.state_dict()))
    else:
        with path.open("wb") as file:
            torch.save(conv.state_dict(), file, _use_new_zipfile_serialization=kind == "torch")
    found = open_network(path, Opening(nn.Conv2d(2, 3, 3))).cnn().state_dict()
    assert all(torch.equal(found[key], value) for key, value in conv.state_dict().items())


def test_a_folder_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    save_converted(convert_model(nn.Conv2d(2, 3, 3)).model, tmp_path / "network")
    with pytest.raises(CheckpointError, match=r"there is no folder .*network2; close names: network"):
        load_converted(tmp_path / "network2")
    with pytest.raises(CheckpointError, match="is a file"):
        load_converted(tmp_path / "network" / "config.json")
