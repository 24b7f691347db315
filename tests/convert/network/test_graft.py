"""A grafted network is its CNN until training changes that, keeps the CNN's names, and gives the CNN back."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import conv2attn as c2a
from conv2attn.convert import certify_data, certify_report
from conv2attn.convert.errors import MemoryLimitError
from conv2attn.convert.export.multihead import multihead_from_attention
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.opening import Opening
from conv2attn.convert.layer.layer import SelfAttention
from conv2attn.convert.network.report import Report
from conv2attn.learn import parameter_groups
from tests.bits import same_bits
from tests.small_models import Net, with_trained_heads

KINDS = [{}, {"beside": True}, {"heads": 3, "positions": True}, {"beside": True, "positions": True, "key_dim": 5}]


def images(batch: int = 3, **options: Any) -> Tensor:
    return torch.randn(batch, 3, 24, 22, generator=torch.Generator().manual_seed(4)).to(**options)


def layer_of(model: nn.Module) -> SelfAttention:
    (layer,) = {module for module in model.modules() if isinstance(module, SelfAttention)}
    return layer


def check_same_step(cnn: nn.Module, other: nn.Module, x: Tensor) -> None:
    """Asserts that outputs, gradients of the CNN's parameters, and buffers after it are the same bits."""
    outputs = []
    for model in (cnn, other):
        model.zero_grad()
        outputs.append(model(x))
        outputs[-1].float().square().sum().backward()
    assert same_bits(*outputs)
    assert outputs[0].stride() == outputs[1].stride()
    grafted = dict(other.named_parameters())
    for name, parameter in cnn.named_parameters():
        assert parameter.grad is not None
        assert same_bits(parameter.grad, grafted[name].grad), name  # type: ignore[arg-type]
    state = other.state_dict()
    assert all(same_bits(value, state[key]) for key, value in cnn.state_dict().items())


@settings(max_examples=20)
@given(
    kind=st.sampled_from(KINDS),
    training=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    mixed=st.booleans(),
    memory=st.sampled_from([torch.contiguous_format, torch.channels_last]),
    size=st.sampled_from([(24, 22), (6, 5), (31, 40)]),
)
def test_step_0_is_the_cnn_bit_for_bit_also_at_another_size_than_the_example_s(
    kind: Any, training: bool, dtype: torch.dtype, mixed: bool, memory: torch.memory_format, size: tuple[int, int]
) -> None:
    cnn = Net().to(dtype).train(training)
    model = c2a.graft(cnn, where="mix", example=images().to(dtype), **kind).model
    x = torch.randn(3, 3, *size, dtype=dtype).contiguous(memory_format=memory)
    with torch.autocast("cpu", torch.bfloat16, enabled=mixed and dtype == torch.float32):
        check_same_step(cnn, model, x)
    assert model.training == training
    assert layer_of(model).spare_out.grad is not None
    assert with_trained_heads(model)(x).isfinite().all()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_only_the_chosen_layer_changes_its_class_and_every_key_keeps_its_value(kind: Any) -> None:
    cnn = Net()
    model, report = c2a.graft(cnn, where="mix", **kind)
    own = {name for name, module in model.named_modules() if type(module) is not type(cnn.get_submodule(name))}
    assert own == {"mix"}
    assert model.get_submodule("again") is model.get_submodule("mix")
    assert report.layers[0].names == ("mix", "again")
    keys = list(cnn.state_dict())
    assert [key for key in model.state_dict() if key in cnn.state_dict()] == keys
    missing, unexpected = cnn.load_state_dict(model.state_dict(), strict=False)
    assert missing == []
    assert all(key.startswith(("mix.", "again.")) for key in unexpected)
    names = [name for name, _ in model.named_parameters()]
    assert [name for name in names if "spare" not in name] == [name for name, _ in cnn.named_parameters()]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_cnns_file_loads_strictly_into_a_trained_graft_which_is_that_cnn_then(kind: Any) -> None:
    model, cnn, file = with_trained_heads(c2a.graft(Net(), where="mix", **kind).model), Net(), io.BytesIO()
    torch.save(cnn.state_dict(), file)
    for grafted in (torch.optim.swa_utils.AveragedModel(model).module, model):
        file.seek(0)
        with pytest.warns(UserWarning, match="no spare heads for mix"):
            grafted.load_state_dict(torch.load(file, weights_only=True), strict=True)
        check_same_step(copy.deepcopy(cnn), grafted, images())
    before = layer_of(with_trained_heads(model)).spare_out.clone()
    model.load_state_dict({"head.bias": torch.zeros(5)}, strict=False)  # of another layer alone
    assert torch.equal(layer_of(model).spare_out, before)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_ungraft_after_no_step_gives_the_cnn_back(kind: Any) -> None:
    cnn = Net()
    with pytest.raises(c2a.ConversionError, match="graft"):
        c2a.ungraft(cnn)
    bare, report = c2a.ungraft(c2a.graft(cnn, where="mix", **kind).model)
    assert [type(one) for one in bare.modules()] == [type(one) for one in cnn.modules()]
    check_same_step(cnn, bare, images())
    assert "nothing changes" in str(report)
    Net().load_state_dict(bare.state_dict())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_ungraft_of_trained_heads_waits_for_all_and_then_gives_the_cnn_that_was_trained(kind: Any) -> None:
    model = with_trained_heads(c2a.graft(Net(), where="mix", **kind).model).eval()
    same, report = c2a.ungraft(model)
    assert torch.equal(same(images()), model(images()))
    assert [each.name for each in report.kept] == ["mix"]
    bare, report = c2a.ungraft(model, all=True, data=[images()])
    expected = Net().eval()
    expected.load_state_dict(model.state_dict(), strict=False)
    assert torch.equal(bare(images()), expected(images()))
    assert report.change is not None
    assert report.change[0] > 0
    Net().load_state_dict(bare.state_dict())


