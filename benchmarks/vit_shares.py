"""The share of attention at the taps in vision transformers of timm, torchvision and transformers, beside the bound.

    make test-libraries    # builds build/libraries, with these libraries
    build/libraries/bin/python benchmarks/vit_shares.py    # writes a section of benchmarks/VITS.md

Each network is made by its library with random weights, three blocks deep, for 8x8 patches. It gets the heads of the
claim token-heads: positions, patches and tokens without a place as there, the queries and keys of every head of every
block; no block writes to the channels of positions. A block with fewer heads than taps leaves taps to the next one. The
probabilities are those that the library's own attention computes, in float32. The bound is the claim's for the tokens
that reach the block's layer norm.

Rounding: ``score_error`` bounds what rounding does to each score. If none changes by more than E, a share falls by at
most the factor exp(-2 E).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from started_vits import FREQUENCIES, PLACES, SHIFTS, WAVES, sines, targets, turn, waves
from torch import Tensor, nn
from vit_trunk import GRID

from conv2attn.proofs.campaign.arithmetic import describe_machine

PAGE = Path(__file__).with_name("VITS.md")
SHARES = "## Shares at the taps in other libraries' vision transformers"
"""Heading of the page's last section, which this program writes and ``vit_table.py`` keeps."""
DEPTH, IMAGES, SIZES, SHARPNESS = 3, 2, (1.0, 1e3, 1e6), 4.0
"""Blocks, images, factors of normal numbers, and beta."""


class Heads(NamedTuple):
    """The attention of a block, wherever its library keeps it.

    Attributes:
        norm: The layer norm before it.
        count: Number of heads.
        query: Weight of the queries, [D, D]; a view, as are the others.
        key: Weight of the keys, [D, D].
        value: Weight of the values, [D, D].
        biases: Biases of queries and keys.
        writes: The linear layers whose outputs are added to the tokens.
        attention: The module that attends.
    """

    norm: nn.Module
    count: int
    query: Tensor
    key: Tensor
    value: Tensor
    biases: list[Tensor]
    writes: list[nn.Linear]
    attention: nn.Module


class Parts(NamedTuple):
    """A vision transformer.

    Attributes:
        network: The network.
        patches: The convolution that makes patches.
        positions: Learned positions, [1, tokens, D]; the last 64 are the patches'.
        tokens: Tokens without a place, each [1, any number, D].
        blocks: Its blocks' attention.
    """

    network: nn.Module
    patches: nn.Conv2d
    positions: Tensor
    tokens: list[Tensor]
    blocks: list[Heads]


def by_timm(network: Any) -> Parts:
    """A ``VisionTransformer`` of timm."""
    blocks = []
    for block in network.blocks:
        attention = block.attn
        attention.fused_attn = False  # the other way keeps no probabilities
        q, k, v = attention.qkv.weight.chunk(3)
        biases = [] if attention.qkv.bias is None else list(attention.qkv.bias.chunk(3)[:2])
        writes = [attention.proj, block.mlp.fc2]
        blocks.append(Heads(block.norm1, attention.num_heads, q, k, v, biases, writes, attention))
    tokens = [getattr(network, name, None) for name in ("cls_token", "dist_token", "reg_token")]
    found = [token for token in tokens if token is not None]
    return Parts(network, network.patch_embed.proj, network.pos_embed, found, blocks)


def by_torchvision(network: Any) -> Parts:
    """A ``VisionTransformer`` of torchvision."""
    blocks = []
    for block in network.encoder.layers:
        attention = block.self_attention
        q, k, v = attention.in_proj_weight.chunk(3)
        biases = list(attention.in_proj_bias.chunk(3)[:2])
        writes = [attention.out_proj, block.mlp[3]]
        blocks.append(Heads(block.ln_1, attention.num_heads, q, k, v, biases, writes, attention))
    return Parts(network, network.conv_proj, network.encoder.pos_embedding, [network.class_token], blocks)


def by_transformers(network: Any) -> Parts:
    """A ``ViTModel``, ``DeiTModel``, ``Dinov2Model`` or ``Dinov2WithRegistersModel`` of transformers."""
    network.set_attn_implementation("eager")  # the others keep no probabilities
    blocks = []
    for layer in network.encoder.layer if hasattr(network, "encoder") else network.layers:
        attention = layer.attention
        q, k, v = attention.q_proj, attention.k_proj, attention.v_proj
        norm = layer.norm1 if hasattr(layer, "norm1") else layer.layernorm_before
        biases = [each.bias for each in (q, k) if each.bias is not None]
        writes = [attention.o_proj, layer.mlp.fc2]
        count = network.config.num_attention_heads
        blocks.append(Heads(norm, count, q.weight, k.weight, v.weight, biases, writes, attention))
    made = network.embeddings
    tokens = [getattr(made, name, None) for name in ("cls_token", "distillation_token", "register_tokens")]
    found = [token for token in tokens if token is not None]
    return Parts(network, made.patch_embeddings.projection, made.position_embeddings, found, blocks)


