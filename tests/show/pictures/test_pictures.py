"""Pictures show what the layer computes, in files that are whole or not there."""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn

from conv2attn.commands.inputs import Pair, choose_inputs
from conv2attn.commands.options import InputOptions
from conv2attn.commands.show import Subject, View, view_image
from conv2attn.convert import SelfAttention2d, attention_from_conv, convert_model, graft
from conv2attn.convert.arguments import Size
from conv2attn.convert.errors import ConversionError, OptionError, SelectionError
from conv2attn.convert.examples.images import drawn_image
from conv2attn.convert.examples.networks import load_example
from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.files.folder import save_converted
from conv2attn.convert.files.preprocessing import Normalization, Preprocessing
from conv2attn.convert.network.report import Report
from conv2attn.proofs.campaign.strategies import convolutions_with_input
from conv2attn.show.page.data import page_data
from conv2attn.show.page.draw import PICTURES, draw, drawn
from conv2attn.show.pictures.contours import level
from conv2attn.show.pictures.curve import error_curve
from conv2attn.show.pictures.scene import Scene, scenes
from conv2attn.show.pictures.theory import theory_pictures
from tests.command import Run, exit_code

DOCS = Path(__file__).parents[3] / "docs"
FORMS = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF"}


def small() -> nn.Module:
    """A network of two convolutions."""
    return nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.Conv2d(4, 2, (1, 3))).eval()


def example_scenes(alpha: float | None = None) -> list[Scene]:
    model, _ = convert_model(small(), alpha=alpha)
    return scenes(model, drawn_image(3, Size(24, 32)), pixel=(3, 20))


# What is shown