def test_a_network_of_attention_stays_one_when_its_heads_are_taken_off() -> None:
    converted = c2a.convert_model(Net(), alpha=2.0).model
    model = c2a.graft(converted, where="mix").model
    assert torch.equal(model.eval()(images()), converted.eval()(images()))
    bare = c2a.ungraft(model).model
    assert isinstance(bare.get_submodule("mix"), SelfAttention)


def test_a_networks_own_initialisation_leaves_w_out_at_0() -> None:
    def init(module: nn.Module) -> None:
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.normal_(module.weight)
        if "Conv" in type(module).__name__ or "Linear" in type(module).__name__:
            nn.init.normal_(module.weight)  # type: ignore[arg-type]

    model = c2a.graft(Net(), where="mix").model.apply(init)
    assert layer_of(model).spare_heads_are_off()


def check_that_it_goes_on(cnn: nn.Module, before: torch.optim.Optimizer, model: nn.Module, after: Any) -> None:
    """Asserts that the next step changes the CNN's parameters as the CNN's own optimizer changes them."""
    for network, optimizer in ((cnn, before), (model, after)):
        network.zero_grad()
        network(images()).square().sum().backward()
        optimizer.step()
    state = model.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in cnn.state_dict().items())
    assert not layer_of(model).spare_heads_are_off()


@pytest.mark.parametrize(
    "build", [partial(torch.optim.Adam, lr=1e-3), partial(torch.optim.SGD, lr=0.1, momentum=0.9)], ids=str
)
@pytest.mark.parametrize("inplace", [False, True])
def test_an_optimizer_goes_on_with_its_state_from_before(build: Any, inplace: bool) -> None:
    cnn, other = Net(), Net()
    other.load_state_dict(cnn.state_dict())
    before, after = (build(list(network.parameters())) for network in (cnn, other))
    for network, optimizer in ((cnn, before), (other, after)):
        network(images()).square().sum().backward()
        optimizer.step()
    model = c2a.graft(other, where="mix", inplace=inplace).model
    new = layer_of(model).spare_parameters()
    if not inplace:
        state, own = copy.deepcopy(after.state_dict()), {id(parameter) for parameter in new}
        after = build([parameter for parameter in model.parameters() if id(parameter) not in own])
        after.load_state_dict(state)
    after.add_param_group({"params": new})
    check_that_it_goes_on(cnn, before, model, after)


