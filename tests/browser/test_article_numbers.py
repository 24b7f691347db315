"""Every number of the article's scenes is the library's, for layers and images that a reader brings."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from playwright.sync_api import Page
from safetensors.torch import load_file
from torch import Tensor, nn

from conv2attn.convert import SelfAttention2d, attention_from_conv, convert_model
from conv2attn.convert.arguments import Size
from conv2attn.convert.bounds.tail import absolute_products, tail_fraction
from conv2attn.convert.files.folder import save_converted
from conv2attn.convert.heads.encoding import grid_points, head_vectors, positional_scores, relative_encoding
from conv2attn.convert.layer.spare import SpareHeads
from conv2attn.show.article.write import make_article
from tests.browser.conftest import Open

pytestmark = pytest.mark.browser

AGREEMENT = 1e-6
DATA = Path(__file__).parents[2] / "show" / "article" / "static" / "data.safetensors"
CHANNEL = 1
GREY = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)
LAYERS = {
    "stride 2": lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1),
    "dilation 2": lambda: nn.Conv2d(1, 2, 3, dilation=2, padding="same", padding_mode="replicate"),
    "even kernel": lambda: nn.Conv2d(4, 2, (2, 4), padding=(1, 2), padding_mode="reflect", bias=False),
}
SIZES = {"wide": (13, 22), "tall": (24, 9), "square": (16, 16)}
ALPHAS = 0.25, 2.0, 16.0


@dataclass(frozen=True)
class Case:
    """A page that shows a layer before an image, and the same layer in double precision.

    Attributes:
        page: The page.
        conv: A convolution with the one output channel that is shown, over the planes that the page shows.
        x: The planes, [1, planes, rows, columns].
        query: An output pixel.
    """

    page: Page
    conv: nn.Conv2d
    x: Tensor
    query: tuple[int, int]

    def attention(self, alpha: float, engine: str = "literal") -> SelfAttention2d:
        """The layer as attention."""
        layer = attention_from_conv(self.conv, alpha=alpha, engine=engine)
        assert isinstance(layer, SelfAttention2d)
        return layer

    def numbers(self, scene: str, **state: float | str | list[float]) -> dict[str, Any]:
        """The numbers of a scene in a state."""
        return numbers_of(self.page, scene, state)


def numbers_of(page: Page, scene: str, state: Mapping[str, float | str | list[float]]) -> dict[str, Any]:
    """The numbers of a scene in a state."""
    found: dict[str, Any] = page.evaluate(
        """([scene, state]) => { article.state.set(state);
             const plain = (_, value) => ArrayBuffer.isView(value) ? [...value] : value;
             return JSON.parse(JSON.stringify(article.scenes[scene].numbers(), plain)); }""",
        [scene, {f"{scene}.{name}": value for name, value in state.items()}],
    )
    return found


def shown_conv(conv: nn.Conv2d) -> nn.Conv2d:
    """The output channel that the page shows, over planes: input channel c reads plane c modulo 3."""
    planes = 1 if conv.in_channels == 1 else 3
    weight = torch.zeros(1, planes, *conv.kernel_size, dtype=torch.float64)
    for channel in range(conv.in_channels):
        weight[0, channel % planes] += conv.weight[CHANNEL, channel].detach().double()
    one = nn.Conv2d(
        planes,
        1,
        conv.kernel_size,  # type: ignore[arg-type]
        stride=conv.stride,  # type: ignore[arg-type]
        dilation=conv.dilation,  # type: ignore[arg-type]
        padding=conv.padding,  # type: ignore[arg-type]
        padding_mode=conv.padding_mode,
        bias=conv.bias is not None,
        dtype=torch.float64,
    )
    one.weight = nn.Parameter(weight)
    if conv.bias is not None:
        one.bias = nn.Parameter(conv.bias[CHANNEL : CHANNEL + 1].detach().double())
    return one.requires_grad_(False)


@pytest.fixture(params=[(layer, size) for layer in LAYERS for size in SIZES], ids=" on ".join)
def case(request: pytest.FixtureRequest, open_html: Open, tmp_path: Path) -> Case:
    """A page whose reader gave it a converted folder and a picture, by the page's own inputs."""
    kind, size = request.param
    conv, rows_columns = LAYERS[kind](), SIZES[size]
    save_converted(convert_model(nn.Sequential(deepcopy(conv)).eval()).model, tmp_path / "folder")
    rgb = torch.randint(256, (*rows_columns, 3), dtype=torch.uint8)
    picture = io.BytesIO()
    Image.fromarray(rgb.numpy()).save(picture, "PNG")
    page = open_html(make_article(), reduced_motion="reduce")
    page.set_input_files("#own-network", [tmp_path / "folder" / name for name in ("config.json", "model.safetensors")])
    page.get_by_text("1 convolution found").wait_for()
    page.set_input_files("#own-image", {"name": "mine.png", "mimeType": "image/png", "buffer": picture.getvalue()})
    page.get_by_text("mine.png: shown with").wait_for()
    page.evaluate("channel => article.state.set({ channel })", CHANNEL)
    one, pixels = shown_conv(conv), rgb.double().permute(2, 0, 1) / 255
    x = (pixels if one.in_channels == 3 else (GREY[:, None, None] * pixels).sum(0, keepdim=True)).unsqueeze(0)
    rows, columns = one(x).shape[-2:]
    query = int(torch.randint(rows, ())), int(torch.randint(columns, ()))
    page.evaluate("query => article.state.set({ query, 'border.query': query })", list(query))
    return Case(page, one, x, query)