@given(convolutions_with_input())
def test_a_picture_s_query_attends_where_its_kernel_reads(case: tuple[nn.Conv2d, Tensor]) -> None:
    conv, x = case
    layer = attention_from_conv(conv)
    output = layer.spec.output_size(Size(*x.shape[-2:]))
    query = (output.rows - 1, output.columns // 2)
    scene = Scene("conv", layer, x[:1], query)
    wanted = [[m + d for m, d in zip(scene.mark, offset, strict=True)] for offset in layer.spec.tap_offsets]
    assert [plane.nonzero().tolist() for plane in scene.maps()] == [[place] for place in wanted]


def test_every_layer_is_seen_with_the_input_that_it_gets() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()
    model, _ = convert_model(network)
    image = torch.rand(1, 3, 9, 13)
    first, second = scenes(model, image)
    assert torch.equal(first.x, image)
    assert torch.equal(second.x, network[1](network[0](image)))
    assert (first.query, second.query) == ((1, 2), (1, 2))  # 4 of 9 rows, 6 of 13 columns: in an output of 4 x 6


@given(st.lists(st.integers(0, 9), min_size=2, max_size=30).filter(any), st.sampled_from([0.5, 0.9]))
def test_a_level_separates_the_fewest_pixels_that_hold_the_mass(counts: list[int], mass: float) -> None:
    plane = torch.tensor(counts, dtype=torch.float64).unsqueeze(0) / sum(counts)
    inside = plane[plane > level(plane, mass)].sort().values
    equal = plane[plane == level(plane, mass)]  # pixels of the same probability on both sides
    assert inside.sum() + equal.sum() >= mass - 1e-12  # sums of at most 30 numbers up to 1 err by less than 30 u
    assert inside[1:].sum() < mass + 1e-12


@given(convolutions_with_input())
def test_measured_errors_are_below_their_bounds(case: tuple[nn.Conv2d, Tensor]) -> None:
    conv, x = case
    points = error_curve(attention_from_conv(conv), x[:1], [0.25, 4.0, 32.0])
    for point in points:
        assert point.bounds is not None
        assert all(apart <= bound for apart, bound in zip(point.differences, point.bounds, strict=True))
    assert len(points[0].differences) == conv.out_channels


# Files


@pytest.mark.parametrize(("picture", "form"), [*((picture, "svg") for picture in PICTURES), ("maps", "pdf")])
def test_a_picture_is_the_same_file_every_time(picture: str, form: str) -> None:
    shown = example_scenes(alpha=1.0)
    content = drawn(shown, picture, form)
    assert content.startswith(FORMS[form])
    assert content == drawn(shown, picture, form)


@pytest.mark.parametrize("model", [attention_from_conv(nn.Conv2d(3, 4, 3)), convert_model(small()).model])
def test_a_layer_and_a_network_are_drawn_from_python(
    model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conv2attn.show.page.data._on_image", lambda *_, **__: None)  # seconds; tests/show/page has it
    for form, mark in FORMS.items():
        draw(model, tmp_path / f"a.{form}")
        assert (tmp_path / f"a.{form}").read_bytes().startswith(mark)
    draw(model, tmp_path / "a.html", drawn_image(3), query=(9, 40))
    assert "conv2attn" in (tmp_path / "a.html").read_text(encoding="utf-8")
    name = [name for name, module in model.named_modules() if isinstance(module, SelfAttention2d)][-1]
    image = drawn_image(3, Size(24, 32))
    draw(model, tmp_path / "b.svg", image, layer=name, query=(3, 20), picture="kernel")
    (scene,) = [scene for scene in scenes(model, image, pixel=(3, 20)) if scene.name == name]
    assert (tmp_path / "b.svg").read_bytes() == drawn([scene], "kernel", "svg")


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"out": "a.jpg"}, OptionError, "must end in .png, .svg, .pdf, .html"),
        ({"out": "a.png", "picture": "map"}, OptionError, "maps, contours, error, kernel; got map"),
        ({"out": "a.html", "picture": "maps"}, OptionError, "a page holds every picture"),
        ({"out": "a.png", "layer": "conv"}, SelectionError, "there is no attention layer 'conv'; near it: ''"),
        ({"out": "a.png", "query": (64, 0)}, SelectionError, "outside the image"),
        ({"out": "a.png", "image": torch.zeros(1, 2, 9, 9)}, ConversionError, "must be .batch, 3, rows, columns"),
        ({"out": "."}, ConversionError, "must end in"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_anything_is_written(
    arguments: dict[str, Any], error: type[ConversionError], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=said):
        draw(attention_from_conv(nn.Conv2d(3, 4, 3)), **arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", FORMS)
def test_a_network_without_attention_is_not_drawn_but_refused_with_what_makes_it(form: str, tmp_path: Path) -> None:
    said = r"the model has no attention layer to draw: draw\(convert_model\(model\).model, FILE\)$"
    for file in (f"a.{form}", "a.html"):
        with pytest.raises(ConversionError, match=said):
            draw(load_example("plain"), tmp_path / file)
    with pytest.raises(ConversionError, match=r"got the class Linear: pass Linear\(\)"):
        draw(nn.Linear, tmp_path / f"a.{form}")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("beside", [False, True])
def test_maps_show_where_spare_heads_look(beside: bool) -> None:
    cnn = small()
    model = graft(cnn, where="2", heads=2, beside=beside).model
    (scene,) = scenes(model, drawn_image(3, Size(24, 32)), pixel=(3, 20))
    assert scene.spare_heads == [scene.layer.num_heads, scene.layer.num_heads + 1]
    maps = scene.maps(scene.spare_heads)
    assert torch.equal(maps.sum((1, 2)).round(decimals=3), torch.ones(2, dtype=torch.float64))
    *_, bare = scenes(convert_model(cnn).model, drawn_image(3, Size(24, 32)))
    assert len(drawn([scene], "maps", "svg")) > len(drawn([bare], "maps", "svg"))


@pytest.mark.parametrize("beside", [False, True])
def test_no_picture_and_no_page_has_a_bound_that_leaves_trained_heads_out(beside: bool) -> None:
    model = graft(small(), where="2", beside=beside).model
    image = drawn_image(3, Size(24, 32))
    options: dict[str, Any] = {"pixel": None, "only": None, "agreement": None, "limit": math.inf, "summary": None}
    (scene,) = scenes(model, image)
    assert drawn([scene], "error", "svg")
    assert page_data(model, Report.of(model), image, **options)["layers"][0]["channels"]
    torch.nn.init.constant_(scene.layer.spare_out, 0.5)
    (scene,) = scenes(model, image)
    with pytest.raises(ConversionError, match="ungraft"):
        drawn([scene], "error", "svg")
    (layer,) = page_data(model, Report.of(model), image, **options)["layers"]
    assert layer["positional"]  # its taps
    assert "ungraft" in layer["note"]
    assert (layer["bound"], layer["spare"]["trained"]) == (None, True)
    assert all(channel["scale"] is channel["rounding"] is None for channel in layer["channels"])
    for picture in ("contours", "kernel"):
        assert b"the spare heads" in drawn([scene], picture, "svg")


def test_spare_heads_of_a_transposed_layer_are_not_left_out_of_its_pictures() -> None:
    model = graft(nn.Sequential(nn.ConvTranspose2d(3, 2, 3)), where="0").model
    with pytest.raises(ConversionError, match="spare heads are not drawn of transposed layers"):
        Scene.of("0", model.get_submodule("0"), torch.rand(1, 3, 4, 5), lambda _: (0, 0))  # type: ignore[arg-type]


def test_the_theory_s_pictures_are_current_and_all_shown() -> None:
    drawn = theory_pictures()
    kept = {path.name: path.read_bytes() for path in (DOCS / "pictures").iterdir()}
    assert kept.keys() == drawn.keys(), "run make pictures"
    assert [name for name in drawn if drawn[name] != kept[name]] == [], "run make pictures"
    links = re.findall(r"!\[[^]]+\]\(pictures/([^)]+)\)", (DOCS / "theory.md").read_text(encoding="utf-8"))
    assert sorted(links) == sorted(drawn)


# Images


def test_a_picture_has_the_same_values_for_every_command(tmp_path: Path) -> None:
    picture = Image.new("RGB", (5, 4), (255, 0, 51))
    picture.save(tmp_path / "a.png")
    wanted = torch.tensor([1.0, -1.0, 51 / 127.5 - 1]).view(3, 1, 1).expand(3, 4, 5)
    subject, pair = (
        Subject(nn.Conv2d(3, 1, 1), Report((), ())),
        Pair(nn.Conv2d(3, 1, 1), attention_from_conv(nn.Conv2d(3, 1, 1))),
    )
    assert torch.equal(choose_inputs(pair, InputOptions(tmp_path)).batches[0][0], wanted)
    assert torch.equal(view_image(subject, View(image=tmp_path / "a.png"))[0], wanted)
    normalization = Normalization((0.5, 0.25, 0.2), (0.25, 0.5, 1.0))
    normalized = view_image(subject, View(image=tmp_path / "a.png", normalization=normalization))
    assert torch.equal(normalized[0], normalization(wanted))
    with pytest.raises(OptionError, match="mean and std are for an image"):
        view_image(subject, View(normalization=normalization))


def test_a_picture_has_the_channels_that_the_network_takes_whatever_its_first_layer_sees(tmp_path: Path) -> None:
    subject = Subject(nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(12, 2, 3)), Report((), ()))
    Image.new("RGB", (12, 8)).save(tmp_path / "a.png")
    assert view_image(subject, View(image=tmp_path / "a.png")).shape == (1, 3, 8, 12)
    assert view_image(subject, View(size=Size(10, 14))).shape == (1, 3, 10, 14)


# The command


@pytest.fixture
def show(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs ``conv2attn show`` on a converted network."""
    model, report = convert_model(load_example("plain"))
    folder = tmp_path_factory.mktemp("beside") / "converted"
    save_converted(model, folder, report=report)
    return partial(run, "show", folder, "--arch", "conv2attn.convert.examples.networks:plain_cnn")


def test_a_network_that_takes_one_size_is_shown_an_image_of_that_size(tmp_path: Path) -> None:
    code = tmp_path / "net.py"
    code.write_text(
        "from torch import nn\n"
        "def net():\n"
        "    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 6 * 5, 3))\n",
        encoding="utf-8",
    )
    model, _ = convert_model(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 6 * 5, 3)))
    preprocessing = Preprocessing(Normalization((0.5,), (0.25,)), channels=1, size=Size(8, 7))
    save_converted(model, tmp_path / "X", architecture=Architecture(f"{code}:net"), preprocessing=preprocessing)
    out = tmp_path / "x.svg"
    assert exit_code("show", tmp_path / "X", "--out", out, "--trust") == 0
    assert exit_code("show", tmp_path / "X", "--out", out, "--trust", "--force", "--size", "9x9") == 3


def test_a_network_that_takes_no_image_has_a_page_without_values_and_no_picture(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "class Two(nn.Module):\n"
        "    def __init__(self): super().__init__(); self.conv = nn.Conv2d(3, 2, (2, 3))\n"
        "    def forward(self, left, right): return self.conv(left + right)\n",
        encoding="utf-8",
    )
    torch.save({"conv.weight": torch.ones(2, 3, 2, 3), "conv.bias": torch.ones(2)}, tmp_path / "w.pth")
    for form, code in (("html", 0), ("png", 3)):
        made = tmp_path / f"x.{form}"
        assert exit_code("show", tmp_path / "w.pth", "--arch", f"{tmp_path / 'net.py'}:Two", "--out", made) == code
        assert made.exists() is (code == 0)
    assert "missing 1 required positional argument" in (tmp_path / "x.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("form", ["png", "html"])
def test_show_writes_one_file(form: str, show: Run) -> None:
    chosen = ("--layer", "3", "--alpha", "2", "--query", "5,6")
    assert show("--out", f"x.{form}", *chosen) == (0, f"Wrote x.{form}\n", "")
    assert [path.name for path in Path().iterdir()] == [f"x.{form}"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--out", "x.png", "--query", "64,0"), 2, "outside the image, which has 64x64 pixels"),
        (("--out", "x.png", "--size", "1x1"), 3, "does not run on an image of 3x1x1"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_sentence(
    arguments: tuple[str, ...], code: int, said: str, show: Run
) -> None:
    found, out, err = show(*arguments)
    assert (found, out) == (code, ""), err
    assert said in " ".join(err.split())
    assert list(Path().iterdir()) == []


def test_an_error_is_not_drawn_for_learned_scores() -> None:
    layer = attention_from_conv(nn.Conv2d(1, 1, 3))
    layer.set_axis_scores(torch.zeros(9, 19), torch.zeros(9, 19))
    shown = [Scene("learned", layer, torch.zeros(1, 1, 9, 9), (3, 3))]
    assert drawn(shown, "maps", "png").startswith(FORMS["png"])
    with pytest.raises(ConversionError, match="learned"):
        drawn(shown, "error", "png")
