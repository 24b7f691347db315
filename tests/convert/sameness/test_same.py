"""Honest changes are rounding; what cannot be judged is said in one sentence."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import helper
from torch import Tensor, nn

import conv2attn as c2a
from conv2attn.convert import ConversionError, convert_model
from conv2attn.convert.errors import InputError, OptionError
from conv2attn.convert.programs.noise import Precision
from conv2attn.convert.programs.program import Program
from conv2attn.convert.programs.walk import arguments_of
from conv2attn.convert.sameness.pairing import Pairs, Traced
from conv2attn.convert.sameness.same import STEPS, NotSameError, assert_same, compare, same
from conv2attn.convert.sameness.typical import FEW, RUNS, Scale, pooled, typical
from conv2attn.convert.sameness.unlike import unlike
from conv2attn.convert.sameness.verdict import THRESHOLD, rounded_up
from tests.convert.sameness.planted import SIZES, dense, mobile, rounded_once
from tests.devices import DEVICES
from tests.onnx_files import network as onnx_network
from tests.onnx_files import port, tensor

Way = Callable[[nn.Module], Any]
HONEST = ("same bits", "rounding")


def image(build: Callable[[], nn.Module]) -> Tensor:
    return torch.randn(2, *SIZES[build], generator=torch.Generator().manual_seed(6))


def channels_last(network: nn.Module) -> nn.Module:
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def own_loops(network: nn.Module) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        before = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)
        try:
            found: Tensor = network(x)
            return found
        finally:
            torch._C._set_mkldnn_enabled(before)

    return run


def threads(network: nn.Module) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        before = torch.get_num_threads()
        torch.set_num_threads(3 - min(before, 2))
        try:
            found: Tensor = network(x)
            return found
        finally:
            torch.set_num_threads(before)

    return run


def soft(network: nn.Module) -> nn.Module:
    return convert_model(network, alpha=30.0, skip_unsupported=True).model.eval()


@pytest.mark.parametrize("side", [0, 1])
def test_soft_attention_that_is_not_its_cnn_is_said_to_be_soft(side: int) -> None:
    torch.manual_seed(0)
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 2, 3)).eval()
    given = [cnn, convert_model(cnn, alpha=2.0).model]
    found = same(given[side], given[1 - side], torch.randn(1, 3, 8, 8))
    assert found.verdict == "not rounding"
    said = "is soft at 3 of its 3 attention layers, `0` with alpha 2: no convolution exactly"
    assert [said in note for note in found.notes if note.startswith("BA"[side])] == [True]
    assert not any("soft" in note for note in same(cnn, convert_model(cnn).model, torch.randn(1, 3, 8, 8)).notes)


def bfloat16(network: nn.Module) -> nn.Module:
    return network.bfloat16()


@pytest.mark.parametrize("way", [channels_last, own_loops, threads, soft, bfloat16], ids=lambda way: way.__name__)
@pytest.mark.parametrize("build", SIZES, ids=lambda build: build.__name__)
def test_an_honest_change_is_rounding(build: Callable[[], nn.Module], way: Way) -> None:
    found = same(build(), way(build()), image(build))
    assert found.verdict in HONEST
    assert found.exit_code == 0
    assert found.ratio <= THRESHOLD


@pytest.mark.parametrize("build", SIZES, ids=lambda build: build.__name__)
def test_bfloat16_on_both_sides_is_rounding_of_bfloat16(build: Callable[[], nn.Module]) -> None:
    found = same(build().bfloat16(), own_loops(build().bfloat16()), image(build))
    assert found.verdict in HONEST


def folded() -> tuple[nn.Module, nn.Module]:
    norm = nn.BatchNorm2d(6)
    network = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), norm, nn.ReLU(), nn.Conv2d(6, 4, 3)).eval()
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2.0)
    fused = torch.nn.utils.fuse_conv_bn_eval(copy.deepcopy(network[0]), norm)  # type: ignore[type-var]
    return network, nn.Sequential(fused, nn.ReLU(), copy.deepcopy(network[3])).eval()


@pytest.mark.fault
def test_a_fault_as_small_as_rounding_is_named_all_the_same() -> None:
    torch.manual_seed(0)
    cnn = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten()).eval()
    x, changed = torch.randn(2, 3, 9, 9), copy.deepcopy(cnn)
    with torch.no_grad():
        changed.get_parameter("2.weight")[:, 0] *= 1 + 3e-7
    found = same(cnn, changed, x)
    assert (found.verdict, found.exit_code) == ("rounding", 0)
    assert [place.name for place in found.where] == ["2"]
    assert "But the networks are not the same at `2` (convolution): 72 of 576 elements of weight" in found.sentence
    assert same(cnn, channels_last(copy.deepcopy(cnn)), x).where == ()


def test_a_folded_batch_norm_is_rounding() -> None:
    assert same(*folded(), torch.randn(2, 3, 9, 11)).verdict == "rounding"


@pytest.mark.fault
def test_a_fault_behind_a_folded_batch_norm_is_named_and_the_folding_is_not() -> None:
    network, other = folded()
    other[2].weight.data[1, 2, 0, 1] += 0.01  # type: ignore[index]
    found = same(network, other, torch.randn(2, 3, 9, 11))
    assert [place.name for place in found.where] == ["3"]
    assert "1 of 216 elements of weight differ, by 0.01 at most" in found.where[0].why


def test_permuted_channels_are_rounding() -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
    other, order = copy.deepcopy(network), torch.randperm(8)
    with torch.no_grad():
        other[0].weight.copy_(other[0].weight[order])  # type: ignore[operator,index]
        other[0].bias.copy_(other[0].bias[order])  # type: ignore[operator,index]
        other[2].weight.copy_(other[2].weight[:, order])  # type: ignore[operator,index]
    assert same(network, other, torch.randn(2, 3, 9, 11)).verdict == "rounding"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_network_is_rounding() -> None:
    assert same(dense(), torch.compile(dense()), image(dense)).verdict in HONEST


def test_a_program_is_the_network() -> None:
    network = dense()
    program = torch.export.export(network, (image(dense),))
    assert same(network, program, image(dense)).verdict == "same bits"
    assert same(lambda x: channels_last(network)(x), program, image(dense)).verdict in HONEST


def test_the_report_has_80_columns_and_is_plain_data() -> None:
    found = same(dense(), channels_last(dense()), image(dense))
    assert max(map(len, str(found).splitlines())) <= 80
    assert json.loads(json.dumps(found.to_dict()))["verdict"] == found.verdict
    assert len(found.table()) == 1 + len(found.outputs)
    assert found.worst is None or found.worst.difference <= found.worst.estimate


def test_beyond_every_order_of_a_small_network_s_sums_it_is_proved_that_no_order_explains_it() -> None:
    torch.manual_seed(0)
    one = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3), nn.Flatten()).eval()
    other = copy.deepcopy(one)
    with torch.no_grad():
        next(other.parameters()).mul_(1 + 1e-3)
    found = same(one, other, torch.randn(1, 3, 8, 8))
    assert found.worst is not None
    assert found.worst.bound is not None
    assert found.worst.estimate <= found.worst.bound * (1 + 1e-6) < found.worst.difference
    assert "which is proved" in " ".join(found.lines())


def test_the_worst_case_is_above_what_honest_changes_do() -> None:
    assert same(mobile(), own_loops(mobile()), image(mobile)).worst is None  # large, and the difference is rounding
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 8, 3)).eval()
    found = same(network, own_loops(network), torch.randn(2, 3, 12, 12))
    assert found.worst is not None
    assert found.worst.difference <= found.worst.estimate
    assert not found.worst.is_beyond


def test_changed_classes_and_ties_are_counted() -> None:
    network = mobile()
    tied = copy.deepcopy(network)
    head = tied[-1]  # type: ignore[index]
    assert isinstance(head, nn.Linear)
    head.weight.data[1] = head.weight.data[0]
    head.bias.data[1] = head.bias.data[0]
    head.weight.data[2:] = 0
    head.bias.data[2:] = -100
    found = same(tied, rounded_once(tied), image(mobile))
    assert found.changed is not None
    assert (found.changed.answers, found.changed.ties) == (2, 2)
    plain = same(network, rounded_once(network), image(mobile)).changed
    assert plain is not None
    assert (plain.changed, plain.ties) == (0, 0)


def test_a_large_largest_number_of_many_is_no_alarm() -> None:
    """Why one number's own few runs are no scale: 10^6 normal numbers, each beside its own six."""
    truth = torch.zeros(1, 1, 1000, 1000, dtype=torch.float64)
    scale = Scale.like(truth)
    runs = [torch.randn_like(truth) for _ in range(6)]
    for run in runs:
        scale.add(run, truth)
    honest = torch.randn_like(truth)
    own = float((honest.abs() / torch.stack(runs).square().mean(0).sqrt()).max())
    assert max(scale.ratios(honest)) < 1.3 < 10 < own
    assert pooled(truth).shape == (1, 10**6)


