"""Networks that every engine runs: plain torch, random weights, norms whose scales and variances are spread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SEED = 0
VOCABULARY, WIDTH, HEADS, INNER = 128, 64, 4, 160


@dataclass(frozen=True)
class Case:
    """A network and its inputs.

    Attributes:
        name: Of the network.
        network: The network.
        inputs: Of it.
    """

    name: str
    network: nn.Module
    inputs: Tensor


class Cnn(nn.Module):
    """Convolutions, plain, depthwise and strided; batch norms; pooling; a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.pool = nn.MaxPool2d(2)
        self.body = nn.Sequential(
            nn.Conv2d(16, 32, 1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1, groups=32, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 16, 1, bias=False),
            nn.BatchNorm2d(16),
        )
        self.down = nn.Sequential(nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        self.head = nn.Linear(32, 40)

    def forward(self, x: Tensor) -> Any:
        """[B, 3, 32, 32] to [B, 40]."""
        x = self.pool(self.stem(x))
        return self.head(self.down(x + self.body(x)).mean((2, 3)))


class Attention(nn.Module):
    """Self-attention, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Any:
        """[B, N, C] to the same."""
        count = x.shape[1]
        q, k, v = (one.reshape(-1, count, HEADS, WIDTH // HEADS).transpose(1, 2) for one in self.qkv(x).split(WIDTH, 2))
        scores = (q @ k.transpose(2, 3)) * (WIDTH // HEADS) ** -0.5
        return self.out((scores.softmax(3) @ v).transpose(1, 2).reshape(-1, count, WIDTH))


class Mixed(nn.Module):
    """A block of a mixer, over places and then over channels."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.places = nn.Sequential(nn.Linear(count, 2 * count), nn.GELU(), nn.Linear(2 * count, count))
        self.channels = nn.Sequential(nn.Linear(WIDTH, INNER), nn.GELU(), nn.Linear(INNER, WIDTH))

    def forward(self, x: Tensor) -> Any:
        """[B, N, C] to the same."""
        x = x + self.places(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


class Attending(nn.Module):
    """A block of a vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, INNER), nn.GELU(), nn.Linear(INNER, WIDTH))

    def forward(self, x: Tensor) -> Any:
        """[B, N, C] to the same."""
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Patches(nn.Module):
    """A vision transformer or a mixer: patches, blocks, a norm, a mean over places, a head."""

    def __init__(self, block: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, WIDTH, 8, stride=8)
        self.blocks = nn.Sequential(*(block() for _ in range(3)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 40)

    def forward(self, x: Tensor) -> Any:
        """[B, 3, 32, 32] to [B, 40]."""
        x = self.embed(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


class RmsNorm(nn.Module):
    """A norm without a mean, as Llama has it."""

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(WIDTH)), eps

    def forward(self, x: Tensor) -> Any:
        """[..., C] to the same."""
        return self.weight * (x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt())


class LlamaAttention(nn.Module):
    """Causal self-attention with rotated halves of queries and keys."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Any:
        """[B, N, C] to the same."""
        count = x.shape[1]
        q, k, v = (
            one(x).reshape(-1, count, HEADS, WIDTH // HEADS).transpose(1, 2)
            for one in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = _turned(q, cos, sin), _turned(k, cos, sin)
        scores = (q @ k.transpose(2, 3)) * (WIDTH // HEADS) ** -0.5 + mask
        return self.o_proj((scores.softmax(3) @ v).transpose(1, 2).reshape(-1, count, WIDTH))


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    one, other = x.split(WIDTH // HEADS // 2, 3)
    return x * cos + torch.cat((-other, one), 3) * sin


class LlamaMlp(nn.Module):
    """A gated pair of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Any:
        """[B, N, C] to the same."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    """A layer of a Llama, whose names are those of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn, self.mlp = LlamaAttention(), LlamaMlp()
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(), RmsNorm()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Any:
        """[B, N, C] to the same."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaModel(nn.Module):
    """The layers of a Llama, for texts of one length."""

    BASE = 10_000.0
    cos: Tensor
    sin: Tensor
    mask: Tensor

    def __init__(self, length: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(LlamaLayer() for _ in range(3))
        self.norm = RmsNorm()
        self.length = length
        self.turn(self.BASE)
        self.register_buffer("mask", torch.full((length, length), -1e4).triu(1), persistent=False)

    def turn(self, base: float) -> None:
        """Rotates pairs of channels by angles of this base."""
        size, self.base = WIDTH // HEADS, base
        places = torch.arange(self.length, dtype=torch.float64)[:, None]
        angles = places * base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        self.register_buffer("cos", angles.cos().float().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angles.sin().float().repeat(1, 2), persistent=False)

    def forward(self, tokens: Tensor) -> Any:
        """Tokens [B, N] to [B, N, C]."""
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, self.mask)
        return self.norm(x)


class Llama(nn.Module):
    """A causal language model, whose names are those of transformers' LlamaForCausalLM."""

    LENGTH = 12

    def __init__(self) -> None:
        super().__init__()
        self.model, self.lm_head = LlamaModel(self.LENGTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Any:
        """Tokens [B, N] to logits [B, N, V]."""
        return self.lm_head(self.model(tokens))


NAMES = ("cnn", "vit", "llama", "mixer")


def case(name: str) -> Case:
    """A network by name, the same each time."""
    torch.manual_seed(SEED)
    if name == "llama":
        llama = _spread(Llama())
        return Case(name, llama, torch.randint(VOCABULARY, (3, Llama.LENGTH)))
    blocks: dict[str, Callable[[], nn.Module]] = {"vit": Attending, "mixer": lambda: Mixed(16)}
    network = _spread(Cnn() if name == "cnn" else Patches(blocks[name]))
    return Case(name, network, torch.randn(4, 3, 32, 32))


def _spread(network: nn.Module) -> nn.Module:
    """Gives norms scales of 1 +- 0.3 and variances of 0.3 to 2, and embeddings the size of trained ones."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d | nn.LayerNorm | RmsNorm):
            nn.init.normal_(module.weight, 1.0, 0.3)
        if isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
            nn.init.normal_(module.bias, 0.0, 0.3)
        if isinstance(module, nn.BatchNorm2d):
            buffers = dict(module.named_buffers())
            nn.init.normal_(buffers["running_mean"], 0.0, 0.3)
            nn.init.uniform_(buffers["running_var"], 0.3, 2.0)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, 0.0, 0.5)
    return network.eval().requires_grad_(False)