def shifts(place: int, heads: int) -> list[tuple[int, int]]:
    """The taps of a block's heads: all nine in turn, over the blocks."""
    return [SHIFTS[(place * heads + head) % len(SHIFTS)] for head in range(heads)]


@torch.no_grad()
def start(parts: Parts, *, sharpness: float = SHARPNESS) -> Parts:
    """Lets every head of a network look at a tap, as ``started_vits.taps`` does; returns it."""
    for parameter in (parts.patches.weight, parts.patches.bias):
        if parameter is not None:
            parameter[:PLACES] = 0.0
    parts.positions[..., :PLACES] = 0.0
    parts.positions[:, -(GRID**2) :, :WAVES] = sines(WAVES).to(parts.positions)
    parts.positions[:, -(GRID**2) :, WAVES] = 1.0
    for token in parts.tokens:
        token[..., :PLACES] = 0.0
        token[..., WAVES] = 1.0
    width = parts.positions.shape[-1]
    read = torch.zeros(WAVES + 1, width)
    read.fill_diagonal_(sharpness)[:, WAVES + 1] = -sharpness
    for place, block in enumerate(parts.blocks):
        of_heads = [each.unflatten(0, (block.count, -1)) for each in (block.query, block.key)]
        for head, shift in enumerate(shifts(place, block.count)):
            for weight, numbers in zip(of_heads, (turn(shift) @ read, read), strict=True):
                weight[head] = 0.0
                weight[head, : WAVES + 1] = numbers
        for bias in block.biases:
            bias.zero_()
        for linear in block.writes:
            linear.weight[:PLACES] = 0.0
            if linear.bias is not None:
                linear.bias[:PLACES] = 0.0
    return parts


class Seen(NamedTuple):
    """A block as a network ran it.

    Attributes:
        tokens: What its layer norm reads, [batch, tokens, D].
        probabilities: What each query pays to each key, [batch, heads, queries, keys].
    """

    tokens: Tensor
    probabilities: Tensor


