"""Every checkpoint loads or is refused with one sentence, and a refused one changes nothing."""

from __future__ import annotations

import hashlib
import os
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files import checkpoint as module
from conv2attn.convert.files.checkpoint import Checkpoint, fit_keys, load_into, non_finite_keys, read_checkpoint
from conv2attn.convert.files.readers import archive
from conv2attn.convert.spec import ConvSpec
from tests.hostile.files import FLOATS, state, tensor, write_zip


class Network(nn.Module):
    """A network whose children are called like the wrappers."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Conv2d(2, 3, (1, 2))
        self.module = nn.BatchNorm2d(3)


class RunsACommand:
    """Its pickle calls os.system, which would create the file."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch '{self.witness}'",)


def a_state_dict() -> dict[str, Tensor]:
    return {"conv.weight": torch.arange(6.0).reshape(1, 2, 1, 3), "conv.bias": torch.tensor([7.0])}


def save_zip(value: object, path: Path) -> None:
    torch.save(value, path)


def save_legacy(value: object, path: Path) -> None:
    torch.save(value, path, _use_new_zipfile_serialization=False)


def save_safetensors(value: dict[str, Tensor], path: Path) -> None:
    safetensors.torch.save_file(value, path)


SAVERS = pytest.mark.parametrize("save", [save_zip, save_legacy, save_safetensors])
PICKLERS = pytest.mark.parametrize("save", [save_zip, save_legacy])


def assert_same(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert list(got) == list(wanted)
    assert all(torch.equal(got[key], wanted[key]) for key in wanted)


def refusal(path: Path, *, ema: bool = False) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path, ema=ema)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < len(str(path)) + 200
    assert str(path) in message
    return message


# Files that load


@SAVERS
@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors", "weights"])
def test_the_kind_of_a_file_is_told_by_its_content(
    save: Callable[[dict[str, Tensor], Path], None], name: str, tmp_path: Path
) -> None:
    save(a_state_dict(), tmp_path / name)
    checkpoint = read_checkpoint(str(tmp_path / name))
    assert {key: value.tolist() for key, value in checkpoint.state_dict.items()} == {
        key: value.tolist() for key, value in a_state_dict().items()
    }
    assert checkpoint.path == tmp_path / name
    assert checkpoint.sha256 == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()


def test_the_sum_of_a_file_is_of_all_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PART", 100)
    save_safetensors(a_state_dict(), tmp_path / "weights")
    content, read = (tmp_path / "weights").read_bytes(), list[int]()
    checkpoint = read_checkpoint(tmp_path / "weights", progress=read.append)
    assert checkpoint.sha256 == hashlib.sha256(content).hexdigest()
    assert len(read) > 1
    assert sum(read) == len(content)


