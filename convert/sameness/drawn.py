"""Other texts nearby: one token of each text is drawn again.

Token ids cannot be moved a little. But where a causal network reads another first token, all values behind it move by
some percent, as attention mixes tokens. Other tokens everywhere would say nothing: the effect of a wrong function is
then another one in each text, as that of rounding is.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from ..programs.program import Program
from ..programs.walk import name_of
from .given import Inputs

_KINDS = 8  # of tokens, at least, so that draws differ


def can_draw(program: Program, given: Inputs) -> bool:
    """Whether some inputs are tokens of several kinds that the network embeds."""
    return bool(_tokens(program, given))


def drawn(program: Program, given: Inputs, count: int, seed: int) -> Iterator[Inputs]:
    """Inputs in which a token of each text is another one of those given.

    Args:
        program: The network's.
        given: Inputs, some of which are tokens.
        count: The number of draws.
        seed: Of the draws.
    """
    generator, tokens = torch.Generator().manual_seed(seed), _tokens(program, given)
    for _ in range(count):
        others = {id(one): _other(one, generator) for one in tokens}  # once, where one tensor is given twice
        args, kwargs = tree_map(lambda value, others=others: others.get(id(value), value), (given.args, given.kwargs))
        yield Inputs(args, kwargs)


def _other(tokens: Tensor, generator: torch.Generator) -> Tensor:
    """Tokens, of which one of each text is another one."""
    kinds, places = tokens.unique(return_inverse=True)
    place, found = _first(tokens), tokens.clone()
    own = places[..., place]
    steps = torch.randint(1, len(kinds), own.shape, generator=generator, device="cpu").to(own.device)
    found[..., place] = kinds[(own + steps) % len(kinds)]
    return found


def _first(value: Tensor) -> int:
    """The first place at which texts differ, as all may begin with the same mark."""
    texts = value.reshape(-1, value.shape[-1])
    differing = (texts != texts[0]).any(0).nonzero().flatten()
    return int(differing[0]) if len(differing) else 0


def _tokens(program: Program, given: Inputs) -> list[Tensor]:
    """Inputs that an embedding reads."""
    ports = program.graph.graph.find_nodes(op="placeholder")
    read = {node.args[1] for node in program.nodes if name_of(node) == "embedding"}
    found = [one for node, one in zip(ports, given.tensors, strict=True) if node in read]
    return [one for one in found if one.ndim and len(one.unique()) >= _KINDS]