def test_groups_of_parameters_go_on_with_their_state_from_before() -> None:
    cnn = Net()
    before = torch.optim.AdamW(parameter_groups(cnn, 1e-3, 0.01))
    cnn(images()).sum().backward()
    before.step()
    model = c2a.graft(cnn, where="mix", positions=True).model
    groups = parameter_groups(model, 1e-3, 0.01, spare_lr=1e-2)
    after = torch.optim.AdamW(groups[: len(before.param_groups)])
    after.load_state_dict(copy.deepcopy(before.state_dict()))  # else both have the very tensors
    for group in groups[len(before.param_groups) :]:
        after.add_param_group(group)
    assert sum(len(group["params"]) for group in after.param_groups) == len(list(model.parameters()))
    check_that_it_goes_on(cnn, before, model, after)


def test_an_optimizer_over_all_parameters_at_once_refuses_the_state_from_before() -> None:
    """Its numbers would be those of other parameters."""
    before = torch.optim.Adam(Net().parameters())
    after = torch.optim.Adam(c2a.graft(Net(), where="mix").model.parameters())
    with pytest.raises(ValueError, match="parameter group"):
        after.load_state_dict(before.state_dict())


def test_spare_heads_have_groups_of_their_own_and_their_positions_do_not_decay() -> None:
    model = c2a.graft(Net(), where="mix", positions=True).model
    named = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = parameter_groups(model, 1e-3, 0.01, spare_lr=1e-2)
    found = [(group["lr"], group["weight_decay"], {named[id(p)] for p in group["params"]}) for group in groups]
    assert found[-3] == (1e-2, 0.01, {f"mix.spare_{name}" for name in ("query", "key", "value", "out")})
    assert found[-2] == (1e-2, 0.0, {"mix.spare_query_bias"})
    assert found[-1] == (1e-2, 0.0, {"mix.spare_position"})
    plain = [set(map(id, group["params"])) for group in parameter_groups(model, 1e-3, 0.01)]
    assert plain == [set(map(id, group["params"])) for group in groups]


def test_starts_follow_the_seed_and_use_no_random_numbers() -> None:
    starts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        starts.append(layer_of(c2a.graft(Net(), where="mix").model).spare_query)
        torch.manual_seed(seed)
        Net()
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])
    cnn = Net()
    state = torch.get_rng_state()
    c2a.graft(cnn, where="mix")
    assert torch.equal(torch.get_rng_state(), state)


def test_auto_takes_the_last_convolution_that_sees_enough_pixels() -> None:
    auto = c2a.graft(Net(), example=images(1)).report
    assert [each.name for each in auto.layers] == ["mix"]
    assert auto.layers[0].size == (12, 11)
    large = c2a.graft(Net(), example=torch.randn(1, 3, 40, 40)).report  # 1,600 pixels in the image, 400 behind the stem
    assert large.layers[0].size == (20, 20)
    stem = c2a.graft(Net(), example=torch.randn(1, 3, 12, 10)).report  # 30 pixels behind the stem
    assert [each.name for each in stem.layers] == ["stem.0"]
    tiny = c2a.graft(Net(), example=torch.randn(1, 3, 4, 4)).report
    assert [each.name for each in tiny.layers] == ["stem.0"]
    assert "no layer sees 100 to 1,600 pixels on the example; stem.0 comes nearest, with 16" in str(tiny)
    blind = c2a.graft(Net()).report
    assert [each.name for each in blind.layers] == ["mix"]
    assert "without an example" in str(blind)
    assert [each.name for each in c2a.graft(Net(), where="last").report.layers] == ["mix"]
    chosen = c2a.graft(Net(), filter_fn=lambda _, name: name.startswith("stem")).report
    assert [each.name for each in chosen.layers] == ["stem.0"]
    assert [each.name for each in c2a.graft(Net(), where=["stem.*", "point"]).report.layers] == ["stem.0", "point"]


def test_a_large_map_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="6,400 pixels look at as many"):
        report = c2a.graft(Net(), where="stem.0", example=torch.randn(1, 3, 80, 80)).report
    assert "memory-efficient" in str(report)


