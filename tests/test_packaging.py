"""What is installed is what the tree holds."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SHIPPED = ("convert", "learn", "proofs", "show", "commands")
TOP = ("__init__.py", "__main__.py", "cli.py")
COPIED = (*SHIPPED, *TOP, "tests", "pyproject.toml", "README.md", "LICENSE")
WHEEL_ONLY = {"METADATA", "WHEEL", "RECORD", "top_level.txt", "entry_points.txt", "licenses/LICENSE"}
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".json", ".html", ".cfg", ""}
FOLDERS = ("convert", "learn", "proofs", "show", "commands", "tests", "benchmarks", "docs", ".ci")


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def modules(folder: str) -> list[Path]:
    return sorted(path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py"))


SHIPPED_MODULES = [*map(Path, TOP), *(path for folder in SHIPPED for path in modules(folder))]


def test_every_package_folder_is_listed_and_has_an_init() -> None:
    folders = {path.parent for path in SHIPPED_MODULES if path.parent != Path()}
    assert set(project()["tool"]["setuptools"]["packages"]) == {
        "conv2attn",
        *(".".join(("conv2attn", *folder.parts)) for folder in folders),
    }
    assert all((ROOT / folder / "__init__.py").is_file() for folder in folders)


def test_few_modules_stand_at_the_top() -> None:
    assert {path.name for path in ROOT.glob("*.py")} == set(TOP)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """A wheel that is built from a copy of the tree, since building leaves its litter."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (path,) = out.iterdir()
    return zipfile.Path(path)


def in_wheel(wheel: zipfile.Path) -> set[str]:
    return {name for name in wheel.root.namelist() if not name.endswith("/")}


@pytest.mark.slow
def test_the_wheel_holds_the_tree_and_nothing_else(wheel: zipfile.Path) -> None:
    data = [ROOT / folder / "py.typed" for folder in SHIPPED]
    data += (ROOT / "convert" / "examples" / "weights").iterdir()
    formal = ROOT / "proofs" / "formal"
    data += [*formal.glob("*.v"), formal / "_CoqProject", formal / "README.md"]
    data += [formal / "checker" / "Extraction.v", formal / "checker" / "main.ml"]
    data += [path for path in (ROOT / "show").glob("*/static/**/*") if path.is_file()]
    paths = [*SHIPPED_MODULES, *(path.relative_to(ROOT) for path in data)]
    found = in_wheel(wheel)
    assert {name for name in found if ".dist-info/" not in name} == {f"conv2attn/{path.as_posix()}" for path in paths}
    assert {name.partition(".dist-info/")[2] for name in found if ".dist-info/" in name} == WHEEL_ONLY


@pytest.mark.slow
def test_the_wheel_holds_the_files_byte_for_byte(wheel: zipfile.Path) -> None:
    for name in in_wheel(wheel):
        if name.startswith("conv2attn/"):
            assert wheel.joinpath(name).read_bytes() == (ROOT / name.removeprefix("conv2attn/")).read_bytes(), name


def test_readme_links_are_absolute_and_lead_to_files() -> None:
    home = project()["project"]["urls"]["Repository"]
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [link for link in links if not link.startswith("https://")] == []  # PyPI shows no relative ones
    own = [re.sub(rf"^{home}/(blob|tree|raw)/main/", "", link) for link in links if link.startswith(home)]
    assert len(own) > 10
    assert [path for path in own if not (ROOT / path).exists()] == []


def test_citations_and_the_changelog_name_the_version_of_the_package() -> None:
    version = re.escape(project()["project"]["version"])
    lines = {
        "CITATION.cff": rf"^version: {version}$",
        "CHANGELOG.md": rf"^# Changelog\n(?:(?!\n## (?!\[Unreleased\])).)*\n## \[{version}\]",
    }
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in lines}
    assert [name for name, line in lines.items() if not re.search(line, texts[name], re.MULTILINE | re.DOTALL)] == []


def test_every_dependency_is_pinned_to_a_version_it_allows() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {line.partition("==")[0].lower(): line.partition("==")[2] for line in lines if not line.startswith("#")}
    metadata = project()
    wanted = [*metadata["project"]["dependencies"], *metadata["build-system"]["requires"]]
    wanted += [text for group in metadata["project"]["optional-dependencies"].values() for text in group]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(pins[requirement.name.lower()]), requirement


def text_files() -> list[Path]:
    """The project's own text files; in a linked worktree .git is a file, and not one of them."""
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    paths = [path for path in (*ROOT.iterdir(), *inside) if path.name != ".git"]
    return [path for path in paths if path.is_file() and path.suffix in TEXT_SUFFIXES]


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    places = re.compile(r"(?<![\w.])/(work|root|home)\b|\bshare" + "d/")
    texts = {path: path.read_text(encoding="utf-8") for path in text_files()}
    assert [f"{path}: {hit[0]}" for path, text in texts.items() for hit in places.finditer(text)] == []