# What cannot be judged: a clear sentence each.


class Counting(nn.Module):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Tensor
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * 2


def linear() -> nn.Linear:
    torch.manual_seed(8)
    return nn.Linear(3, 4).eval()


X = torch.randn(5, 3, generator=torch.Generator().manual_seed(7))


def writing(x: Tensor) -> Tensor:
    found: Tensor = linear()(x)
    x.zero_()
    return found


def with_nan(x: Tensor) -> Tensor:
    found: Tensor = linear()(x).clone()
    found[1, 2] = torch.nan
    return found


def infinite(x: Tensor) -> Tensor:
    found: Tensor = linear()(x).clone()
    found[1, 2] = torch.inf
    return found


SENTENCES: dict[str, tuple[Any, Any, str]] = {
    "two black boxes": (
        lambda x: linear()(x) * 1.5,
        lambda x: linear()(x) * (1.5 + 1e-6),
        "Cannot say: neither side has a graph that says the truth: A is a callable without a graph",
    ),
    "no determinism": (
        linear(),
        lambda x: torch.rand(5, 4),
        "Cannot say: B is not deterministic: two runs",
    ),
    "no determinism, with NaN": (
        linear(),
        lambda x: torch.where(torch.rand(5, 4) < 0.5, torch.nan, 1.0),
        "Cannot say: B is not deterministic: two runs on the same inputs give NaN at other places.",
    ),
    "state": (Counting().eval(), linear(), "Cannot say: A changes while it runs: calls."),
    "shapes": (linear(), lambda x: linear()(x)[:, :3], "Not rounding: the output is [5, 4] in A and [5, 3] in B."),
    "outputs": (linear(), lambda x: (linear()(x), x), "Not rounding: A gives one output, B 2 outputs (0, 1)."),
    "NaN on one side": (linear(), with_nan, "Not rounding: A gives NaN at 0 and B at 1 of 20 places."),
    "NaN on both sides": (with_nan, with_nan, "Cannot say: both sides give NaN at the same 1 of 20 places."),
    "infinity": (linear(), infinite, "Not rounding: A is infinite at 0 and B at 1 of 20 places."),
}