def assert_close(found: object, expected: Tensor) -> None:
    given = torch.tensor(found, dtype=torch.float64).reshape(expected.shape)
    assert float((given - expected.detach().double()).abs().max()) <= AGREEMENT


def test_the_sum_s_terms_are_the_convolution_s(case: Case) -> None:
    found, expected = case.numbers("sum"), case.conv(case.x)[0, 0]
    assert_close(found["output"], expected)
    assert_close(found["sum"], expected[case.query])
    assert_close(sum(term["product"] for term in found["terms"]) + found["bias"], expected[case.query])
    taps = case.conv.weight[0].flatten(1).T
    assert_close([term["tap"] for term in found["terms"]], taps)


def test_a_head_s_vector_and_scores_are_the_library_s(case: Case) -> None:
    for alpha, center in ((0.25, [1.5, -2.0]), (3.0, [0.0, 5.25])):
        found = case.numbers("head", alpha=alpha, at=center)
        vector = head_vectors(torch.tensor([alpha], dtype=torch.float64), torch.tensor([center], dtype=torch.float64))
        assert_close(found["vector"], vector[0])
        offsets = torch.arange(-6, 7, dtype=torch.float64)
        scores = positional_scores(relative_encoding(grid_points(offsets, offsets)).unsqueeze(0), vector)
        assert_close(found["scores"], scores.view(13, 13))


@pytest.mark.parametrize("off", [(), (0, 3)])
def test_nine_heads_look_and_add_as_literal_attention_does(off: tuple[int, ...], case: Case) -> None:
    weight = case.conv.weight.detach().flatten(2)
    weight[:, :, list(off)] = 0
    for alpha in ALPHAS:
        found, layer = case.numbers("nine", alpha=alpha, off=",".join(map(str, off))), case.attention(alpha)
        expected = layer(case.x)[0, 0]
        assert_close(found["output"], expected)
        assert_close(found["sum"], expected[case.query])
        maps = layer.attention_probabilities(Size(*case.x.shape[-2:]), queries=[case.query])[:, 0]
        for head, attention in enumerate(found["attentions"]):
            outer = torch.outer(*(torch.tensor(attention[axis], dtype=torch.float64) for axis in ("rows", "columns")))
            assert_close(outer.tolist(), maps[head])


@pytest.mark.parametrize(("bits", "dtype"), [(32, torch.float32), (64, torch.float64)])
def test_shares_and_what_is_left_of_them_are_those_of_floating_point(bits: int, dtype: torch.dtype, case: Case) -> None:
    grid = Size(129, 129)
    for alpha in (0.25, 1.0, 16.0, 103.0, 104.0, 745.0, 746.0):
        found = case.numbers("sharp", alpha=alpha, bits=bits)
        layer = attention_from_conv(nn.Conv2d(1, 1, 1, dtype=dtype), alpha=alpha)
        shares = layer.attention_probabilities(grid, queries=[(64, 64)])[0, 0]
        assert_close(found["shares"], shares[56:73, 56:73])
        if alpha > 1:  # a flatter one's last pixels round to 0 or not, as exp is computed
            assert found["count"] == int((shares > 0).sum())
        assert (found["neighbour"] > 0) == bool(shares[64, 65] > 0)


def test_without_padded_keys_outputs_are_those_of_a_softmax_over_the_image(case: Case) -> None:
    for alpha in (2.0, 32.0):
        layer, size = case.attention(alpha), Size(*case.x.shape[-2:])
        padded, (top, _), (left, _) = layer.spec.pad(case.x), *layer.spec.pads_at(size)
        inner = torch.zeros(padded.shape[-2:], dtype=torch.bool)
        inner[top : top + size.rows, left : left + size.columns] = True
        output = case.conv(case.x).shape[-2:]
        queries = [(row, column) for row in range(output[0]) for column in range(output[1])]
        shares = layer.attention_probabilities(size, queries=queries)
        shares = torch.where(inner, shares.double(), 0.0)
        shares = shares / shares.sum((-2, -1), keepdim=True)
        values = torch.einsum("ch,cyx->hyx", case.conv.weight[0].flatten(1), padded[0])
        bias = 0.0 if case.conv.bias is None else float(case.conv.bias[0])
        expected = torch.einsum("hqyx,hyx->q", shares, values) + bias
        found = case.numbers("border", alpha=alpha, inner=1)
        assert_close(found["output"], expected)
        errors = expected - case.attention(alpha)(case.x).flatten()
        assert_close(found["errors"], errors)
        if alpha == 32.0:  # where nothing lies between rounding and a wrong pixel
            assert found["wrong"] == int((errors.abs() > 1e-9).sum())
            assert (found["wrong"] > 0) == (case.conv.padding_mode != "replicate")  # whose padding is the nearest pixel
        assert case.numbers("border", alpha=alpha, inner=0)["wrong"] == 0


