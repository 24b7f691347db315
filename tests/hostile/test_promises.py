"""What docs/security.md says in numbers and names is so; the readers' limits have a test beside their own."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from conv2attn.convert.files.config import FORMAT_VERSION
from conv2attn.convert.files.writing.ownership import CONFIG, OURS
from conv2attn.learn.data import pictures as images
from conv2attn.proofs.evidence import image_folder
from tests.hostile import measuring

ROOT = Path(__file__).parents[2]
LOADERS = {"torch.load", "torch.jit.load", "torch.export.load", "pickle.load", "pickle.loads", "pickle.Unpickler"}
OWN_BYTES = {"proofs/evidence/campaign/checks/all.py"}  # loads what it has just saved to memory
WORDS: dict[float, str] = {4: "four", 5: "five"}
PAGE = " ".join((ROOT / "docs" / "security.md").read_text(encoding="utf-8").split())


@pytest.mark.parametrize(
    "sentence",
    [
        f"at most twice the files' size and {measuring.ALLOWED // 2**20} MB",
        f"{WORDS[measuring.SECONDS]} seconds of processor time and one more for each megabyte, on a processor that "
        f"counts to a million in Python in {measuring.MILLION} seconds",
        f"at most {round(images.MOST_PIXELS / 10**6)} million pixels",
        f"at most {round(image_folder.MOST_NUMBERS / 10**6)} million numbers",
        f"plain files of {WORDS[len(OURS)]} names, among them a `{CONFIG}`",
    ],
)
def test_the_limits_that_are_told_are_those_of_the_code(sentence: str) -> None:
    assert sentence in PAGE


def test_every_earlier_version_of_the_folder_is_told_and_has_a_fixture() -> None:
    for version in range(1, FORMAT_VERSION):
        assert (ROOT / "tests" / "fixtures" / f"folder-v{version}" / "config.json").is_file()
        assert f"Version {version + 1} " in PAGE
    assert f"Version {FORMAT_VERSION + 1} " not in PAGE


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"\]\(\.\./([^)#]+)\)", PAGE)
    assert len(named) > 50
    assert [name for name in named if not (ROOT / name).exists()] == []


def called(path: Path) -> set[str]:
    """Dotted names of what a module calls."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


@pytest.mark.parametrize("path", sorted(ROOT.glob("convert/**/*.py")) + sorted(ROOT.glob("proofs/**/*.py")), ids=str)
def test_no_module_gives_a_file_to_what_may_run_it(path: Path) -> None:
    assert not called(path) & LOADERS or path.relative_to(ROOT).as_posix() in OWN_BYTES


def test_the_exception_is_one() -> None:
    for name in OWN_BYTES:
        assert called(ROOT / name) & LOADERS == {"torch.load"}
        assert "torch.load(file, weights_only=True)" in (ROOT / name).read_text(encoding="utf-8")
        assert "BytesIO()" in (ROOT / name).read_text(encoding="utf-8")