@pytest.mark.parametrize("others", [3, 4])
def test_an_archive_has_so_many_entries_beside_its_tensors(
    others: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_TENSORS", 1)
    monkeypatch.setattr(archive, "_OTHER_ENTRIES", 4)
    pickled = {"data.pkl": state({"w": tensor()}), "data/0": FLOATS}
    write_zip(tmp_path / "w", {**pickled, **dict.fromkeys(map(str, range(others)), b"")})
    if others == 3:
        assert read_checkpoint(tmp_path / "w").state_dict.keys() == {"w"}
    else:
        assert "has 6 entries; at most 1 tensors are read" in refusal(tmp_path / "w")


def test_a_safetensors_header_that_starts_like_a_pickle_is_read(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    for length in range(1, 2000):
        path.write_bytes(safetensors.torch.save({"w": torch.ones(1)}, metadata={"padding": "x" * length}))
        if path.read_bytes()[:2] == b"\x80\x02":
            break
    assert path.read_bytes()[:2] == b"\x80\x02"
    assert_same(read_checkpoint(path).state_dict, {"w": torch.ones(1)})


@PICKLERS
@pytest.mark.parametrize("place", ["state_dict", "model"])
def test_weights_are_found_beside_what_a_training_run_keeps(
    save: Callable[[object, Path], None], place: str, tmp_path: Path
) -> None:
    averaged = {key: value + 1 for key, value in a_state_dict().items()}
    content = {"epoch": 3, "loss": torch.tensor(0.5), place: a_state_dict(), "model_ema": averaged}
    save(content, tmp_path / "w.pt")
    assert_same(read_checkpoint(tmp_path / "w.pt").state_dict, a_state_dict())


@pytest.mark.parametrize("place", ["state_dict_ema", "model_ema"])
def test_the_moving_average_is_taken_only_on_demand(place: str, tmp_path: Path) -> None:
    averaged = {key: value + 1 for key, value in a_state_dict().items()}
    beside: dict[str, object] = {"n_averaged": torch.tensor(5), **averaged}
    save_zip({"state_dict": a_state_dict(), place: beside}, tmp_path / "w.pt")
    assert_same(read_checkpoint(tmp_path / "w.pt", ema=True).state_dict, averaged)
    assert_same(read_checkpoint(tmp_path / "w.pt").state_dict, a_state_dict())


def test_entries_that_are_not_tensors_are_left_out(tmp_path: Path) -> None:
    extra: dict[object, object] = {
        "_metadata": {"": {"version": 1}},
        "conv._extra_state": b"x",
        "epoch": 3,
        5: torch.ones(1),
        "conv.weight": torch.ones(2),
    }
    save_zip(extra, tmp_path / "w.pt")
    assert_same(read_checkpoint(tmp_path / "w.pt").state_dict, {"conv.weight": torch.ones(2)})


def test_parameters_become_plain_tensors(tmp_path: Path) -> None:
    save_zip(dict(nn.Conv2d(2, 3, 1).named_parameters()), tmp_path / "w.pt")
    values = read_checkpoint(tmp_path / "w.pt").state_dict.values()
    assert [(type(value), value.requires_grad) for value in values] == [(Tensor, False)] * 2


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_torch_save_did_not_write_is_refused(protocol: int, tmp_path: Path) -> None:
    value = {**a_state_dict(), "extra": RunsACommand(tmp_path / "ran")}
    (tmp_path / "w.pt").write_bytes(pickle.dumps(value, protocol=protocol))
    refusal(tmp_path / "w.pt")
    assert not (tmp_path / "ran").exists()


# Files that do not


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "is empty"),
        (b"conv.weight: 1 2 3\n", "is a text file"),
        (b"Poids du r\xc3\xa9seau", "is a text file"),
        (b"\n<!DOCTYPE html>\n<html><body>Sign in</body></html>", "is an HTML page"),
        (b"\xef\xbb\xbf<html></html>", "is an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "is a Git LFS pointer"),
        (b"\x00\x01\x02\x03" * 50, "unknown kind"),
        (b"\x80\x01", "unknown kind"),
        (b"PK\x03\x04" + b"\x00" * 50, "is damaged, incomplete"),
        (b"\x80\x02\x8a\x0al\xfc\x9cF", "is damaged, incomplete"),
        (b"\x30" + b"\x00" * 7 + b'{"w":', "is damaged or incomplete"),
    ],
)
def test_a_file_of_another_kind_is_named_for_what_it_is(content: bytes, part: str, tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(content)
    assert part in refusal(tmp_path / "w.pt")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "there is no file" in refusal(tmp_path / "w.pt")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "is a folder without weights" in refusal(tmp_path)


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied")

    save_zip(a_state_dict(), tmp_path / "w.pt")
    monkeypatch.setattr(Path, "open", refuse)
    assert "cannot be read: Permission denied" in refusal(tmp_path / "w.pt")


@PICKLERS
@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: {"model": model, "epoch": 3}])
def test_a_whole_pickled_network_is_read_with_its_geometry_and_without_its_code(
    save: Callable[[object, Path], None], wrap: Callable[[nn.Module], object], tmp_path: Path
) -> None:
    conv, network = nn.Conv2d(4, 6, (1, 2), (2, 1), "valid", groups=2), Network()
    model = nn.Sequential(conv, network)
    model.register_buffer("hidden", torch.ones(3), persistent=False)
    with warnings.catch_warnings(action="ignore"):  # the legacy format saves the source, where it finds it
        save(wrap(model), tmp_path / "w.pt")
    checkpoint = read_checkpoint(tmp_path / "w.pt")
    assert_same(checkpoint.state_dict, model.state_dict())
    specs = {name: stored.spec for name, stored in checkpoint.convolutions.items()}
    assert specs == {"0": ConvSpec.from_conv(conv), "1.model": ConvSpec.from_conv(network.model)}