class Decoder(nn.Module):
    """One convolution of each kind that spare heads cannot have."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 4, 3)
        self.idle = nn.Conv2d(3, 4, 3)
        self.pooled = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.pooled(self.up(x).mean((2, 3), keepdim=True))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (nn.Linear(2, 2), {"heads": 0}, ["heads", "no convolution"]),
        (Net(), {"where": ["mix", "nose", "ear*"]}, ["no layer matches 'nose', 'ear*'"]),
        (Net(), {"heads": 0, "key_dim": -1, "value_dim": 1.5}, ["heads", "key_dim", "value_dim"]),
        (Net(), {"value_dim": 0, "where": ["nose", "ear"]}, ["value_dim", "no layer matches 'nose', 'ear'"]),
        (Net(), {"example": torch.randn(1, 2, 24, 24)}, ["does not run on the example"]),
        (Net(), {"filter_fn": lambda *_: False}, ["filter_fn leaves none"]),
        (Net(), {"filter_fn": 3}, ["filter_fn"]),
        (Net(), {"where": 3}, ["where"]),
        (Decoder(), {"where": "*", "beside": True, "example": torch.randn(1, 3, 9, 9)}, ["up", "idle", "pooled"]),
        (c2a.graft(Net(), where="mix").model, {"where": "mix"}, ["mix", "already"]),
    ],
)
def test_bad_input_is_refused_in_one_sentence_and_nothing_changes(model: Any, options: Any, words: list[str]) -> None:
    before = copy.deepcopy(model)
    with pytest.raises(c2a.ConversionError) as refused:
        c2a.graft(model, **{"inplace": True, **options})
    assert all(word in str(refused.value) for word in words)
    assert "\n" not in str(refused.value)
    assert [type(one) for one in model.modules()] == [type(one) for one in before.modules()]
    assert list(model.state_dict()) == list(before.state_dict())


class Plain(nn.Sequential):
    """Two convolutions, of which every certificate knows."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 3, padding=1))


PLAIN_IMAGE = torch.randn(1, 2, 7, 6, generator=torch.Generator().manual_seed(3))
DESCRIBING: dict[str, Callable[[nn.Module], object]] = {
    "certify": lambda model: c2a.certify(layer_of(model), input_range=(-1, 1)),
    "certify_data": lambda model: certify_data(layer_of(model), [torch.randn(2, 4, 7, 6)]),
    "alpha_for": lambda model: c2a.alpha_for(1e-3, layer_of(model), (-1, 1)),
    "certify_images": lambda model: c2a.certify_images(model, PLAIN_IMAGE),
    "compare_layers": lambda model: c2a.compare_layers(Plain(), model, [PLAIN_IMAGE]),
    "conv_from_attention": lambda model: c2a.conv_from_attention(layer_of(model)),
    "restore_model": c2a.restore_model,
    "freeze": lambda model: c2a.freeze(model, tolerance=0.1).model,
    "multihead": lambda model: multihead_from_attention(layer_of(model), size=(7, 6)),
}


@pytest.mark.parametrize("name", DESCRIBING)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_describes_a_layer_by_its_taps_names_ungraft_once_heads_were_trained(name: str, kind: Any) -> None:
    model = c2a.graft(Plain(), where="2", **kind).model.eval()
    found = DESCRIBING[name](model)
    assert found is not None
    assert not isinstance(found, nn.Module) or not any(isinstance(each, SelfAttention) for each in found.modules())
    with pytest.raises(c2a.ConversionError, match="ungraft"):
        DESCRIBING[name](with_trained_heads(model))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_bound_of_a_network_never_leaves_trained_heads_out(kind: Any) -> None:
    model = c2a.graft(Plain(), where="2", **kind).model.eval()
    assert c2a.certify_network(model, input_range=(-1, 1), size=(7, 6)).bound is not None
    certificate = c2a.certify_network(with_trained_heads(model), input_range=(-1, 1), size=(7, 6))
    assert certificate.bound is None
    assert "ungraft" in certificate.unbounded[0].reason
    (layer,) = certify_report(model, Report.of(model), size=(7, 6)).layers
    assert layer.certificate is None
    assert "ungraft" in str(layer.uncertified)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("is_trained", [False, True])
def test_a_folder_keeps_spare_heads_and_tells_their_first_weights(kind: Any, is_trained: bool, tmp_path: Path) -> None:
    model = c2a.graft(Plain(), where="2", **kind).model.eval()
    start = [parameter.detach().clone() for parameter in layer_of(model).spare_parameters()]
    model = with_trained_heads(model) if is_trained else model
    c2a.save_converted(model, tmp_path / "folder")
    loaded = c2a.load_converted(tmp_path / "folder", architecture=Plain())
    assert torch.equal(loaded(PLAIN_IMAGE), model(PLAIN_IMAGE))
    assert layer_of(loaded).spare == layer_of(model).spare
    first = layer_of(loaded).with_first_spare_weights().spare_parameters()
    assert all(map(torch.equal, first, start))
    assert all(map(torch.equal, layer_of(loaded).spare_parameters(), layer_of(model).spare_parameters()))
    network = open_network(tmp_path / "folder")
    if is_trained:
        with pytest.raises(c2a.ConversionError, match="ungraft"):
            network.cnn_state()
    else:
        assert list(network.cnn_state()) == list(Plain().state_dict())