@pytest.mark.parametrize("kind", SENTENCES)
def test_what_cannot_be_judged_is_said_in_a_sentence(kind: str) -> None:
    a, b, sentence = SENTENCES[kind]
    found = same(a, b, X)
    assert found.sentence.startswith(sentence)
    assert found.exit_code == (5 if sentence.startswith("Cannot") else 1)


def test_infinities_at_the_same_places_are_left_out() -> None:
    class Dividing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([1 / torch.zeros_like(x[:, :1]), x.exp()], 1)

    found = same(Dividing().eval(), lambda x: torch.cat([x[:, :1] * 0 + torch.inf, x.exp()], 1), X)
    assert found.verdict in HONEST


def test_an_empty_batch_cannot_be_judged() -> None:
    assert (
        same(linear(), linear(), X[:0]).sentence == "Cannot say: the outputs are empty, so there is nothing to compare."
    )


def test_a_side_that_writes_to_its_input_is_named() -> None:
    found = same(linear(), writing, X)
    assert found.verdict in HONEST
    assert found.notes == ("B writes to its inputs.",)


def test_the_mode_does_not_matter_where_no_module_reads_it() -> None:
    torch.manual_seed(2)
    layers = [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.GroupNorm(2, 4), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 2)]
    network = nn.Sequential(*layers).train()
    image = torch.randn(2, 3, 8, 8)
    assert same(network, copy.deepcopy(network).eval(), image).verdict == "same bits"
    assert same(network, channels_last(copy.deepcopy(network)), image).verdict in HONEST