def test_the_blur_is_the_library_s_and_the_difference_stays_within_the_band(case: Case) -> None:
    padded = case.attention(1.0).spec.pad(case.x)[0].flatten(1)
    varies = padded.amax(1) - padded.amin(1)
    for alpha in (*ALPHAS, 100.0):
        found, layer = case.numbers("blur", alpha=alpha), case.attention(alpha)
        assert_close(found["heads"], layer(case.x)[0, 0])
        assert_close(found["second"], case.attention(alpha, "factored")(case.x)[0, 0])
        (scale,) = absolute_products(layer.values(), case.conv.weight, varies)
        assert_close(found["bound"], scale[0] * tail_fraction(alpha))
        assert found["same"] <= found["rounding"]
        assert found["apart"] <= found["bound"] + found["rounding"]
    assert all(point[1] <= point[2] for point in case.page.evaluate("article.scenes.blur.curve"))


@pytest.mark.fault
def test_a_page_that_swaps_rows_and_columns_is_found(case: Case) -> None:
    case.page.evaluate(
        """() => { const honest = queryPosition;
          queryPosition = (layer, query, axis) => honest(layer, axis === 0 ? [query[1], query[0]] : query, axis); }"""
    )
    expected = case.conv(case.x)[0, 0]
    found = case.numbers("sum")["sum"]  # None where the swapped query lies outside
    gap = math.inf if found is None else abs(found - float(expected[case.query]))
    assert gap > 1000 * AGREEMENT or case.query[0] == case.query[1]


# The spare head


def library_network(name: str) -> nn.Sequential:
    """One of the article's denoisers in double precision, up to its last convolution, made of its file's weights."""
    state = {key: value.double() for key, value in load_file(DATA).items() if key.startswith(f"{name}.")}
    layers: list[nn.Module] = []
    for number, stride in enumerate((1, 2, 2, 1, 1, 1)):
        weight, bias = (nn.Parameter(state[f"{name}.{number}.{part}"]) for part in ("weight", "bias"))
        outputs, inputs, side, _ = weight.shape
        conv = nn.Conv2d(inputs, outputs, side, stride=stride, padding=side // 2, dtype=torch.float64)
        conv.weight, conv.bias = weight, bias
        layer: nn.Module = conv
        if number == 3 and f"{name}.query" in state:
            layer = attention_from_conv(conv)
            assert isinstance(layer, SelfAttention2d)
            layer.add_spare_heads(SpareHeads(1, 16, 16))
            for part in ("query", "query_bias", "key", "value", "out"):
                getattr(layer, f"spare_{part}").data = state[f"{name}.{part}"]
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1], nn.PixelShuffle(4)).requires_grad_(False)


@pytest.mark.parametrize(("page_number", "kinds", "token"), [(1, 2, (4, 4)), (7, 2, (0, 11)), (3, 12, (8, 0))])
def test_the_spare_head_looks_and_cleans_as_the_library_s(
    page_number: int, kinds: int, token: tuple[int, int], open_html: Open
) -> None:
    page = open_html(make_article(), reduced_motion="reduce")
    found = numbers_of(page, "spare", {"page": page_number, "kinds": kinds, "token": list(token)})
    noisy = torch.tensor(found["noisy"], dtype=torch.float64).view(1, 1, 36, 48)
    for name, key in (("alone", "alone"), ("grafted", "grafted")):
        assert_close(found[key], library_network(name)(noisy).flatten())
    for name, key in (("start", "before"), ("grafted", "after")):
        network = library_network(name)
        maps = network[
            6
        ].attention_probabilities(  # type: ignore[operator]
            Size(9, 12), heads=[9], queries=[token], x=network[:6](noisy)
        )
        size = maps.shape[-2:]
        assert_close(found[key], maps[0, 0, 0, 1 : size[0] - 1, 1 : size[1] - 1].flatten())
    truth = torch.tensor(found["truth"], dtype=torch.float64)
    expected = 10 * math.log10(4 / float((library_network("grafted")(noisy).flatten() - truth).square().mean()))
    assert abs(found["decibels"][1] - expected) <= AGREEMENT
