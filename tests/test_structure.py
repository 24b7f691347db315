"""Imports go one way from room to room, and every room is small enough to look through."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SLOW

ROOT = Path(__file__).parents[1]
# A room imports from rooms above it in this list only; CONTRIBUTING.md says what each is for.
ROOMS = [
    "convert",
    "convert/heads",
    "convert/bounds",
    "convert/engines",
    "convert/attention",
    "convert/certificate",
    "convert/certificate/propagation",
    "convert/model",
    "convert/examples",
    "convert/files/readers/common",
    "convert/files/readers/onnx",
    "convert/files/readers",
    "convert/files/writing",
    "convert/files",
    "convert/export/onnx",
    "convert/export",
    "learn/heads",
    "learn/imported",
    "learn/networks",
    "learn/data",
    "learn/training",
    "learn/melting",
    "learn/freezing",
    "learn/experiment",
    "proofs/terminal",
    "proofs/prover",
    "proofs/claims/common",
    "proofs/claims/theorem",
    "proofs/claims/certificate",
    "proofs/claims/computing",
    "proofs/claims/other_encodings",
    "proofs/claims/sharper",
    "proofs/claims/errata",
    "proofs/formal",
    "proofs/formal/coq",
    "proofs/formal/checker",
    "proofs/prover/document",
    "proofs/evidence",
    "proofs/evidence/campaign/checks",
    "proofs/evidence/campaign",
    "proofs/show/pictures",
    "proofs/benchmark/candidates",
    "proofs/benchmark/measuring",
    "proofs/benchmark",
    "proofs/show/page",
    "proofs/show/film",
    "proofs/show/trained",
    "proofs/show",
    ".",
]
DOORS = {"convert/__init__.py", "learn/__init__.py", "proofs/__init__.py"}  # they gather what users import
KEPT_OUT_OF_CONVERT = {"sympy", "hypothesis", "typer", "rich", "jinja2", "matplotlib"}
MOST_MODULES = 14
MOST_LINES = 260
# Longer modules, each with what keeps it in one piece.
LONG = {
    "cli.py": "the signatures of all commands",
    "convert/attention/layer.py": "the layer, half of it docstrings",
    "convert/bounds/rounding.py": "one derivation, formula after formula",
    "convert/spec.py": "one geometry, with what each of its options means and may be",
    "convert/certificate/propagation/network.py": "one walk through a network",
    "convert/files/checkpoint.py": "one checkpoint, from its file to a network",
    "convert/files/readers/pickle_machine.py": "one machine, an operation a method",
    "proofs/claims/certificate/rounding.py": "one derivation, formula after formula",
    "proofs/claims/certificate/frozen_kernel.py": "one claim",
    "proofs/claims/theorem/assembly.py": "one derivation, with every symbol",
    "proofs/claims/sharper/head_count.py": "one claim",
    "proofs/claims/sharper/mixed_taps.py": "one claim",
    "proofs/evidence/campaign/checks/all.py": "every check of a layer",
}


def modules(*folders: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*.py"))


PACKAGE = ["cli.py", *modules("convert", "learn", "proofs")]
OUTSIDE = modules("tests", "benchmarks")
SUITES = [module for module in OUTSIDE if Path(module).name.startswith("test_")]


def room(module: str) -> str:
    return Path(module).parent.as_posix()


def imported(module: str) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """What a file imports from, anywhere in it, its level (0 is absolute), and the names."""
    for node in ast.walk(ast.parse((ROOT / module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.level, tuple(alias.name for alias in node.names)


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


@pytest.mark.parametrize("module", PACKAGE)
def test_a_module_imports_from_its_own_room_and_those_before_it(module: str) -> None:
    for target in followed(module):
        assert (ROOT / target).is_file(), f"{module} imports {target}, which is nowhere"
        if module not in DOORS and target not in DOORS and Path(target).name != "__init__.py":
            assert ROOMS.index(room(target)) <= ROOMS.index(room(module)), f"{module} imports {target}"


@pytest.mark.parametrize("module", PACKAGE)
def test_imports_inside_the_package_are_relative(module: str) -> None:
    names = {name.partition(".")[0] for name, level, _ in imported(module) if not level}
    assert names.isdisjoint({"conv2attn", "convert", "learn", "proofs", "cli"})


@pytest.mark.parametrize("module", OUTSIDE)
def test_outside_the_package_imports_are_absolute(module: str) -> None:
    assert all(level == 0 for _, level, _ in imported(module))
    assert {"convert", "learn", "proofs", "cli"}.isdisjoint(name.partition(".")[0] for name, _, _ in imported(module))


@pytest.mark.parametrize("module", modules("convert"))
def test_the_conversion_imports_neither_what_proves_nor_what_prints(module: str) -> None:
    assert KEPT_OUT_OF_CONVERT.isdisjoint(name.partition(".")[0] for name, _, _ in imported(module))
    assert all(target.startswith("convert/") for target in followed(module))


def test_a_room_has_few_modules() -> None:
    rooms = [room(module) for module in PACKAGE]
    assert {name: rooms.count(name) for name in rooms if rooms.count(name) > MOST_MODULES} == {}


def test_a_module_is_short_or_says_why_not() -> None:
    lengths = {module: (ROOT / module).read_text(encoding="utf-8").count("\n") for module in PACKAGE}
    assert {module for module, length in lengths.items() if length > MOST_LINES} == set(LONG)


def test_every_room_is_told_of() -> None:
    told = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [
        name for name in ROOMS if name != "." and not re.search(rf"^ +{Path(name).name}/", told, re.MULTILINE)
    ] == []


@pytest.mark.parametrize("module", SUITES)
def test_what_suites_share_lies_in_no_suite(module: str) -> None:
    ours = [(name.split("."), names) for name, _, names in imported(module) if name.startswith("tests")]
    assert not [part for path, names in ours for part in (*path, *names) if part.startswith("test_")]


def test_a_suite_lies_in_a_room_of_the_package_or_is_about_all_of_it() -> None:
    rooms = {Path("tests", module).parent.as_posix() for module in PACKAGE} | {"tests/proofs/claims"}
    whole = {"tests/browser", "tests/fuzz", "tests/hostile"}
    assert {Path(suite).parent.as_posix() for suite in SUITES} <= rooms | whole


def test_what_is_left_out_of_a_quick_run_exists() -> None:
    assert {f"tests/{name}" for name in SLOW} <= set(SUITES)