def test_a_side_that_raises_is_told_with_its_error() -> None:
    def raising(x: Tensor) -> Tensor:
        raise KeyError("weights")

    with pytest.raises(InputError, match="B does not run on these inputs: KeyError: 'weights'"):
        same(linear(), raising, X)


def test_what_is_no_side_and_no_input_is_refused() -> None:
    with pytest.raises(OptionError, match="A must be a network, a program, a callable or a path; got an int"):
        same(3, linear(), X)
    with pytest.raises(OptionError, match=r"got the class Linear: pass Linear\(\)"):
        same(nn.Linear, linear(), X)
    with pytest.raises(OptionError, match="inputs must be a tensor"):
        same(linear(), linear(), "x")
    with pytest.raises(ConversionError, match="B gives no tensor, but NoneType"):
        same(linear(), lambda x: None, X)
    with pytest.raises(OptionError, match="dtype must be one of"):
        same(linear(), linear(), X, dtype=torch.int8)


class Several(nn.Module):
    """Two inputs, and a dictionary with integers among its outputs."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.layer, self.factor = linear(), factor

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        scores = self.layer(x + y * self.factor)
        return {"scores": scores, "all": [scores.argmax(1), scores.exp()], "text": "no tensor"}


@pytest.mark.parametrize("inputs", [[X, X.flip(0)], {"x": X, "y": X.flip(0)}], ids=["by place", "by name"])
def test_several_inputs_and_dictionaries_with_integers_are_compared(inputs: Any) -> None:
    a, b = Several().eval(), Several().eval()
    b.layer.weight.data += 1e-8
    assert same(a, b, inputs).verdict in HONEST
    found = same(a, Several(1.1).eval(), inputs)
    assert [output.name for output in found.outputs] == ["scores", "all.0", "all.1"]
    assert found.verdict == "not rounding"
    assert found.where[0].kind == "mul"


def test_names_pair_inputs_and_outputs_in_whatever_order() -> None:
    class Reordered(Several):
        def forward(self, x: Tensor, y: Tensor) -> dict[str, Any]:
            found = super().forward(x, y)
            return {"all": found["all"], "scores": found["scores"]}

    given = {"y": X.flip(0), "x": X}
    assert same(lambda **named: Reordered().eval()(**named), Several().eval(), given).verdict in HONEST
    assert same(Reordered().eval(), Several(1.1).eval(), given).where[0].kind == "mul"


@pytest.mark.fault
def test_one_class_that_noise_does_not_turn_is_not_rounding() -> None:
    class Answer(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.argmax(1)

    def other(x: Tensor) -> Tensor:
        found = x.argmax(1)
        found[0] = 2 - found[0]
        return found

    found = same(Answer().eval(), other, X)
    assert found.sentence.startswith("Not rounding: numbers differ by 2 where rounding changes nothing.")


def test_a_view_of_what_lies_otherwise_in_memory_is_taken() -> None:
    class Viewing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, padding=1).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.conv(x).permute(0, 2, 3, 1).softmax(3)
            return y.view(len(x), -1, 4) if y.is_contiguous() else y.reshape(len(x), -1, 4)

    pictures = torch.randn(2, 3, 5, 7).contiguous(memory_format=torch.channels_last)
    assert same(Viewing().eval(), Viewing().eval().double(), pictures).verdict == "not rounding"
    network = Viewing().eval()
    assert same(network, own_loops(network), pictures).verdict in HONEST


def test_complex_outputs_are_compared_as_pairs() -> None:
    class Spectrum(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = torch.fft.fft(x) * 2
            return found

    def other(x: Tensor) -> Tensor:
        found: Tensor = torch.fft.fft(2 * x.double()).to(torch.complex64)
        return found

    signal = torch.randn(3, 60)
    assert same(Spectrum().eval(), other, signal).verdict == "rounding"
    assert same(Spectrum().eval(), lambda x: other(x) * (1 + 1e-5j), signal).verdict == "not rounding"


def test_a_network_that_chooses_by_values_is_judged_by_the_choices_of_this_run(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Choosing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if float(x.abs().sum()) > 1 else x

    found = same(Choosing().eval(), lambda x: x * (2 + 1e-6), X)
    assert found.verdict == "not rounding"
    assert "A reads values (sum_1 (item)): what is said of it is of these inputs." in found.notes
    assert capfd.readouterr() == ("", "")


def test_chaos_cannot_be_judged() -> None:
    class Logistic(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(80):
                x = 3.99 * x * (1 - x)
            return x

    def other(x: Tensor) -> Tensor:
        for _ in range(80):
            x = 3.99 * (x - x * x)
        return x

    found = same(Logistic().eval(), other, torch.rand(8, 50))
    assert found.sentence == "Cannot say: rounding in the last bit already changes the outputs completely."


@pytest.mark.filterwarnings("ignore")
def test_a_quantised_side_is_said_and_its_step_explains_the_difference() -> None:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 6)).eval()
    quantised = torch.ao.quantization.quantize_dynamic(network, {nn.Linear}, torch.qint8)
    found = same(network, quantised, torch.randn(9, 40))
    assert (found.verdict, found.exit_code) == ("quantised", 1)
    assert found.steps is not None
    assert found.steps < THRESHOLD < found.ratio
    assert "B computes with 8-bit integers, whose steps explain the difference: it is " in found.sentence
    quantised[0].set_weight_bias(quantised[0].weight(), quantised[0].bias() + 1)
    assert "whose steps do not explain" in same(network, quantised, torch.randn(9, 40)).sentence


def test_assert_same_raises_the_report_and_allows_what_is_allowed() -> None:
    a, b = linear(), linear()
    assert_same(a, b, X)
    b.weight.data[0, 0] += 1
    with pytest.raises(NotSameError, match=r"Not rounding: the difference is .* times typical rounding\. It begins at"):
        c2a.assert_same(a, b, X)
    with pytest.raises(AssertionError, match="Cannot say"):
        c2a.assert_same(Counting().eval(), linear(), X)
    c2a.assert_same(Counting().eval(), linear(), X, allow=["cannot say"])


@pytest.mark.fault
def test_weights_of_an_operation_with_many_results_are_counted_once() -> None:
    torch.manual_seed(2)
    one, x = nn.LSTM(3, 4, batch_first=True).eval(), torch.randn(2, 5, 3)
    other = copy.deepcopy(one)
    other.get_parameter("weight_hh_l0").data[1, 2] += 0.1
    (place,) = same(one, other, x).where
    assert (place.name, place.why) == ("lstm", "1 of 64 elements of params[1] differ, by 0.1 at most")


def written(path: Path, factor: float = 1.0) -> Path:
    layer = linear()
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)]
    tensors = [tensor("w", layer.weight * factor), tensor("b", layer.bias)]
    onnx.save(onnx_network(nodes, tensors, inputs=[port("x", ["n", 3])], outputs=[port("y", ["n", 4])]), path)
    return path


def test_an_onnx_file_is_held_against_a_network(tmp_path: Path) -> None:
    assert same(linear(), written(tmp_path / "a.onnx"), X).verdict in HONEST
    found = same(written(tmp_path / "b.onnx", 1.001), linear(), X)
    assert found.verdict == "not rounding"
    assert "12 of 12 elements of weight differ, by " in found.sentence


def test_of_two_onnx_files_one_says_the_truth(tmp_path: Path) -> None:
    a, b = written(tmp_path / "a.onnx"), written(tmp_path / "b.onnx", 1.001)
    assert same(a, a, X).verdict == "same bits"
    assert "12 of 12 elements of weight differ" in same(a, b, X).sentence


def test_two_folders_are_opened(tmp_path: Path) -> None:
    torch.save(nn.Sequential(nn.Conv2d(3, 2, 3)), tmp_path / "a.pt")
    torch.save(nn.Sequential(nn.Conv2d(3, 2, 3)), tmp_path / "b.pt")
    found = same(str(tmp_path / "a.pt"), tmp_path / "b.pt", torch.randn(1, 3, 6, 6))
    assert found.where[0].name == "0"
    with pytest.raises(ConversionError, match="there is no file"):
        same(tmp_path / "missing.pt", linear(), X)


def test_a_narrower_side_is_held_to_its_own_precision_unless_one_is_given() -> None:
    found = same(dense(), dense().bfloat16(), image(dense))
    assert found.verdict == "rounding"
    assert same(dense(), dense().bfloat16(), image(dense), dtype=torch.float32).verdict == "not rounding"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_device_rounds_as_it_does(device: str, dtype: torch.dtype) -> None:
    """On a GPU with TF32, whose factors are rounded."""
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        network = mobile().to(device, dtype)
        found = same(network, channels_last(copy.deepcopy(network)), image(mobile).to(device))
        assert found.verdict in HONEST
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed


def test_a_setting_of_how_torch_computes_is_no_difference_of_the_networks() -> None:
    network = mobile()
    with torch.backends.cudnn.flags(enabled=False):
        without = Program.of_run(network, (image(mobile),))
    pairs = Pairs(Traced(Program.of_run(network, (image(mobile),))), Traced(without))
    assert any("cudnn_enabled" in arguments_of(node) for node in without.nodes)
    assert unlike(pairs) == {}


def test_a_report_s_columns_are_one_number_each_and_the_ratio_is_their_quotient() -> None:
    cnn = dense()
    for other in (channels_last(copy.deepcopy(cnn)), rounded_once(cnn)):
        found = same(cnn, other, image(dense))
        for row in found.outputs:
            assert row.difference == pytest.approx(row.ratio * row.scale)
            assert row.scale == pytest.approx(row.typical, rel=9)


def test_few_noisy_runs_are_enough_where_the_ratio_is_far_below_the_limit() -> None:
    x, steps = image(dense), list[int]()
    program = Program.of_run(dense(), (x,))
    for enough, runs in ((True, FEW), (False, RUNS)):
        (found,) = typical(program, (x,), {}, [Precision()], enough=lambda _, enough=enough: enough)  # type: ignore[misc]
        assert [scale.runs for scale in found.scales.values()] == [runs]
    both = typical(program, (x,), {}, [Precision(), Precision(torch.bfloat16)], enough=lambda _: True)
    assert [scale.runs for each in both for scale in each.scales.values()] == [RUNS // 2] * 2
    assert compare(dense(), rounded_once(dense()), x, progress=steps.append).verdict == "rounding"
    assert sum(steps) == STEPS


def test_after_a_verdict_the_report_says_what_to_do() -> None:
    cnn, x = dense(), image(dense)
    found = same(cnn, rounded_once(cnn), x)
    (output,) = found.outputs
    assert output.difference <= output.tolerance
    assert f"atol={rounded_up(output.tolerance)}" in found.lines()[1]
    wrong = copy.deepcopy(cnn)
    next(wrong.parameters()).data *= 1.01
    differs = same(cnn, wrong, x)
    assert differs.where[0].name in differs.lines()[1]
    for what in ("state", "no determinism", "two black boxes", "NaN on both sides"):
        a, b, _ = SENTENCES[what]
        assert same(a, b, X).lines()[1].startswith("To judge it, ")