def test_a_torchscript_archive_is_read_without_its_code(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.Sequential(nn.BatchNorm2d(3))).eval()
    with warnings.catch_warnings(action="ignore"):  # torch.jit is deprecated; its files are still around
        torch.jit.save(torch.jit.trace(model, torch.ones(1, 2, 4, 5)), tmp_path / "w.pt")
    found = read_checkpoint(tmp_path / "w.pt").state_dict
    assert found.keys() == model.state_dict().keys()
    assert all(torch.equal(found[key], value) for key, value in model.state_dict().items())


def test_another_zip_archive_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w.pt", "w") as archive:
        archive.writestr("weights/readme.txt", "nothing")
    assert "PyTorch did not write" in refusal(tmp_path / "w.pt")


@PICKLERS
@pytest.mark.parametrize("beside", [{}, {"state_dict": a_state_dict()}])
def test_a_pickle_that_would_run_a_command_runs_nothing(
    beside: dict[str, object], save: Callable[[object, Path], None], tmp_path: Path
) -> None:
    save({"extra": RunsACommand(tmp_path / "ran"), **beside}, tmp_path / "w.pt")
    if beside:
        assert_same(read_checkpoint(tmp_path / "w.pt").state_dict, a_state_dict())
    else:
        assert "holds no named tensors" in refusal(tmp_path / "w.pt")
    assert not (tmp_path / "ran").exists()
    torch.load(tmp_path / "w.pt", weights_only=False)
    assert (tmp_path / "ran").exists()  # the file is what it seems


@pytest.mark.parametrize(
    "content", [{}, {"epoch": 3}, {"model": {}}, [torch.ones(2)], torch.ones(2), 5, {1: torch.ones(2)}]
)
def test_a_file_without_named_tensors_is_refused(content: object, tmp_path: Path) -> None:
    save_zip(content, tmp_path / "w.pt")
    assert "holds no named tensors" in refusal(tmp_path / "w.pt")


def test_a_moving_average_that_is_not_there_is_refused(tmp_path: Path) -> None:
    save_zip({"model": a_state_dict()}, tmp_path / "w.pt")
    assert "no moving average" in refusal(tmp_path / "w.pt", ema=True)


def quantized() -> Tensor:
    """Its zero points are no integers, which is another scheme than that of convolutions."""
    scales, points = torch.full((2,), 0.1), torch.full((2,), 0.5)
    return torch.quantize_per_channel(torch.ones(2, 3), scales, points, 0, torch.quint8)


def nested() -> Tensor:
    with warnings.catch_warnings(action="ignore"):
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def quietly(make: Callable[[], Tensor]) -> Tensor:
    """A tensor of a kind that PyTorch warns of."""
    with warnings.catch_warnings(action="ignore"):
        return make()


def compressed(shape: tuple[int, int] = (3, 3)) -> Tensor:
    """A matrix of zeros whose rows are stored."""
    rows = torch.zeros(shape[0] + 1, dtype=torch.int64)
    return quietly(lambda: torch.sparse_csr_tensor(rows, [], [], shape))


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: torch.eye(3).to_sparse(), "sparse"),
        (lambda: torch.sparse_coo_tensor(torch.zeros(4, 1, dtype=torch.int64), [1.0], (2**15,) * 4), "sparse"),
        (compressed, "sparse"),
        (lambda: compressed((2, 2**40)), "sparse"),
        (lambda: quietly(lambda: torch.eye(4).to_sparse_csc()), "sparse"),
        (lambda: quietly(lambda: torch.eye(4).to_sparse_bsr((2, 2))), "sparse"),
        (lambda: torch.ones(2, dtype=torch.complex64).conj(), "conjugated or negated"),
        (lambda: torch._neg_view(torch.ones(2)), "conjugated or negated"),
        (quantized, "quantized"),
        (nested, "nested"),
        (lambda: torch.empty(3, device="meta"), "meta"),
        (lambda: torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), "packed"),
    ],
)
def test_a_tensor_that_is_not_dense_numbers_is_refused_by_name(
    make: Callable[[], Tensor], word: str, tmp_path: Path
) -> None:
    with warnings.catch_warnings(action="ignore"):
        save_zip({"conv.bias": torch.ones(1), "conv.weight": make()}, tmp_path / "w.pt")
    message = refusal(tmp_path / "w.pt")
    assert word in message
    assert "'conv.weight'" in message


