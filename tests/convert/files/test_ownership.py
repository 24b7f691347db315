"""Nothing is removed that conv2attn did not write, and nothing that it is reading, whatever is asked for."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from conv2attn.convert import convert_model, save_converted
from conv2attn.convert.errors import OutputError
from conv2attn.convert.examples.networks import NETWORKS
from conv2attn.convert.files.writing import atomic
from conv2attn.convert.files.write import write_folder
from conv2attn.convert.files.write import marked_file
from conv2attn.convert.files.write import check_outside
from conv2attn.convert.files.tensors import write_safetensors
from tests.command import exit_code


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder to work in with a checkpoint and what was converted of it."""
    monkeypatch.chdir(tmp_path)
    torch.save(nn.Sequential(nn.Conv2d(2, 3, 3)), "module.pt")
    save_converted(convert_model(nn.Sequential(nn.Conv2d(2, 3, 3))).model, "out")


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line; gives the exit code and what it says on stderr."""

    def run(*arguments: str) -> tuple[int, str]:
        return exit_code(*arguments), capsys.readouterr().err

    return run


def tree(folder: str = ".") -> dict[str, str]:
    """Every file, link and folder, with what it holds."""
    return {str(path): held(path) for path in sorted(Path(folder).rglob("*"))}


def held(path: Path) -> str:
    if path.is_symlink():
        return f"link to {os.readlink(path)}"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"


def refused(run: Run, *arguments: str) -> str:
    """The sentence of a run that is refused and changes nothing."""
    before = tree()
    code, message = run(*arguments)
    assert code == 3
    assert message.count("\n") == 1
    assert tree() == before
    return message


def note(place: Path) -> None:
    place.write_text("years of work")


def folder(place: Path) -> None:
    place.mkdir()


def link(place: Path) -> None:
    place.symlink_to(Path("module.pt").absolute())


FOREIGN = [
    (note, "notes.txt"),
    (note, "Report.html"),
    (note, ".hidden"),
    (note, "model.safetensors.bak"),
    (folder, "folder"),
    (folder, "report.html"),
    (link, "report.html"),
    (link, "link"),
]


@pytest.mark.parametrize(("make", "name"), FOREIGN)
def test_a_folder_that_holds_something_foreign_stays_whole(make: Callable[[Path], None], name: str, run: Run) -> None:
    Path("out", "report.html").unlink(missing_ok=True)
    make(Path("out", name))
    message = refused(run, "convert", "module.pt", "--out", "out", "--force")
    assert repr(name) in message
    assert "conv2attn did not write; it stays" in message


def test_a_config_that_is_a_link_makes_no_folder_ours(run: Run) -> None:
    Path("out", "config.json").rename("elsewhere.json")
    Path("out", "config.json").symlink_to(Path("elsewhere.json").absolute())
    assert "conv2attn did not write it" in refused(run, "convert", "module.pt", "--out", "out", "--force")


@pytest.mark.parametrize("name", ["weights.pt", "report.html"])
def test_a_source_inside_the_target_is_refused(name: str, run: Run) -> None:
    Path("module.pt").rename(Path("out", name))
    assert "the input" in refused(run, "convert", f"out/{name}", "--out", "out", "--force")


def test_a_folder_is_not_converted_onto_itself(run: Run) -> None:
    assert "the input out would be lost" in refused(run, "convert", "out", "--out", "out", "--force")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("out/report.html", "link"),
        ("link/report.html", "out"),
        ("source.pt", "out"),
        ("source.pt", "link"),
        ("out/../out/report.html", "./out"),
        ("out/report.html", "other/../out"),
    ],
)
def test_links_and_detours_do_not_hide_that_the_source_is_inside(source: str, target: str, run: Run) -> None:
    Path("module.pt").rename("out/report.html")
    Path("link").symlink_to("out")
    Path("source.pt").symlink_to("out/report.html")
    Path("other").mkdir()
    assert "would be lost" in refused(run, "convert", source, "--out", target, "--force")


def test_the_source_s_parents_are_refused(run: Run) -> None:
    Path("out", "deep", "er").mkdir(parents=True)
    Path("module.pt").rename("out/deep/er/module.pt")
    assert "would be lost" in refused(run, "convert", "out/deep/er/module.pt", "--out", "out", "--force")


def test_a_file_that_an_index_lists_is_a_source_too(run: Run) -> None:
    """The shard has one of our names, in a folder of ours; only the index lies elsewhere."""
    write_safetensors({"0.weight": torch.zeros(3, 2, 3, 3)}, Path("out", "model.safetensors"), {})
    Path("index.json").write_text(json.dumps({"weight_map": {"0.weight": "out/model.safetensors"}}))
    Path("nets.py").write_text("from torch import nn\ndef net(): return nn.Sequential(nn.Conv2d(2, 3, 3, bias=False))")
    arguments = ("convert", "index.json", "--arch", "nets.py:net", "--out", "out", "--force")
    before = tree("out")
    code, message = run(*arguments)
    assert code == 3
    assert "would be lost" in message
    assert tree("out") == before


def test_a_target_that_is_a_hard_link_of_the_source_is_refused(run: Run) -> None:
    os.link("out/model.safetensors", "cnn.safetensors")
    assert "would be lost" in refused(run, "restore", "out", "--out", "cnn.safetensors", "--force")


@pytest.mark.parametrize("target", ["out/model.safetensors", "link/model.safetensors", "weights.safetensors"])
def test_a_restored_file_does_not_replace_what_it_is_restored_from(target: str, run: Run) -> None:
    Path("link").symlink_to("out")
    Path("weights.safetensors").symlink_to("out/model.safetensors")
    assert "would be lost" in refused(run, "restore", "out", "--out", target, "--force")


def test_a_picture_does_not_replace_the_image_that_it_shows(run: Run) -> None:
    Path("image.png").write_bytes(b"photograph")
    Path("arch.py").write_text("from torch import nn\ndef net():\n    return nn.Sequential(nn.Conv2d(2, 3, 3))\n")
    arguments = ("show", "module.pt", "--arch", "arch.py:net", "--image", "image.png", "--out", "image.png", "--force")
    assert "would be lost" in refused(run, *arguments)


NETS = "from torch import nn\ndef net(): return nn.Sequential(nn.Conv2d(2, 3, 3, bias=False))\n"


@pytest.fixture
def _shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A converted folder, a folder of weights in two files with their index, and the code of their network."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    Path("nets.py").write_text(NETS)
    Path("sharded").mkdir()
    names = {"0.weight": "model-1.svg"}  # a name that pictures may have, too
    write_safetensors({"0.weight": torch.zeros(3, 2, 3, 3)}, Path("sharded", "model-1.svg"), {})
    Path("sharded", "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    Path("sharded", "link.pt2").symlink_to("model-1.svg")
    save_converted(convert_model(nn.Sequential(nn.Conv2d(2, 3, 3, bias=False))).model, "bare")


@pytest.mark.usefixtures("_shards")
@pytest.mark.parametrize(
    ("command", "source", "target"),
    [
        ("export --to mha", "bare", "bare/model.safetensors"),
        ("export --to onnx", "bare", "bare/model.safetensors"),
        ("export --to gpsa", "bare", "bare/config.json"),
        ("export --to mha", "sharded", "sharded/model-1.svg"),
        ("export --to mha", "sharded/model.safetensors.index.json", "sharded/model-1.svg"),
        ("export --to mha", "sharded", "nets.py"),
        ("freeze --tolerance 1", "sharded", "sharded/link.pt2"),
        ("freeze --tolerance 1 --out x.pt2", "sharded", "sharded/model-1.svg"),
        ("show", "sharded", "sharded/model-1.svg"),
    ],
)
def test_no_file_that_was_read_is_replaced_whatever_names_it(command: str, source: str, target: str, run: Run) -> None:
    name, *options = command.split()
    size = () if name == "show" else ("--size", "8x8")
    out = "--plot" if "--out" in options else "--out"
    arguments = (name, source, "--arch", "nets.py:net", *options, *size, out, target, "--force")
    assert "would be lost" in refused(run, *arguments)


@pytest.mark.usefixtures("_shards")
def test_no_module_that_built_the_network_is_replaced(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    try:
        target = ("--out", "nets.py", "--force")
        assert "would be lost" in refused(run, "export", "bare", "--arch", "nets:net", "--to", "mha", *target)
    finally:
        sys.modules.pop("nets", None)


def test_a_run_s_outputs_are_files_of_their_own(run: Run) -> None:
    Path("plot.svg").symlink_to("frozen.pt2")
    frozen = ("freeze", "out", "--tolerance", "1", "--out", "frozen.pt2", "--plot", "plot.svg", "--force")
    assert "frozen.pt2 and plot.svg are the same file" in refused(run, *frozen)
    Path("rows.md").symlink_to("ladder.svg")
    measured = ("bench", "--table", "ladder", "--plot", "ladder.svg", "--markdown", "rows.md")
    assert "are the same file" in refused(run, *measured)


def test_the_demo_leaves_a_folder_alone_that_holds_something_foreign(run: Run) -> None:
    Path("demo").mkdir()
    example = Path("demo", next(iter(NETWORKS)))
    save_converted(convert_model(nn.Conv2d(1, 1, 1)).model, example)
    note(example / "notes.txt")
    assert "'notes.txt'" in refused(run, "demo", "--out", "demo", "--images", "1")


@pytest.mark.parametrize("way", ["exchange", "two renames"])
def test_what_comes_into_the_target_at_the_last_moment_stays(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes after the last check, before the folders are exchanged."""
    put_in_place = atomic._put_in_place

    def late(temporary: Path, target: Path) -> None:
        note(target / "notes.txt")
        put_in_place(temporary, target)

    if way == "two renames":
        monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    monkeypatch.setattr(atomic, "_put_in_place", late)
    before = tree()
    with pytest.raises(OutputError, match=r"notes\.txt"):
        write_folder(Path("out"), lambda new: note(new / "config.json"), force=True)
    after = tree()
    assert after.pop("out/notes.txt") == hashlib.sha256(b"years of work").hexdigest()
    assert after == before


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_what_is_written_has_the_permissions_of_any_new_file(mask: int, mode: int, run: Run) -> None:
    before = os.umask(mask)
    try:
        assert run("convert", "module.pt", "--out", "new")[0] == 0
        assert run("restore", "new", "--out", "cnn.safetensors")[0] == 0
        assert run("restore", "new", "--out", "cnn.pt")[0] == 0
        with marked_file(Path("result.md"), marks=["ours"], room=9) as put:
            put("ours")
    finally:
        os.umask(before)
    written = [*Path("new").iterdir(), Path("cnn.safetensors"), Path("cnn.pt"), Path("result.md")]
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in written} == dict.fromkeys(
        [path.name for path in written], oct(mode)
    )


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "report.json"])
def test_a_link_that_leaves_the_folder_is_not_read(name: str, run: Run) -> None:
    Path("elsewhere").mkdir()
    save_converted(convert_model(nn.Sequential(nn.Conv2d(2, 3, 3))).model, "other")
    Path("out", name).unlink()
    Path("out", name).symlink_to(Path("other", name).absolute())
    Path("nets.py").write_text("from torch import nn\ndef net(): return nn.Sequential(nn.Conv2d(2, 3, 3))")
    assert "is a link that leaves its folder" in refused(run, "show", "out", "--arch", "nets.py:net", "--out", "x.html")
    if name != "report.json":  # which the others do not read
        assert "is a link that leaves its folder" in refused(run, "restore", "out", "--out", "x.pt")


def test_the_links_of_a_cache_are_read(run: Run) -> None:
    """As Hugging Face keeps a folder: links to the files of the same repository."""
    Path("models", "blobs").mkdir(parents=True)
    snapshot = Path("models", "snapshots", "0123")
    snapshot.mkdir(parents=True)
    for path in Path("out").iterdir():
        path.rename(Path("models", "blobs", path.name))
        (snapshot / path.name).symlink_to(Path("..", "..", "blobs", path.name))
    assert run("restore", str(snapshot), "--out", "x.pt")[0] == 0


def test_a_target_is_not_written_into_a_folder_that_is_read() -> None:
    Path("pictures/cats").mkdir(parents=True)
    Path("link").symlink_to("pictures/cats")
    for inside in ("pictures/run", "pictures/cats/run", "link/run", "pictures/none/run"):
        with pytest.raises(OutputError, match="it is inside pictures, and would be read as a part of that"):
            check_outside(Path(inside), Path("pictures"))
    for outside, source in (
        ("run", "pictures"),
        ("pictures", "pictures"),
        ("pictures/run", "none"),
        ("none/run", "none"),
    ):
        check_outside(Path(outside), Path(source))
