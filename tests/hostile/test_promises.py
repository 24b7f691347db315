"""What docs/security.md says in numbers and names is so; the readers' limits have a test beside their own."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from conv2attn.convert.files.config import FORMAT_VERSION
from conv2attn.convert.files.write import CONFIG, OURS
from conv2attn.learn.data import pictures as images
from conv2attn.proofs.evidence import image_folder
from tests.hostile import measuring

ROOT = Path(__file__).parents[2]
LOADERS = {"torch.load", "torch.jit.load", "torch.export.load", "pickle.load", "pickle.loads", "pickle.Unpickler"}
LOADERS |= {"torch.serialization.load", "numpy.load with pickles"}
# Modules that load all the same, each with what it calls, how, and why that runs nothing of a user's files.
EXCEPTIONS = {
    "proofs/evidence/campaign/checks/all.py": ("torch.load", "load(file, weights_only=True)"),  # what it has just saved
    "learn/training/checkpoints.py": ("torch.load", 'map_location="cpu", weights_only=True)'),  # a run's own epochs
    "learn/training/processes.py": ("pickle.loads", "pickle.loads(work)()"),  # what its own parent sent
}
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


def used(text: str) -> set[str]:
    """Full dotted names of everything that a module uses from other packages, by whatever name it imported that."""
    tree = ast.parse(text)
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                known[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and not node.level:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}

    def named(node: ast.expr) -> str:
        first, dot, rest = ast.unparse(node).partition(".")
        return known.get(first, first) + dot + rest

    found = {named(node) for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and named(node.func) == "numpy.load":
            allowed = [word.value for word in node.keywords if word.arg in ("allow_pickle", None)]
            if any(not isinstance(value, ast.Constant) or value.value is not False for value in allowed):
                found.add("numpy.load with pickles")
    return found


MODULES = [path for room in ("convert", "learn", "proofs") for path in sorted(ROOT.glob(f"{room}/**/*.py"))]


@pytest.mark.parametrize("path", [*MODULES, ROOT / "cli.py"], ids=str)
def test_no_module_gives_a_file_to_what_may_run_it(path: Path) -> None:
    name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    loader, how = EXCEPTIONS.get(name, (None, ""))
    assert used(text) & LOADERS == ({loader} if loader else set())
    assert how in text


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.load(file)",
        "import torch as t\nt.load(file)",
        "from torch import load\nload(file)",
        "from torch import load as read\nread(file)",
        "import torch.serialization\ntorch.serialization.load(file)",
        "from torch import jit\njit.load(file)",
        "from functools import partial\nimport torch\npartial(torch.load, file)",
        "import pickle as p\nclass Own(p.Unpickler): pass",
        "import numpy as np\nnp.load(file, allow_pickle=True)",
        "from numpy import load\nload(file, **options)",
    ],
)
def test_a_loader_is_seen_by_whatever_name_it_is_imported(text: str) -> None:
    assert used(text) & LOADERS


@pytest.mark.parametrize("text", ["import numpy as np\nnp.load(file)", "import pickle\npickle.dumps(x)", "a.load(b)"])
def test_what_loads_no_pickle_is_let_through(text: str) -> None:
    assert not used(text) & LOADERS