@SAVERS
def test_a_file_cut_anywhere_loads_or_is_refused(
    save: Callable[[dict[str, Tensor], Path], None], tmp_path: Path
) -> None:
    save(a_state_dict(), tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    cut = tmp_path / "cut"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        try:
            assert_same(read_checkpoint(cut).state_dict, a_state_dict())
        except CheckpointError:
            refusal(cut)


# Keys

KEYS = ["conv.weight", "conv.bias", "model.weight", "module.model.bias", "_orig_mod.weight", "layer.module.x"]
wrappers = st.lists(st.sampled_from(["module.", "_orig_mod.", "model."]), max_size=6).map("".join)


@settings(deadline=None)  # the machine may be busy
@given(keys=st.sets(st.sampled_from(KEYS), min_size=1), prefix=wrappers)
def test_any_nesting_of_wrappers_comes_off_a_whole_network(keys: set[str], prefix: str) -> None:
    wrapped = {prefix + key: torch.tensor(len(key)) for key in sorted(keys)}
    assert fit_keys(wrapped, keys) == {key: wrapped[prefix + key] for key in sorted(keys)}


@settings(deadline=None)  # the machine may be busy
@given(
    prefixes=st.lists(
        st.lists(st.sampled_from(["module.", "_orig_mod."]), max_size=4).map("".join), min_size=3, max_size=3
    ),
    outer=wrappers,
)
def test_wrappers_of_parts_come_off_under_those_of_the_whole(prefixes: list[str], outer: str) -> None:
    keys = ["stem.weight", "body.weight", "head.weight"]
    wrapped = {outer + prefix + key: torch.ones(1) for prefix, key in zip(prefixes, keys, strict=True)}
    assert list(fit_keys(wrapped, keys)) == keys


@settings(deadline=None)  # the machine may be busy
@given(prefix=wrappers)
def test_keys_with_one_unexpected_among_them_are_fitted_as_far_as_they_go(prefix: str) -> None:
    wrapped = {prefix + key: torch.ones(1) for key in ("conv.weight", "conv.bias", "extra")}
    assert list(fit_keys(wrapped, ["conv.weight", "conv.bias"])) == ["conv.weight", "conv.bias", "extra"]


@pytest.mark.parametrize("keys", [["model.weight", "module.bias"], ["model.module.weight", "model.weight"]])
def test_keys_that_fit_are_left_alone(keys: list[str]) -> None:
    assert list(fit_keys(dict.fromkeys(keys, torch.ones(1)), keys)) == keys


@pytest.mark.parametrize("keys", [["model.weight", "model.bias"], ["module.weight", "weight"]])
def test_keys_of_the_architecture_stay_beside_an_unexpected_one(keys: list[str]) -> None:
    saved = [*keys, "model.extra"]
    assert list(fit_keys(dict.fromkeys(saved, torch.ones(1)), keys)) == saved


def test_keys_that_would_merge_are_named() -> None:
    merging = {"module.weight": torch.ones(1), "weight": torch.ones(1)}
    with pytest.raises(CheckpointError, match=r"'module.weight' and 'weight' are both 'weight'"):
        fit_keys(merging, ["weight"])


def test_no_keys_fit_anything() -> None:
    assert fit_keys({}, ["weight"]) == {}


def parallel(model: nn.Module) -> nn.Module:
    return nn.ModuleDict({"module": model})


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")  # type: ignore[return-value]  # nothing runs before the first call


def lightning(model: nn.Module) -> nn.Module:
    return nn.ModuleDict({"model": model})


@settings(deadline=None)  # the machine may be busy
@given(wraps=st.lists(st.sampled_from([parallel, compiled, lightning]), unique=True))
def test_a_network_saved_from_any_wrapper_loads(wraps: list[Callable[[nn.Module], nn.Module]]) -> None:
    source, target = Network(), Network()
    wrapped: nn.Module = source
    for wrap in wraps:
        wrapped = wrap(wrapped)
    load_into(target, Checkpoint(Path("w.pt"), wrapped.state_dict(), ""))
    assert_same(target.state_dict(), source.state_dict())


# Loading


def checkpoint_of(state_dict: dict[str, Tensor]) -> Checkpoint:
    return Checkpoint(Path("folder/w.pt"), state_dict, "")


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"model.weight": None}, "'model.weight' is missing"),
        ({"tail.weight": torch.ones(1)}, "'tail.weight' is unexpected"),
        ({"model.bias": torch.ones(4, 2)}, "'model.bias' has shape [4, 2], wanted [3]"),
        ({"model.bias": torch.ones(3, dtype=torch.int64)}, "'model.bias' is integer, wanted floating point"),
        ({"model.bias": torch.ones(3) > 0}, "'model.bias' is boolean, wanted floating point"),
        ({"model.bias": torch.ones(3) * 1j}, "'model.bias' is complex, wanted floating point"),
        ({"module.num_batches_tracked": torch.tensor(1.0)}, "is floating point, wanted integer"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_loaded(change: dict[str, Tensor | None], part: str) -> None:
    model = Network()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    changed = {**Network().state_dict(), **change}
    with pytest.raises(CheckpointError) as caught:
        load_into(model, checkpoint_of({key: value for key, value in changed.items() if value is not None}))
    assert part in str(caught.value)
    assert str(caught.value).startswith(f"{Path('folder/w.pt')} does not fit the architecture")
    assert_same(model.state_dict(), before)


def test_ten_problems_are_listed_and_the_rest_counted() -> None:
    with pytest.raises(CheckpointError) as caught:
        load_into(Network(), checkpoint_of({f"tail.{i}": torch.ones(1) for i in range(20)}))
    missing = len(Network().state_dict()) - 1  # all but num_batches_tracked
    assert str(caught.value).count("is missing") + str(caught.value).count("is unexpected") == 10
    assert str(caught.value).endswith(f"and {20 + missing - 10} more")


def test_the_checkpoint_takes_the_models_dtype() -> None:
    source, target = Network().double(), Network()
    load_into(target, checkpoint_of(source.state_dict()))
    assert target.model.weight.dtype is torch.float32
    assert torch.equal(target.model.weight, source.model.weight.float())


@pytest.mark.parametrize("make", [lambda: nn.LazyConv2d(3, (1, 2)), lambda: nn.Conv2d(2, 3, (1, 2), device="meta")])
def test_a_model_without_memory_for_its_weights_is_refused(make: Callable[[], nn.Module]) -> None:
    with pytest.raises(CheckpointError, match="'weight' is not allocated in the model"):
        load_into(make(), checkpoint_of(nn.Conv2d(2, 3, (1, 2)).state_dict()))


def test_a_file_older_than_the_batch_counter_loads_and_the_model_keeps_its_own() -> None:
    source, target = Network(), Network()
    target.module.num_batches_tracked = torch.tensor(5)
    old = {key: value for key, value in source.state_dict().items() if not key.endswith("tracked")}
    load_into(target, checkpoint_of(old))
    assert target.module.num_batches_tracked.item() == 5
    assert torch.equal(target.model.weight, source.model.weight)


@SAVERS
def test_a_network_loads_from_its_file(save: Callable[[dict[str, Tensor], Path], None], tmp_path: Path) -> None:
    source, target = Network(), Network()
    save(source.state_dict(), tmp_path / "w")
    load_into(target, read_checkpoint(tmp_path / "w"))
    assert_same(target.state_dict(), source.state_dict())


# Values


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.complex64])
def test_tensors_with_a_value_that_is_not_finite_are_named(value: float, dtype: torch.dtype) -> None:
    sick = torch.tensor([1.0, value]).to(dtype)
    state_dict = {"good": torch.ones(2), "sick": sick, "count": torch.tensor(3), "empty": torch.ones(0)}
    assert non_finite_keys(state_dict) == ["sick"]


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz]
)
def test_float8_tensors_are_looked_at_too(dtype: torch.dtype) -> None:
    sick = torch.tensor([1.0, float("nan")]).to(dtype)
    assert non_finite_keys({"good": torch.ones(2).to(dtype), "sick": sick}) == ["sick"]


@pytest.mark.parametrize("place", range(5))
def test_a_value_that_is_not_finite_is_found_wherever_it_is(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PART", 2)
    sick = torch.arange(5.0).where(torch.arange(5) != place, torch.inf)
    assert non_finite_keys({"good": torch.ones(5), "sick": sick}) == ["sick"]


def test_large_float64_values_are_finite() -> None:
    assert non_finite_keys({"large": torch.tensor([1e300], dtype=torch.float64)}) == []
