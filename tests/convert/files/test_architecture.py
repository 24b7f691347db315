"""An architecture is built by the code the user names, or refused with one sentence."""

from __future__ import annotations

import copy
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from conv2attn.convert.errors import ArchitectureError, OptionError
from conv2attn.convert.files.architecture import Architecture, parse_arguments

SOURCE = """
from torch import nn

width = 3

class _Block:
    pass

class Network(nn.Module):
    def __init__(self, width=2, *, bias=True):
        super().__init__()
        self.conv = nn.Conv2d(1, width, (1, 2), bias=bias)

    @classmethod
    def wide(cls):
        return cls(width=9)

def make_network(depth, width=2):
    return nn.Sequential(*(Network(width) for _ in range(depth)))

def fails():
    raise RuntimeError("no luck\\nat all")

def makes_a_list():
    return [nn.Conv2d(1, 1, 1)]
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "nets" / "my net.v2.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    return path


def refusal(spec: str, arguments: dict[str, object] | None = None) -> ArchitectureError:
    before = list(sys.path)
    with pytest.raises(ArchitectureError) as caught:
        Architecture(spec, arguments or {}).build()
    assert "\n" not in str(caught.value)
    assert sys.path == before
    return caught.value


def channels(network: nn.Module) -> int:
    return len(network.state_dict()["conv.weight"])


# What is built


def test_classes_functions_and_attributes_of_modules_and_files_are_built(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"in_channels": 2, "out_channels": 3, "kernel_size": [1, 2]}
    built = Architecture("torch.nn:Conv2d", given).build()
    assert built.get_parameter("weight").shape == (3, 2, 1, 2)
    deep = Architecture(f"{source}:make_network", {"depth": 2, "width": 5}).build()
    assert [channels(layer) for layer in deep.children()] == [5, 5]
    assert channels(Architecture(f"{source}:Network.wide").build()) == 9
    monkeypatch.chdir(source.parent)
    assert channels(Architecture(f"{source.name}:Network", {"width": 4}).build()) == 4
    path = source.rename(source.with_name("c:net.py"))  # a path may hold colons
    assert channels(Architecture(f"{path}:Network").build()) == 2


def test_two_imports_of_one_file_do_not_disturb_each_other_and_are_copied_and_pickled(source: Path) -> None:
    first = Architecture(f"{source}:Network").build()
    source.write_text(SOURCE.replace("width=2", "width=4"))
    second = Architecture(f"{source}:Network").build()
    assert (channels(first), channels(second)) == (2, 4)
    for built in (first, second):
        for twin in (copy.deepcopy(built), pickle.loads(pickle.dumps(built))):
            assert type(twin) is type(built)
            assert twin.state_dict()["conv.weight"].equal(built.state_dict()["conv.weight"])


def test_modules_beside_a_file_come_before_those_further_on_the_path_which_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("further", "beside"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "sibling_of_net.py").write_text(f"from torch import nn\nclass {place}(nn.Identity): pass\n")
    (tmp_path / "beside/net.py").write_text(
        "import sys\nfrom sibling_of_net import beside\nsys.path.remove(__file__.rpartition('/')[0])\n"
    )
    monkeypatch.delitem(sys.modules, "sibling_of_net", raising=False)
    monkeypatch.syspath_prepend(tmp_path / "further")
    before = list(sys.path)
    built = Architecture(f"{tmp_path / 'beside/net.py'}:beside").build()
    assert sys.modules[type(built).__module__].__file__ == str(tmp_path / "beside/sibling_of_net.py")
    assert sys.path == before
    del sys.modules["sibling_of_net"]


# What is refused


FORM = "the form is path/to/file.py:NAME or package.module:NAME, NAME of a class or function, "
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    **{f"the form of {spec!r}": (spec, {}, FORM) for spec in ("torch.nn", ":Conv2d")},
    "no module": ("no_such_module_here:f", {}, "there is no module no_such_module_here"),
    "the name of no module": ("my-module:f", {}, "neither a module's name nor a .py file"),
    "no file": ("nets/missing.py:f", {}, "there is no Python file"),
    "a misspelt method": ("{source}:Network.wild", {}, "has no Network.wild: wild is missing; close names: wide"),
    "a number": ("{source}:width", {}, "is an int, not a function or class that builds a network"),
    "no name": ("{source}", {}, "one of Network, make_network, fails, makes_a_list, as in "),
    "an argument too many": (
        "{source}:make_network",
        {"wdth": 1},
        "unexpected keyword argument 'wdth'; it takes depth, width=2",
    ),
    "an error": ("{source}:fails", {}, "fails failed: RuntimeError: no luck"),
    "a list": ("{source}:makes_a_list", {}, "returned a list, not a torch.nn.Module"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_builds_no_network_is_refused_by_what_it_is(
    kind: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parents[1])
    spec, arguments, told = REFUSED[kind]
    assert told in str(refusal(spec.format(source=source), arguments))


def test_an_import_that_fails_or_is_interrupted_leaves_no_module(tmp_path: Path) -> None:
    failing, interrupted = tmp_path / "failing_net.py", tmp_path / "interrupted_net.py"
    failing.write_text("raise ValueError('one\\ntwo')")
    interrupted.write_text("raise KeyboardInterrupt")
    before = (list(sys.path), set(sys.modules))
    assert f"importing {failing} failed: ValueError: one" in str(refusal(f"{failing}:f"))
    assert "defines neither" in str(refusal(str(failing)))  # which does not import it
    with pytest.raises(KeyboardInterrupt):
        Architecture(f"{interrupted}:f").build()
    assert (sys.path, set(sys.modules)) == before


# Arguments


def test_arguments_are_json() -> None:
    pairs = ["depth=18", "rate=0.5", "pretrained=false", 'name="a=b"', "sizes=[1, [2]]", 'd={"k": null}']
    found = {"depth": 18, "rate": 0.5, "pretrained": False, "name": "a=b", "sizes": [1, [2]], "d": {"k": None}}
    assert parse_arguments(pairs) == found
    assert parse_arguments([]) == {}


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        *((pair, "is not of the form name=json") for pair in ("depth", "my-depth=3")),
        ("width=3", "gives width a second time"),
        ("act=relu", r"is not name=json; .*act='\"word\"'"),
    ],
)
def test_a_pair_of_another_form_or_given_twice_is_named(pair: str, reason: str) -> None:
    with pytest.raises(OptionError, match=rf"^the argument {re.escape(repr(pair))} {reason}"):
        parse_arguments(["width=2", pair])
