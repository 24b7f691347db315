"""Planted faults are told from rounding, and named by operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import nn

from conv2attn.convert.programs import noise
from conv2attn.convert.sameness.same import Reference, same
from conv2attn.convert.sameness.verdict import INNER, THRESHOLD
from tests.convert.sameness.planted import FAULTS, SIZES, Fault, Hiding, attending, mobile, opaque, sound


@cache
def reference(build: Callable[[], nn.Module]) -> Reference:
    """``same`` with a sound network, whose graph and truth are computed once."""
    network, _, image = sound(build)
    return Reference(network, image)


@pytest.mark.fault
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_not_rounding_and_is_named(fault: Fault) -> None:
    found = reference(fault.build).compare(fault.pair()[1])
    assert found.verdict == "not rounding"
    assert found.where[0].name == fault.place
    assert fault.says in found.where[0].why
    assert found.where[0].why in " ".join(str(found).split())


@pytest.mark.fault
def test_a_fault_is_found_in_a_black_box_too() -> None:
    network, faulty, image = FAULTS[0].pair()
    found = same(network, opaque(faulty.module()), image)
    assert found.verdict == "not rounding"
    assert found.where == ()
    assert "Only outputs could be compared: B is a callable without a graph" in found.sentence


@pytest.mark.fault
def test_one_wrong_operation_does_not_blame_its_successors() -> None:
    network, faulty, image = next(fault for fault in FAULTS if fault.kind == "one weight").pair()
    assert [place.name for place in same(network, faulty, image).where] == ["wide"]


@pytest.mark.fault
def test_every_wrong_operation_is_named() -> None:
    network, faulty = mobile(), mobile()
    norms = [name for name, module in faulty.named_modules() if isinstance(module, nn.BatchNorm2d)]
    for name in norms:
        faulty.get_submodule(name).eps = 1e-3  # type: ignore[assignment]
    found = same(network, faulty, torch.randn(2, *SIZES[mobile]))
    assert [place.name for place in found.where] == norms
    assert f"{len(norms) - 1} more operations differ" in found.sentence
    assert found.lines().count(f"And {len(norms) - 8} more.") == 1


@pytest.mark.fault
def test_one_wrong_number_among_many_is_found_by_the_largest() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)).eval()
    image = torch.randn(1, 3, 128, 128)

    def odd(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = network(x).clone()
        found[0, 2, 0, 5] += 4e-5
        return found

    (output,) = same(network, odd, image).outputs
    assert output.rms < THRESHOLD < output.largest
    assert same(network, odd, image).verdict == "not rounding"


@pytest.mark.fault
def test_modules_of_a_network_without_a_graph_are_compared_where_names_agree() -> None:
    (network, _, image), faulty = sound(attending), attending()
    faulty.get_submodule("before").eps = 1e-5  # type: ignore[assignment]

    class Branching(type(faulty)):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = super().forward(x).clone()
            found += torch.rand(1) * 0  # random numbers, of which the next run has others
            return found

    faulty.__class__ = Branching
    for sides, makes, other in (((network, faulty), "A makes", "B's"), ((faulty, network), "B makes", "A's")):
        found = same(sides[0], sides[1], image)
        assert found.verdict == "not rounding"
        assert found.where[0].name == "before"
        assert makes in found.where[0].why
        assert f"from {other}" in found.where[0].why


@pytest.mark.fault
@pytest.mark.parametrize("build", SIZES, ids=lambda build: build.__name__)
def test_noise_a_thirtieth_as_large_makes_an_honest_pair_fail(
    build: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = torch.randn(2, *SIZES[build], generator=torch.Generator().manual_seed(5))
    assert same(build(), build().bfloat16(), image).verdict == "rounding"
    normal = noise.Noise._normal
    monkeypatch.setattr(noise.Noise, "_normal", lambda self, like: normal(self, like) / 30)
    assert same(build(), build().bfloat16(), image).verdict == "not rounding"


@pytest.mark.fault
def test_a_fault_that_rounding_covers_further_on_is_found_at_its_operation() -> None:
    network, faulty, image = Hiding().eval(), Hiding().eval(), torch.randn(2, 3, 9, 11)
    faulty.norm.eps = 1e-4
    found = same(network, faulty, image)
    assert found.verdict == "not rounding"
    assert found.ratio < THRESHOLD < INNER < found.where[0].ratio
    assert found.inner == found.where[0].ratio
    assert [place.name for place in found.where] == ["norm"]
    begins = "Not rounding: `norm` (batch norm): eps 1e-05 in A, 0.0001 in B (on the same inputs, "
    assert found.sentence.startswith(begins)
    assert "The outputs do not show it: " in found.sentence
    assert same(network, opaque(faulty), image).verdict == "rounding"


@pytest.mark.fault
def test_of_a_folded_batch_norm_and_a_fault_that_rounding_covers_the_fault_alone_is_named() -> None:
    torch.manual_seed(5)
    conv, norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3, eps=0.1)
    network = nn.Sequential(conv, norm, nn.ReLU(), Hiding()).eval()
    fused = torch.nn.utils.fuse_conv_bn_eval(conv, norm)
    faulty = nn.Sequential(fused, nn.ReLU(), Hiding()).eval()
    image = torch.randn(2, 3, 9, 11)
    assert same(network, faulty, image).verdict == "rounding"
    faulty[2].norm.eps = 1e-4  # type: ignore[union-attr]
    found = same(network, faulty, image)
    assert found.ratio < THRESHOLD
    assert [(place.name, place.why) for place in found.where] == [("3.norm", "eps 1e-05 in A, 0.0001 in B")]


def test_padding_with_infinity_is_the_same_on_both_sides() -> None:
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(6)
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = nn.functional.pad(self.conv(x), (1, 1, 1, 1), value=float("-inf"))
            return nn.functional.max_pool2d(y, 3)

    other = Padded().eval()
    other.conv.weight.data *= 1 + 1e-7
    found = same(Padded().eval(), other, torch.randn(2, 3, 9, 11))
    assert (found.verdict, found.notes) == ("rounding", ())
    assert found.inner is not None
    assert found.inner < INNER
