"""Operations are held against those that belong to them: of their kind and module, and on what these read."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.convert.sameness.written import compared, spread


class Language(nn.Module):
    """Attention over tokens, with switches for what may be wrong: [batch, 9] ids to [batch, 9, 40]."""

    def __init__(self, **changed: object) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(40, 32), nn.LayerNorm(32)
        self.q, self.k, self.v, self.out = (nn.Linear(32, 32) for _ in range(4))
        self.up, self.down, self.head = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 40)
        self.changed = changed

    def forward(self, ids: Tensor) -> Tensor:
        """The logits."""
        x: Tensor = self.embed(ids)
        y = self.norm(x)
        order = self.changed.get("order", "qkv")
        given = {name: getattr(self, name)(y).unflatten(-1, (4, 8)).transpose(1, 2) for name in str(order)}
        scores = given["q"] @ given["k"].transpose(-1, -2) * 8**-0.5
        mask = torch.ones(9, 9, dtype=torch.bool).triu(1 + int(bool(self.changed.get("mask"))))
        scores = scores.masked_fill(mask, -torch.inf)
        x = x + self.out((scores.softmax(-1) @ given["v"]).transpose(1, 2).flatten(2))
        y = F.silu(self.up(x))
        if self.changed.get("through"):
            y = y.bfloat16().float()
        x = x + self.down(y) + self.changed.get("offset", 0)
        logits: Tensor = self.head(x) / self.changed.get("temperature", 1.0)
        if self.changed.get("cast"):
            logits = logits.bfloat16().float()
        return logits * float(str(self.changed["factor"])) if "factor" in self.changed else logits


def language(**changed: object) -> tuple[nn.Module, nn.Module, Tensor]:
    torch.manual_seed(1)
    a = spread(Language())
    b = Language(**changed).eval()
    b.load_state_dict(a.state_dict())
    return a, b, torch.randint(40, (2, 9))


class Wrong(NamedTuple):
    """What B has otherwise, the place, and words of the cause."""

    changed: dict[str, object]
    place: str
    says: str


WRONG = {
    "temperature": Wrong({"temperature": 0.9999}, "div", "other 1 in A, 0.9999 in B"),
    "offset": Wrong({"offset": 0.001}, "add", "other 0 in A, 0.001 in B"),
    "cast of the logits": Wrong({"cast": True}, "div", "B has a cast to bfloat16 behind it"),
    "factor behind the logits": Wrong({"factor": 0.999}, "div", "B has mul (0.999) behind it"),
    "activation through bfloat16": Wrong({"through": True}, "down", "B has a cast to bfloat16 before it"),
    "mask": Wrong({"mask": True}, "triu", "diagonal 1 in A, 2 in B"),
}


@pytest.mark.fault
@pytest.mark.parametrize("name", WRONG)
def test_what_only_one_side_does_is_named(name: str) -> None:
    wrong = WRONG[name]
    found = compared(*language(**wrong.changed)[:2], language()[2])
    assert found.verdict == "not rounding"
    assert [wrong.place in place.name for place in found.where] == [True]
    assert wrong.says in found.where[0].why


@pytest.mark.fault
def test_of_projections_that_run_in_another_order_the_wrong_rows_are_counted() -> None:
    a, b, ids = language(order="vkq")
    assert compared(a, b, ids).verdict in ("same bits", "rounding")
    with torch.no_grad():
        b.get_submodule("v").weight[3] *= 1.5  # type: ignore[operator,index]
    (place,) = compared(a, b, ids).where
    assert (place.name, "32 of 1,024 elements of weight differ" in place.why) == ("v", True)