def test_a_state_dict_alone_does_not_tell_the_number_of_heads_and_is_refused(tmp_path: Path) -> None:
    torch.save(c2a.graft(Plain(), where="2").model.state_dict(), tmp_path / "state.pth")
    with pytest.raises(c2a.ConversionError, match="graft"):
        open_network(tmp_path / "state.pth", Opening(architecture=Plain())).attention()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_onnx_file_of_a_graft_is_the_cnn_s_and_trained_heads_are_written_by_torch(kind: Any, tmp_path: Path) -> None:
    cnn = Plain().eval()
    model = c2a.graft(cnn, where="2", **kind).model
    c2a.export_onnx(model, tmp_path / "cnn.onnx", size=(7, 6))
    c2a.assert_same(cnn, tmp_path / "cnn.onnx", [PLAIN_IMAGE])
    with pytest.raises(c2a.ConversionError, match="ungraft"):
        c2a.export_onnx(with_trained_heads(model), tmp_path / "graft.onnx", size=(7, 6))
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(model, (PLAIN_IMAGE,), tmp_path / "graft.onnx", dynamo=True, verbose=False)
    c2a.assert_same(model, tmp_path / "graft.onnx", [PLAIN_IMAGE])
    assert not torch.equal(model(PLAIN_IMAGE), cnn(PLAIN_IMAGE))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("is_trained", [False, True])
def test_an_exported_graft_computes_what_it_computes_in_eager_mode(kind: Any, is_trained: bool) -> None:
    model = c2a.graft(Net().eval(), where="mix", **kind).model
    model = with_trained_heads(model) if is_trained else model
    program = torch.export.export(model, (images(),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    with torch.no_grad():
        assert torch.equal(torch.export.load(file).module()(images(5)), model(images(5)))


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "kinds"), [("aot_eager", KINDS), ("inductor", KINDS[2:])])
def test_a_compiled_graft_is_the_cnn_at_0_and_itself_up_to_rounding_once_it_was_trained(
    backend: str, kinds: Any
) -> None:
    for kind in kinds:
        cnn = Net().eval()
        model = c2a.graft(cnn, where="mix", **kind).model
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = torch.compile(model, fullgraph=True, backend=backend)
            with torch.no_grad():
                assert torch.equal(compiled(images()), torch.compile(cnn, backend=backend)(images()))
                compiled_again = torch.compile(with_trained_heads(model), fullgraph=True, backend=backend)
            c2a.assert_same(model, compiled_again, [images()])
        assert not torch.equal(model(images()), cnn(images()))


def test_second_derivatives_and_forward_mode_go_through_attention_written_out() -> None:
    layer = layer_of(with_trained_heads(c2a.graft(nn.Sequential(nn.Conv2d(2, 3, 2)), where="0").model)).double()
    x = torch.randn(1, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings(action="ignore"):  # torch's, of its own scripts
        torch.autograd.gradgradcheck(layer, (x,))
        slope = torch.func.jvp(layer, (x.detach(),), (x.detach(),))[1]
    (pulled,) = torch.autograd.grad((layer(x) * slope).sum(), x)
    torch.testing.assert_close((pulled * x).sum(), slope.square().sum())


def test_heads_beyond_the_memory_of_the_machine_are_refused_and_nothing_is_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cnn = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1)).eval()
    for example in (None, torch.zeros(1, 3, 9, 8)):
        with pytest.raises(MemoryLimitError, match="0: spare heads"):
            c2a.graft(cnn, heads=2**31 - 1, inplace=True, example=example)
    assert type(cnn[0]) is nn.Conv2d
    monkeypatch.setattr("conv2attn.convert.arguments.machine_memory", lambda: 10.0**6)
    c2a.graft(cnn, heads=8)
    with pytest.raises(MemoryLimitError, match="at least"):
        c2a.graft(cnn, heads=100_000)
