"""An architecture is built by the code the user names, or refused with one sentence."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import re
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from conv2attn.convert.errors import ArchitectureError
from conv2attn.convert.files.architecture import Architecture, parse_arguments
from tests.registries import TORCHVISION, install

SOURCE = """
from torch import nn

width = 3
built = nn.Conv2d(1, 1, 1)

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

def fails_silently():
    raise KeyError

def leaves():
    raise SystemExit(2)

def interrupts():
    raise KeyboardInterrupt

def makes_a_list():
    return [nn.Conv2d(1, 1, 1)]

def makes_a_class():
    return Network
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "nets" / "my net.v2.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    return path


def refusal(spec: str, arguments: dict[str, object] | None = None) -> ArchitectureError:
    before = (list(sys.path), {name for name in sys.modules if name.startswith("_conv2attn")})
    with pytest.raises(ArchitectureError) as caught:
        Architecture(spec, arguments or {}).build()
    assert "\n" not in str(caught.value)
    assert sys.path == before[0]
    return caught.value


def channels(network: nn.Module) -> int:
    return len(network.state_dict()["conv.weight"])


# What is built


def test_a_class_of_an_installed_module_is_built() -> None:
    built = Architecture("torch.nn:Conv2d", {"in_channels": 2, "out_channels": 3, "kernel_size": [1, 2]}).build()
    assert isinstance(built, nn.Conv2d)
    assert built.weight.shape == (3, 2, 1, 2)


def test_a_function_of_a_file_is_called_with_the_arguments(source: Path) -> None:
    built = Architecture(f"{source}:make_network", {"depth": 2, "width": 5}).build()
    assert [channels(layer) for layer in built.children()] == [5, 5]


def test_a_relative_path_is_enough(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source.parent)
    assert isinstance(Architecture(f"{source.name}:Network").build(), nn.Module)


def test_a_dotted_attribute_is_followed(source: Path) -> None:
    assert channels(Architecture(f"{source}:Network.wide").build()) == 9


def test_the_path_may_hold_colons(source: Path) -> None:
    path = source.rename(source.with_name("c:net.py"))
    assert isinstance(Architecture(f"{path}:Network").build(), nn.Module)


def test_a_model_from_a_file_is_copied_and_pickled(source: Path) -> None:
    built = Architecture(f"{source}:Network").build()
    for twin in (copy.deepcopy(built), pickle.loads(pickle.dumps(built))):
        assert type(twin) is type(built)
        assert twin.state_dict()["conv.weight"].equal(built.state_dict()["conv.weight"])


def test_two_imports_of_one_file_do_not_disturb_each_other(source: Path) -> None:
    first = Architecture(f"{source}:Network").build()
    source.write_text(SOURCE.replace("width=2", "width=4"))
    second = Architecture(f"{source}:Network").build()
    assert (channels(first), channels(second)) == (2, 4)
    assert type(pickle.loads(pickle.dumps(first))) is type(first)
    assert type(first) is not type(second)


def test_modules_beside_the_file_are_found_and_the_path_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sibling_of_net.py").write_text("from torch import nn\nclass Block(nn.Identity): pass\n")
    (tmp_path / "net.py").write_text("from sibling_of_net import Block\n")
    monkeypatch.delitem(sys.modules, "sibling_of_net", raising=False)
    before = list(sys.path)
    built = Architecture(f"{tmp_path / 'net.py'}:Block").build()
    assert sys.path == before
    assert type(copy.deepcopy(built)) is type(built)
    del sys.modules["sibling_of_net"]


# What is refused


@pytest.mark.parametrize("spec", ["", "torch.nn", "torch.nn:", ":Conv2d", "net.py", "torch.nn:a-b", "C:\\net.py"])
def test_a_specification_of_another_form_is_refused(spec: str) -> None:
    assert "the form is package.module:factory" in str(refusal(spec))


@pytest.mark.parametrize("spec", ["no_such_module_here:f", "torch.no_such_module:f", "json.decoder.more:f"])
def test_a_missing_module_is_refused(spec: str) -> None:
    error = refusal(spec)
    assert f"there is no module {spec[:-2]}" in str(error)
    assert isinstance(error.__cause__, ModuleNotFoundError)


