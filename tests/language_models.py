"""A small language model that is called as transformers' are: ids, mask, positions, cache; two kinds of attention."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

Cache = list[tuple[Tensor, Tensor]]
VOCABULARY, WIDTH, HEADS, LONGEST = 50, 16, 2, 64


class Output(dict[str, Any]):
    """A dictionary whose entries are attributes, too."""

    @property
    def logits(self) -> Tensor:
        """Scores, [batch, tokens, vocabulary]."""
        found: Tensor = self["logits"]
        return found


class Block(nn.Module):
    """Attention and a perceptron, each added to its operand."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))
        self.is_eager = False

    def forward(self, x: Tensor, mask: Tensor, past: tuple[Tensor, Tensor] | None = None) -> Any:
        """The result, and keys and values."""
        shape = (*x.shape[:2], 3, HEADS, WIDTH // HEADS)
        query, key, value = self.qkv(self.norm(x)).view(shape).permute(2, 0, 3, 1, 4).unbind(0)
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        if self.is_eager:
            scores = query @ key.mT / math.sqrt(WIDTH // HEADS)
            found = scores.masked_fill(~mask, -1e9).softmax(-1) @ value
        else:
            found = scaled_dot_product_attention(query, key, value, mask)
        x = x + self.out(found.transpose(1, 2).flatten(2))
        return x + self.mlp(x), (key, value)


class Language(nn.Module):
    """A causal language model."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def set_attn_implementation(self, kind: str) -> None:
        """Chooses "eager" or "sdpa"."""
        if kind not in ("eager", "sdpa"):
            raise ValueError(f"there is no attention {kind}")
        for layer in self.layers:
            layer.is_eager = kind == "eager"  # type: ignore[assignment]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool = False,
    ) -> Output:
        """Logits, and the cache if it is asked for."""
        before = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        count = input_ids.shape[1]
        seen = torch.ones(len(input_ids), before + count) if attention_mask is None else attention_mask
        if position_ids is None:
            position_ids = (seen.long().cumsum(1) - 1).clamp(min=0)[:, before:]
        past = torch.arange(before + count)[None] <= torch.arange(before, before + count)[:, None]
        mask = (past & (seen[:, None] != 0) | torch.eye(count, before + count, dtype=torch.bool).roll(before, 1))[
            :, None
        ]
        x, cache = self.tokens(input_ids) + self.positions(position_ids), []
        for place, layer in enumerate(self.layers):
            x, own = layer(x, mask, None if past_key_values is None else past_key_values[place])
            cache.append(own)
        found = Output(logits=self.head(self.norm(x)))
        if use_cache:
            found["past_key_values"] = cache
        return found


def language_model(seed: int = 0) -> Language:
    """The model with random weights, in eval mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Language().eval()


def some_ids(rows: int = 2, tokens: int = 12) -> Tensor:
    """Token ids, [rows, tokens]."""
    return torch.randint(0, VOCABULARY, (rows, tokens), generator=torch.Generator().manual_seed(1))
