"""Two networks block by block: each block of A on the values that B's block reads, held against what B's block gives.

For networks that do not fit into memory in float64. One block at a time is widened, so that the memory is that of both
networks as they are stored, one block in float64, and the values between blocks. A block that is wrong does not blame
those behind it, as each is judged on B's own values; how far the two networks are apart there, which grows from block
to block, is told beside it.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, OptionError, listed, refusing
from .given import Inputs
from .recorded import watched
from .same import compare
from .verdict import WIDTH, Sameness, Verdict, format_ratio

_LEAST = 2  # blocks of one class that make a network one of blocks
_ORDER: tuple[Verdict, ...] = (
    "not rounding",
    "biased rounding",
    "coarser rounding",
    "quantised",
    "cannot say",
    "rounding",
    "same bits",
)


@dataclass(frozen=True)
class Block:
    """A block of both networks.

    Attributes:
        name: Its name.
        found: Its comparison, on B's values.
        apart: How far the two networks are apart behind it, each on its own values: the root mean square of the
            difference, relative to A's.
    """

    name: str
    found: Sameness
    apart: float


@dataclass(frozen=True)
class Blocks:
    """Two networks block by block.

    Attributes:
        blocks: In the order in which they run.
        unseen: Blocks, and modules with weights outside them, that did not run in both networks.
    """

    blocks: tuple[Block, ...]
    unseen: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The gravest of any block."""
        verdicts = {one.found.verdict for one in self.blocks}
        return next(one for one in _ORDER if one in verdicts)

    @property
    def exit_code(self) -> int:
        """As of ``same``: 1 if it is 1 for a block, else 5 if it is 5 for one, else 0."""
        codes = {one.found.exit_code for one in self.blocks}
        return 1 if 1 in codes else max(codes)

    @property
    def sentence(self) -> str:
        """The verdict, with the first block that is not rounding."""
        gravest = [one for one in self.blocks if one.found.verdict == self.verdict]
        first, count = gravest[0], len(self.blocks)
        if self.verdict == "same bits":
            return f"Same bits: in all of {count} blocks."
        if self.verdict == "rounding":
            largest = max(one.found.ratio for one in self.blocks)
            return f"Rounding: in all of {count} blocks, at most {format_ratio(largest)} times typical rounding."
        more = f" {len(gravest) - 1} more of {count} blocks differ." if len(gravest) > 1 else ""
        return f"In `{first.name}`: {first.found.sentence}{more}"

    def table(self) -> list[tuple[str, ...]]:
        """Each block: name, verdict, ratio, and how far the networks are apart behind it."""
        return [
            ("block", "verdict", "ratio", "networks apart"),
            *((one.name, one.found.verdict, format_ratio(one.found.ratio), f"{one.apart:.1e}") for one in self.blocks),
        ]

    def lines(self) -> list[str]:
        """All that is said beside the table, a sentence each."""
        out = [f"Not run by both networks, so not compared: {listed(self.unseen)}."] if self.unseen else []
        return [self.sentence, *out]

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain data."""
        blocks = [{"name": one.name, "apart": _finite(one.apart), **one.found.to_dict()} for one in self.blocks]
        facts = {"verdict": self.verdict, "sentence": self.sentence, "exit_code": self.exit_code}
        return {**facts, "blocks": blocks, "unseen": list(self.unseen)}

    def __str__(self) -> str:
        """A line a block."""
        rows = self.table()
        widths = [max(len(row[place]) for row in rows) for place in range(4)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        told = [textwrap.fill(one, WIDTH, break_long_words=False, break_on_hyphens=False) for one in self.lines()]
        return "\n".join([*told, "", *lines])


def same_blocks(
    a: nn.Module,
    b: nn.Module,
    inputs: Any,
    *,
    seed: int = 0,
    unit: str | Collection[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Blocks:
    """Says block by block whether the difference between two networks is rounding.

    Args:
        a: A network with blocks: modules of one class in a list, as a transformer's layers.
        b: The other, with blocks of the same names.
        inputs: A tensor, several in a sequence, or by name.
        seed: Of the noise that stands for rounding.
        unit: As for ``same``.
        progress: Called with the name of each block.

    Raises:
        OptionError: A side is no network, or the two have no blocks of the same names.
        InputError: A side does not run on the inputs.

    Examples:
        >>> layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(3)]
        >>> network = torch.nn.Sequential(torch.nn.Sequential(*layers), torch.nn.Linear(8, 4)).eval()
        >>> c2a.same_blocks(network, network, torch.rand(5, 8)).sentence
        'Same bits: in all of 4 blocks.'
    """
    for name, side in (("a", a), ("b", b)):
        if not isinstance(side, nn.Module):
            raise OptionError(f"{name} must be a network; got {type(side).__name__}")
    names = parts_of(a)
    missing = [name for name in names if name not in dict(b.named_modules())]
    if missing:
        raise OptionError(f"b has no module {missing[0]}, which is a block of a")
    given = Inputs.of(inputs)
    own, theirs = (_played(side, name, given, names) for side, name in ((a, "A"), (b, "B")))
    blocks = []
    for name in names:
        if name not in theirs or name not in own:
            continue
        progress(name)
        call = theirs[name].call
        found = compare(a.get_submodule(name), b.get_submodule(name), call, seed=seed, unit=unit)
        blocks.append(Block(name, found, _apart(own.pop(name).outputs, theirs.pop(name).outputs)))
    if not blocks:
        raise OptionError("no block of a runs on these inputs")
    compared = {one.name for one in blocks}
    return Blocks(tuple(blocks), tuple(name for name in names if name not in compared))


def parts_of(network: nn.Module) -> list[str]:
    """The blocks of a network and the modules with weights outside them, by name.

    Raises:
        OptionError: It has no blocks.
    """
    blocks: list[str] = []
    for name, module in network.named_modules():
        inside = any(name == one or name.startswith(f"{one}.") for one in blocks)
        if inside or not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        kinds = Counter(type(child) for child in module.children())
        (kind, count), *_ = kinds.most_common(1) or [(nn.Identity, 0)]
        if count >= _LEAST and any(True for _ in next(iter(module.children())).children()):
            blocks += [f"{name}.{key}".lstrip(".") for key, child in module.named_children() if type(child) is kind]
    if not blocks:
        raise OptionError(f"{type(network).__name__} has no blocks: two or more modules of one class in a list")

    def is_outside(name: str) -> bool:
        return not any(name == one or name.startswith(f"{one}.") or one.startswith(f"{name}.") for one in blocks)

    outside = [
        name
        for name, module in network.named_modules()
        if name and is_outside(name) and not any(True for _ in module.children()) and list(module.parameters(False))
    ]
    order = {name: place for place, (name, _) in enumerate(network.named_modules())}
    return sorted([*blocks, *outside], key=order.__getitem__)


@dataclass(frozen=True)
class _Call:
    """A call of a block.

    Attributes:
        call: Its arguments.
        outputs: What it gave, by name.
    """

    call: Inputs
    outputs: Mapping[str, Tensor]


@torch.no_grad()
def _played(network: nn.Module, side: str, given: Inputs, names: Sequence[str]) -> dict[str, _Call]:
    """The first call of each block, while the network runs."""
    found: dict[str, _Call] = {}

    def keep(name: str, of_block: Inputs, outputs: dict[str, Tensor]) -> None:
        if name not in found:
            found[name] = _Call(of_block.clone(), {part: one.detach().clone() for part, one in outputs.items()})

    call = given.clone()
    refused = refusing(f"{side} does not run on these inputs", InputError)
    with watched(network, names, keep), torch.random.fork_rng(devices=[]), refused:
        network(*call.args, **{**call.kwargs, **_without_cache(network)})
    return found


def _without_cache(network: nn.Module) -> dict[str, bool]:
    """The argument that keeps a language model from filling a cache, which its blocks would write to again."""
    is_caching = getattr(getattr(network, "config", None), "use_cache", None)
    return {"use_cache": False} if is_caching else {}


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _apart(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The difference of two results relative to the first, by root mean squares."""
    apart, size = 0.0, 0.0
    for a, b in zip(one.values(), other.values(), strict=False):
        if a.is_floating_point() and a.shape == b.shape:
            apart += float((a.double() - b.double()).square().sum())
            size += float(a.double().square().sum())
    return (apart / size) ** 0.5 if size else 0.0
