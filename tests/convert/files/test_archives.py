"""Whatever archive torch.load reads gives the same tensors here, bit for bit."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from conv2attn.convert.errors import CheckpointError
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