@pytest.mark.parametrize("spec", [".torch:f", "torch..nn:f", "my-module:f", "git+https:f"])
def test_a_name_that_no_module_has_is_refused(spec: str) -> None:
    assert "neither a module's name nor a .py file" in str(refusal(spec))


@pytest.mark.parametrize("name", ["missing.py", "nets", "nets/notes.txt"])
def test_a_path_that_is_no_python_file_is_refused(name: str, source: Path, tmp_path: Path) -> None:
    (tmp_path / "nets" / "notes.txt").touch()
    assert "there is no Python file" in str(refusal(f"{tmp_path}/{name}:f"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import no_such_module_here", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("def f(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise ValueError('one\\ntwo')", "ValueError: one"),
    ],
)
def test_an_import_that_fails_names_the_exception(
    text: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "failing_net.py"
    path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for spec, place in ((f"{path}:f", str(path)), ("failing_net:f", "failing_net")):
        before = set(sys.modules)
        error = refusal(spec)
        assert f"importing {place} failed: {name}" in str(error)
        assert type(error.__cause__).__name__ == name.partition(":")[0]
        assert not {module for module in set(sys.modules) - before if "failing_net" in module}


@pytest.mark.parametrize(
    ("attribute", "hint"),
    [
        ("make_netwrok", "close names: make_network"),
        ("Network.wild", "close names: wide"),
        ("zzz", "has no zzz"),
    ],
)
def test_a_missing_attribute_is_refused_with_the_names_that_are_close(attribute: str, hint: str, source: Path) -> None:
    error = refusal(f"{source}:{attribute}")
    assert f"has no {attribute}" in str(error)
    assert str(error).endswith(hint)
    assert isinstance(error.__cause__, AttributeError)


@pytest.mark.parametrize(("attribute", "kind"), [("width", "an int"), ("built", "a Conv2d"), ("nn", "a module")])
def test_what_builds_nothing_is_refused(attribute: str, kind: str, source: Path) -> None:
    assert f"is {kind}, not a function or class that builds a network" in str(refusal(f"{source}:{attribute}"))


@pytest.mark.parametrize(
    ("attribute", "arguments", "part"),
    [
        ("make_network", {}, "missing a required argument: 'depth'; it takes (depth, width=2)"),
        ("make_network", {"depth": 1, "wide": 2}, "unexpected keyword argument 'wide'"),
        ("Network", {"depth": 1}, "unexpected keyword argument 'depth'; it takes (width=2, *, bias=True)"),
    ],
)
def test_wrong_arguments_are_refused_with_the_right_ones(
    attribute: str, arguments: dict[str, object], part: str, source: Path
) -> None:
    error = refusal(f"{source}:{attribute}", arguments)
    assert part in str(error)
    assert isinstance(error.__cause__, TypeError)


@pytest.mark.parametrize(
    ("attribute", "summary", "cause"),
    [
        ("fails", "RuntimeError: no luck", RuntimeError),
        ("fails_silently", "KeyError", KeyError),
        ("leaves", "SystemExit: 2", SystemExit),
    ],
)
def test_a_factory_that_fails_names_the_exception(
    attribute: str, summary: str, cause: type[BaseException], source: Path
) -> None:
    error = refusal(f"{source}:{attribute}")
    assert str(error).endswith(f"{attribute} failed: {summary}")
    assert isinstance(error.__cause__, cause)


def test_a_value_of_the_wrong_type_names_the_exception(source: Path) -> None:
    assert "failed: TypeError" in str(refusal(f"{source}:Network", {"width": "nine"}))


def test_a_builtin_without_a_signature_is_called_all_the_same() -> None:
    assert "returned a dict" in str(refusal("builtins:dict", {"x": 1}))


@pytest.mark.parametrize(("attribute", "kind"), [("makes_a_list", "a list"), ("makes_a_class", "a type")])
def test_a_factory_that_returns_no_network_is_refused(attribute: str, kind: str, source: Path) -> None:
    assert f"returned {kind}, not a torch.nn.Module" in str(refusal(f"{source}:{attribute}"))


def test_an_interrupt_passes_through_the_factory(source: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        Architecture(f"{source}:interrupts").build()


def test_an_interrupt_passes_through_the_import(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("raise KeyboardInterrupt")
    before = (list(sys.path), set(sys.modules))
    with pytest.raises(KeyboardInterrupt):
        Architecture(f"{tmp_path / 'net.py'}:f").build()
    assert (sys.path, set(sys.modules)) == before


# Arguments


def test_arguments_are_json() -> None:
    pairs = ["depth=18", "rate=0.5", "pretrained=false", 'name="a=b"', "sizes=[1, [2]]", 'd={"k": null}']
    assert parse_arguments(pairs) == {
        "depth": 18,
        "rate": 0.5,
        "pretrained": False,
        "name": "a=b",
        "sizes": [1, [2]],
        "d": {"k": None},
    }


def test_no_arguments_are_none() -> None:
    assert parse_arguments([]) == {}


@pytest.mark.parametrize("pair", ["", "depth", "=3", "depth=", "my-depth=3", "2=3", " depth=3"])
def test_a_pair_of_another_form_is_named(pair: str) -> None:
    with pytest.raises(ArchitectureError) as caught:
        parse_arguments(["width=2", pair])
    assert f"the argument {pair!r} is not of the form name=json" in str(caught.value)


@pytest.mark.parametrize("text", ["relu", "True", "None", "NaN", "-Infinity", "'relu'", "[1,", "1 2", "[" * 99999])
def test_a_value_that_is_not_json_is_refused_with_how_to_quote(text: str) -> None:
    with pytest.raises(ArchitectureError) as caught:
        parse_arguments([f"act={text}"])
    assert str(caught.value).startswith("the argument ")
    assert str(caught.value).endswith("act='\"word\"'")


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(ArchitectureError, match="'depth=3' gives depth a second time"):
        parse_arguments(["depth=2", "depth=3"])


def test_a_module_that_is_a_file_here_is_told_how_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_own_net.py").touch()
    with pytest.raises(ArchitectureError, match=r"the file my_own_net\.py is named my_own_net\.py:factory$"):
        Architecture("my_own_net:Net").build()


# The path of a file


def test_modules_beside_a_file_come_before_those_further_on_the_path(
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


@pytest.mark.parametrize("found", [None, ModuleSpec("net", None)])
def test_a_file_that_nothing_imports_is_refused(
    found: ModuleSpec | None, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "spec_from_file_location", lambda *_: found)
    assert str(refusal(f"{source}:Network")) == f"{source} cannot be imported as a Python file"


# Registered names (more in named/test_registries.py)


def test_wrong_arguments_of_a_registered_name_are_refused_with_the_right_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(TORCHVISION, tmp_path, monkeypatch)
    told = "torchvision.models:tiny cannot be called: got an unexpected keyword argument 'depth'; it takes (*, "
    assert str(refusal("torchvision.models:tiny", {"depth": 1})).startswith(told)


def test_a_timm_that_builds_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install({"timm/__init__.py": "create_model = 3"}, tmp_path, monkeypatch)
    assert str(refusal("timm:tiny")) == "timm has no create_model, which builds a network"


# An architecture as a value


def test_an_architecture_builds_its_network(source: Path) -> None:
    assert Architecture("m:f") == Architecture("m:f", {})
    assert channels(Architecture(f"{source}:Network").build()) == 2
    assert channels(Architecture(f"{source}:Network", {"width": 5}).build()) == 5


@pytest.mark.parametrize(("spec", "arguments"), [(3, {}), (None, {}), ("m:f", []), ("m:f", None), (3, [])])
def test_an_architecture_is_a_string_and_a_mapping(spec: Any, arguments: Any) -> None:
    told = f"an architecture is a string and a mapping; got Architecture(spec={spec!r}, arguments={arguments!r})"
    with pytest.raises(TypeError, match=f"^{re.escape(told)}$"):
        Architecture(spec, arguments)


def test_the_file_of_an_architecture_is_the_one_that_is_named_or_its_imported_module_s(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(SOURCE)
    assert Architecture(f"{tmp_path}/net.py:Network").file == tmp_path / "net.py"
    assert Architecture(f"{__name__}:Network").file == Path(__file__)
    assert Architecture("not_imported_by_anyone:Network").file is None
    assert Architecture("sys:Network").file is None  # it has none
