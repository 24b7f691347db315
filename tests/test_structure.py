"""Imports go one way from room to room, and every room is small enough to look through."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import SLOW

ROOT = Path(__file__).parents[1]
# A room imports from rooms above it in this list only; CONTRIBUTING.md says what each is for.
ROOMS = [
    "convert",
    "convert/heads",
    "convert/bounds",
    "convert/engines",
    "convert/subclasses",
    "convert/layer",
    "convert/programs",
    "convert/certificate",
    "convert/certificate/network",
    "convert/network",
    "convert/onnx",
    "convert/examples",
    "convert/files",
    "convert/sameness",
    "convert/agreement",
    "convert/export",
    "learn/heads",
    "learn/data",
    "learn/training",
    "learn",
    "learn/experiment",
    "show",
    "show/pictures",
    "show/page",
    "show/article",
    "proofs/formal",
    "proofs/prover",
    "proofs/claims/common",
    "proofs/claims/theorem",
    "proofs/claims/certificate",
    "proofs/claims/computing",
    "proofs/claims/other_encodings",
    "proofs/claims/sharper",
    "proofs/claims/errata",
    "proofs/campaign",
    "commands",
    ".",
]
DOORS = {
    "__init__.py",
    "convert/__init__.py",
    "learn/__init__.py",
    "proofs/__init__.py",
}  # they gather what users import
KEPT_OUT_OF_CONVERT = {"sympy", "hypothesis", "typer", "rich", "jinja2", "matplotlib"}


def modules(*folders: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*.py"))


PACKAGE = ["__init__.py", "__main__.py", "cli.py", *modules("convert", "learn", "proofs", "show", "commands")]
OUTSIDE = modules("tests", "benchmarks")
SUITES = [module for module in OUTSIDE if Path(module).name.startswith("test_")]


def room(module: str) -> str:
    return Path(module).parent.as_posix()


@functools.cache
def parsed(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


@functools.cache
def imported(module: str) -> list[tuple[str, int, tuple[str, ...]]]:
    """What a file imports from, anywhere in it, its level (0 is absolute), and the names."""
    found: list[tuple[str, int, tuple[str, ...]]] = []
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            found += ((alias.name, 0, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.append((node.module or "", node.level, tuple(alias.name for alias in node.names)))
    return found


def followed(module: str) -> Iterator[str]:
    """The files of the package that a file's relative imports name."""
    for name, level, names in imported(module):
        if level:
            place = Path(module).parents[level - 1].joinpath(*name.split("."))
            for inner in names:
                if (ROOT / place / f"{inner}.py").is_file():
                    yield (place / f"{inner}.py").as_posix()
                else:
                    whole = ROOT / place
                    yield ((place / "__init__.py") if whole.is_dir() else place.with_suffix(".py")).as_posix()


def test_the_rooms_are_those_that_exist() -> None:
    assert {room(module) for module in PACKAGE if Path(module).name != "__init__.py"} == set(ROOMS)


def test_a_module_imports_from_its_own_room_and_those_before_it() -> None:
    pairs = [(module, target) for module in PACKAGE for target in followed(module)]
    assert [pair for pair in pairs if not (ROOT / pair[1]).is_file()] == []
    inner = [pair for pair in pairs if DOORS.isdisjoint(pair) and Path(pair[1]).name != "__init__.py"]
    assert [pair for pair in inner if ROOMS.index(room(pair[1])) > ROOMS.index(room(pair[0]))] == []


def absolute(modules: list[str]) -> set[tuple[str, str]]:
    """Each module with the top-level packages that it imports by their absolute names."""
    return {(module, name.partition(".")[0]) for module in modules for name, level, _ in imported(module) if not level}


def test_imports_inside_the_package_are_relative() -> None:
    ours = {"conv2attn", "convert", "learn", "proofs", "show", "commands", "cli"}
    assert {pair for pair in absolute(PACKAGE) if pair[1] in ours} == set()


def test_outside_the_package_imports_are_absolute() -> None:
    assert [module for module in OUTSIDE for _, level, _ in imported(module) if level] == []
    assert {
        pair for pair in absolute(OUTSIDE) if pair[1] in {"convert", "learn", "proofs", "show", "commands", "cli"}
    } == set()


def test_benchmarks_import_what_the_package_has() -> None:
    for module in modules("benchmarks"):
        for name, _, parts in imported(module):
            if name.partition(".")[0] == "conv2attn":
                found = importlib.import_module(name)
                assert [part for part in parts if not hasattr(found, part)] == [], module


def test_the_conversion_imports_neither_what_proves_nor_what_prints() -> None:
    assert {pair for pair in absolute(modules("convert")) if pair[1] in KEPT_OUT_OF_CONVERT} == set()
    targets = {target for module in modules("convert") for target in followed(module)}
    assert {target for target in targets if not target.startswith("convert/")} == set()


def test_every_room_is_told_of() -> None:
    told = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [
        name for name in ROOMS if name != "." and not re.search(rf"^ +{Path(name).name}/", told, re.MULTILINE)
    ] == []


def test_what_suites_share_lies_in_no_suite() -> None:
    ours = [(name.split("."), names) for suite in SUITES for name, _, names in imported(suite) if "tests" in name]
    assert [part for path, names in ours for part in (*path, *names) if part.startswith("test_")] == []


def test_a_suite_lies_in_a_room_of_the_package_or_is_about_all_of_it() -> None:
    rooms = {Path("tests", module).parent.as_posix() for module in PACKAGE} | {"tests/proofs/claims"}
    whole = {"tests/browser"}
    assert {Path(suite).parent.as_posix() for suite in SUITES} <= rooms | whole


def test_what_is_left_out_of_a_quick_run_exists() -> None:
    assert {f"tests/{name}" for name in SLOW} <= set(SUITES)


def test_docstrings_name_files_that_exist() -> None:
    """``tail.py`` is a file of any folder, ``certificate/tail.py`` one whose path ends so."""
    known = [f"/{module}" for module in (*PACKAGE, *OUTSIDE, *modules("docs"))]
    for module in (*PACKAGE, *modules("benchmarks")):
        for node in ast.walk(parsed(module)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                for name in re.findall(r"``([\w/]+\.py)``", ast.get_docstring(node) or ""):
                    assert any(path.endswith(f"/{name}") for path in known), f"{module} names {name}"