@contextmanager
def watched(parts: Parts) -> Iterator[list[Seen]]:
    """Collects what the blocks read and pay, in the order in which they run."""
    read, found = list[Tensor](), list[Seen]()

    def ask(_: nn.Module, args: Any, options: dict[str, Any]) -> Any:
        return args, options | {"need_weights": True, "average_attn_weights": False}

    def keep(_: nn.Module, __: Any, output: Any) -> None:
        found.append(Seen(read[-1], output[1]))

    def keep_before_dropout(_: nn.Module, args: tuple[Tensor, ...]) -> None:
        found.append(Seen(read[-1], args[0]))

    hooks = []
    for block in parts.blocks:
        hooks.append(block.norm.register_forward_pre_hook(lambda _, args: read.append(args[0])))
        attention = block.attention
        if hasattr(attention, "attn_drop"):  # timm's
            hooks.append(attention.attn_drop.register_forward_pre_hook(keep_before_dropout))
            continue
        if isinstance(attention, nn.MultiheadAttention):
            hooks.append(attention.register_forward_pre_hook(ask, with_kwargs=True))
        hooks.append(attention.register_forward_hook(keep))
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def bounds(tokens: Tensor, deviations: Tensor, shift: tuple[int, int], *, head_dim: int, sharpness: float) -> Tensor:
    """The claim's bound on the share, [batch, 64], of each patch as query; 0 where its tap is outside the grid.

    Args:
        tokens: [batch, n + 64, D]: n without a place first.
        deviations: What the layer norm divides each token by, [batch, n + 64].
        shift: The tap.
        head_dim: D_h.
        sharpness: beta.
    """
    far = torch.arange(GRID, dtype=tokens.dtype)
    loss = (1 - ((far[:, None] - far)[..., None] * waves().to(tokens)).cos()).sum(-1)  # g, [target, key]
    placeless = tokens.shape[1] - GRID**2
    strength = sharpness**2 / (math.sqrt(head_dim) * deviations[:, placeless:] * deviations.amax(1, keepdim=True))
    sums = (-strength[..., None, None] * loss).exp().sum(-1)  # [batch, queries, target's row or column]
    target, queries = targets(shift), torch.arange(GRID**2)
    total = sums[:, queries, target // GRID] * sums[:, queries, target % GRID]
    total = total + placeless * (-2 * FREQUENCIES * strength).exp()
    return torch.where(target >= 0, total.reciprocal(), 0.0)


def score_error(x: Tensor, deviations: Tensor, query: Tensor, key: Tensor) -> Tensor:
    r"""Bounds the rounding of a head's scores, [batch, tokens, tokens], in the precision of x, whose unit is u.

    Layer norm: a mean of D numbers is off by at most D u max|x|, so a normed number by at most (2 D + 8) u M, where M
    is (max|x| + |mean|) / sigma, beside the D u of the deviation itself; both are within c = (4 D + 16) u M. A row w
    of queries or keys then is off by |w| c + D u |w| |n|, and a sum of d products by d u times that of their sizes.
    Terms in u^2 are covered by the factor 2.

    Args:
        x: What the layer norm reads, [batch, tokens, D].
        deviations: What it divides by, [batch, tokens].
        query: Weight of the head's queries, [d, D].
        key: Of its keys.
    """
    width, unit = x.shape[-1], torch.finfo(x.dtype).eps / 2
    x, deviations, query, key = (each.double() for each in (x, deviations, query, key))
    mean = x.mean(-1)
    normed = ((x - mean[..., None]) / deviations[..., None]).abs()
    off = (4 * width + 16) * unit * (x.abs().amax(-1) + mean.abs()) / deviations
    sizes, errors = [], []
    for weight in (query.abs(), key.abs()):
        size = normed @ weight.T
        sizes.append(size)
        errors.append(off[..., None] * weight.sum(1) + width * unit * size)
    (q, k), (dq, dk) = sizes, [error.transpose(-1, -2) for error in errors]
    both = q @ dk + dq.transpose(-1, -2) @ k.transpose(-1, -2) + len(query) * unit * q @ k.transpose(-1, -2)
    return 2 * both / math.sqrt(len(query))


class Shares(NamedTuple):
    """Shares at the taps of all heads and queries whose tap is on the grid, each [any number].

    Attributes:
        found: The shares.
        bound: The claim's.
        slack: Factor by which rounding may have made a share smaller, at most 1.
    """

    found: Tensor
    bound: Tensor
    slack: Tensor

    @property
    def holds(self) -> bool:
        """Whether no share is below its bound by more than rounding."""
        return bool((self.found >= self.bound * self.slack).all())


@torch.no_grad()
def shares(parts: Parts, images: Tensor, *, sharpness: float = SHARPNESS) -> list[Shares]:
    """Shares at the taps when the network runs on images, for each head of each block.

    Args:
        parts: A started network, in eval mode.
        images: [batch, 3, rows, columns] of 8x8 patches.
        sharpness: As for ``start``.
    """
    with watched(parts) as seen:
        parts.network(images)
    found = []
    for (place, block), (tokens, probabilities) in zip(enumerate(parts.blocks), seen, strict=True):
        epsilon = float(getattr(block.norm, "eps"))  # noqa: B009
        x = tokens.double()
        deviations = (x.var(-1, correction=0) + epsilon).sqrt()
        placeless = x.shape[1] - GRID**2
        of_heads = [each.unflatten(0, (block.count, -1)) for each in (block.query, block.key)]
        head_dim = of_heads[0].shape[1]
        for head, shift in enumerate(shifts(place, block.count)):
            bound = bounds(x, deviations, shift, head_dim=head_dim, sharpness=sharpness)
            error = score_error(tokens, deviations, of_heads[0][head], of_heads[1][head])
            slack = (-2 * error.amax(-1)).exp()[:, placeless:]
            target = targets(shift)
            (queries,) = (target >= 0).nonzero(as_tuple=True)
            share = probabilities[:, head, placeless + queries, placeless + target[queries]].double()
            unit = torch.finfo(tokens.dtype).eps / 2
            slack = slack[:, queries] * (1 - 4 * x.shape[1] * unit)  # exponentials, their sum and the division
            found.append(Shares(share, bound[:, queries], slack))
    return found


class Row(NamedTuple):
    """A network of the table.

    Attributes:
        library: Its library.
        name: Its name there.
        patch: Pixels of a patch's side.
        make: Makes it, without what ``start`` does; takes the function that imports a module.
    """

    library: str
    name: str
    patch: int
    make: Callable[[Callable[[str], Any]], Parts]


def _timm(name: str, patch: int) -> Row:
    options = {"img_size": GRID * patch, "depth": DEPTH, "num_classes": 5}
    return Row("timm", name, patch, lambda get: by_timm(get("timm").create_model(name, **options)))


def _torchvision(name: str, patch: int, width: int, heads: int) -> Row:
    def make(get: Callable[[str], Any]) -> Parts:
        shape = {"image_size": GRID * patch, "patch_size": patch, "num_layers": DEPTH, "num_classes": 5}
        sizes = {"hidden_dim": width, "num_heads": heads, "mlp_dim": 4 * width}
        return by_torchvision(get("torchvision.models").VisionTransformer(**shape, **sizes))

    return Row("torchvision", name, patch, make)


def _transformers(name: str, patch: int, width: int, heads: int) -> Row:
    def make(get: Callable[[str], Any]) -> Parts:
        library = get("transformers")
        shape = {"image_size": GRID * patch, "patch_size": patch, "num_hidden_layers": DEPTH}
        sizes = {"hidden_size": width, "num_attention_heads": heads, "intermediate_size": 4 * width}
        return by_transformers(getattr(library, f"{name}Model")(getattr(library, f"{name}Config")(**shape, **sizes)))

    return Row("transformers", name, patch, make)


ROWS = (
    _timm("vit_tiny_patch16_224", 16),
    _timm("vit_small_patch16_224", 16),
    _timm("vit_base_patch16_224", 16),
    _timm("vit_small_patch8_224", 8),
    _timm("vit_small_patch32_224", 32),
    _timm("vit_medium_patch16_gap_240", 16),
    _timm("vit_small_patch14_dinov2", 14),
    _timm("vit_base_patch14_reg4_dinov2", 14),
    _timm("deit3_small_patch16_224", 16),
    _timm("deit_tiny_distilled_patch16_224", 16),
    _torchvision("vit_b_16", 16, 768, 12),
    _torchvision("vit_b_32", 32, 768, 12),
    _torchvision("vit_l_16", 16, 1024, 16),
    _torchvision("vit_l_32", 32, 1024, 16),
    _transformers("ViT", 16, 768, 12),
    _transformers("DeiT", 16, 384, 6),
    _transformers("Dinov2", 14, 384, 6),
    _transformers("Dinov2WithRegisters", 14, 384, 6),
)
"""The networks, of which torchvision's have the widths of their names."""


def measured(
    row: Row, get: Callable[[str], Any], *, sizes: Sequence[float] = SIZES
) -> tuple[Parts, list[list[Shares]]]:
    """A started network, and its shares for images of each size, by head."""
    torch.manual_seed(0)
    parts = start(row.make(get))
    parts.network.eval()
    images = torch.randn(IMAGES, 3, GRID * row.patch, GRID * row.patch)
    return parts, [shares(parts, size * images) for size in sizes]


def line(row: Row, parts: Parts, found: list[list[Shares]]) -> str:
    """A row of the table."""
    width, placeless = parts.positions.shape[-1], sum(token.shape[1] for token in parts.tokens)
    cells = [row.library, row.name, str(width), str(parts.blocks[0].count), str(placeless)]
    for heads in found:
        ratio = min(float((head.found / head.bound).min()) for head in heads)
        mean = float(torch.cat([head.found.flatten() for head in heads]).mean())
        within = sum(head.holds for head in heads)
        cells += [f"{mean:.3f}", f"{ratio:.6f}", f"{within} of {len(heads)}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measures all networks, and writes the section."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.libraries import imported

    torch.set_num_threads(1)
    rows = []
    for row in ROWS:
        rows.append(line(row, *measured(row, imported)))
        print(rows[-1], flush=True)
    names = [f"images of size {size:g}: mean share | least ratio | heads within" for size in SIZES]
    head = ["library", "network", "D", "heads", "tokens without a place", *" | ".join(names).split(" | ")]
    text = [
        SHARES,
        "",
        "`build/libraries/bin/python benchmarks/vit_shares.py` writes this section; its docstring has the method.",
        f"Sharpness {SHARPNESS:g}, {DEPTH} blocks, 8x8 patches, {IMAGES} images of normal numbers times each size.",
        "A ratio is that of a share to the claim's bound; below 1 it is within the bound if rounding explains it.",
        f"Machine: {describe_machine('cpu')}.",
        "",
        f"| {' | '.join(head)} |",
        f"|{' --- |' * len(head)}",
        *rows,
    ]
    before = PAGE.read_text(encoding="utf-8").partition(SHARES)[0].rstrip()
    PAGE.write_text(before + "\n\n" + "\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
