"""Language models with weights in few bits: torchao's int8, and GGUF's Q8_0 and Q4_K as diffusers computes with them.

    python benchmarks/language_quantised.py

Needs transformers, diffusers, torchao and gguf. Each model is compared with its dequantised copy, whose numbers are
those of torchao's ``dequantize`` and of the package gguf, with the model that it was made of, and with copies in which
one scale is wrong or two blocks are swapped; "loaded" are such copies of GGUF that were dequantised when they were
read, as transformers does. Prints a line of JSON for each. diffusers dequantises in float16, which is coarser than
float32 rounds, and is rounding in the other two precisions.
"""

from __future__ import annotations

import copy
import importlib
import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from language_zoo import built, given
from torch import Tensor, nn
from zoo import declare_operators

from conv2attn.convert.sameness.same import same

_PLACE = "model.layers.1.mlp.up_proj"
_WIDE = {
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 64,
}
_BLOCK = 256  # weights of a block of Q4_K, in 8 parts of 32
Bytes = Any  # an array of bytes


def with_weights(model: nn.Module, made: Callable[[str, nn.Linear], nn.Module]) -> nn.Module:
    """A copy of a model with other modules in place of its linear layers."""
    other = copy.deepcopy(model)
    for name, module in list(other.named_modules()):
        if isinstance(module, nn.Linear):
            path, _, key = name.rpartition(".")
            setattr(other.get_submodule(path), key, made(name, module))
    return other


# torchao


def torchao_sides(model: nn.Module) -> dict[str, nn.Module]:
    """A model in torchao's int8, its dequantised copy, and the two faults."""
    library: Any = importlib.import_module("torchao.quantization")
    few = copy.deepcopy(model)
    library.quantize_(few, library.Int8WeightOnlyConfig())
    sides = {"quantised": few, "wrong scale": copy.deepcopy(few), "swapped block": copy.deepcopy(few)}
    sides["wrong scale"].get_submodule(_PLACE).weight.scale.data[3] *= 1.25  # type: ignore[union-attr,operator,index]
    numbers: Any = sides["swapped block"].get_submodule(_PLACE).weight.qdata  # type: ignore[union-attr]
    numbers[[4, 5], :16] = numbers[[5, 4], :16].clone()
    stored = dict(few.named_modules())

    def plain(name: str, linear: nn.Linear) -> nn.Module:
        weight: Any = stored[name].weight
        linear.weight.data = weight.dequantize().to(linear.weight.dtype)
        return linear

    return {**sides, "dequantised": with_weights(model, plain)}


# GGUF


def q4_k(weight: Bytes) -> Bytes:
    """Blocks of Q4_K, [rows, bytes]: w = d s q - m t, with 4 bits for q, and 6 bits for s and t of each 32 weights."""
    parts = weight.reshape(-1, 8, 32).astype(np.float32)
    low, high = np.minimum(parts.min(-1), 0), np.maximum(parts.max(-1), 1e-8)
    d, m = (one.max(-1).astype(np.float16) for one in ((high - low) / (15 * 63), -low / 63))
    d, m = np.maximum(d, np.float16(1e-6)), np.maximum(m, np.float16(1e-6))
    s = np.clip(np.rint((high - low) / 15 / d[:, None].astype(np.float32)), 1, 63).astype(np.uint8)
    t = np.clip(np.rint(-low / m[:, None].astype(np.float32)), 0, 63).astype(np.uint8)
    step = d[:, None].astype(np.float32) * s
    shift = m[:, None].astype(np.float32) * t
    q = np.clip(np.rint((parts + shift[..., None]) / step[..., None]), 0, 15).astype(np.uint8)
    packed = np.concatenate(
        [
            (s[:, :4] | ((s[:, 4:] >> 4) << 6)),
            (t[:, :4] | ((t[:, 4:] >> 4) << 6)),
            ((s[:, 4:] & 15) | ((t[:, 4:] & 15) << 4)),
        ],
        1,
    )
    halves = q.reshape(-1, 4, 2, 32)
    nibbles = (halves[:, :, 0] | (halves[:, :, 1] << 4)).reshape(-1, 128)
    ends = np.stack([d, m], 1).view(np.uint8).reshape(-1, 4)
    return np.concatenate([ends, packed, nibbles], 1).reshape(len(weight), -1)


def gguf_sides(model: nn.Module, kind: str) -> dict[str, nn.Module]:
    """A model whose weights are in a GGUF format, its dequantised copy, and the two faults."""
    gguf: Any = importlib.import_module("gguf")
    diffusers: Any = importlib.import_module("diffusers.quantizers.gguf.utils")
    of = gguf.GGMLQuantizationType[kind]
    size = gguf.GGML_QUANT_SIZES[of][1]

    def stored(linear: nn.Linear) -> Bytes:
        weight = linear.weight.detach().float().numpy()
        return gguf.quants.quantize(weight, of) if kind == "Q8_0" else q4_k(weight)

    def engine(change: Callable[[Bytes], None]) -> Callable[[str, nn.Linear], nn.Module]:
        def made(name: str, linear: nn.Linear) -> nn.Module:
            held = stored(linear)
            if name == _PLACE:
                change(held)
            found: nn.Module = diffusers.GGUFLinear(
                linear.in_features, linear.out_features, linear.bias is not None, compute_dtype=linear.weight.dtype
            )
            found.weight = diffusers.GGUFParameter(torch.from_numpy(held), quant_type=of)
            return found.eval()

        return made

    def loaded(change: Callable[[Bytes], None]) -> Callable[[str, nn.Linear], nn.Module]:
        def made(name: str, linear: nn.Linear) -> nn.Module:
            held = stored(linear)
            if name == _PLACE:
                change(held)
            linear.weight.data = torch.from_numpy(gguf.quants.dequantize(held, of)).to(linear.weight.dtype)
            return linear

        return made

    def scaled(held: Bytes) -> None:
        block = held[3, :2].copy().view(np.float16)
        held[3, :2] = (block * np.float16(1.25)).view(np.uint8)

    def swapped(held: Bytes) -> None:
        held[[4, 5], :size] = held[[5, 4], :size].copy()

    return {
        "quantised": with_weights(model, engine(lambda _held: None)),
        "wrong scale": with_weights(model, engine(scaled)),
        "swapped block": with_weights(model, engine(swapped)),
        "wrong scale, loaded": with_weights(model, loaded(scaled)),
        "swapped block, loaded": with_weights(model, loaded(swapped)),
        "dequantised": with_weights(model, loaded(lambda _held: None)),
    }


def main() -> None:
    """Prints a line for each pair."""
    torch.set_num_threads(1)
    declare_operators()
    warnings.simplefilter("ignore")
    kinds: dict[str, Callable[[nn.Module], dict[str, nn.Module]]] = {
        "torchao int8": torchao_sides,
        "GGUF Q8_0": lambda model: gguf_sides(model, "Q8_0"),
        "GGUF Q4_K": lambda model: gguf_sides(model, "Q4_K"),
    }
    for kind, made in kinds.items():
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            model = built("Llama", dtype, **_WIDE)
            call: dict[str, Tensor] = given("Llama", dtype)
            sides = made(model)
            pairs = {
                "quantised": (sides["dequantised"], sides["quantised"]),
                "made of": (model, sides["quantised"]),
                **{
                    what: (sides["dequantised"], side) for what, side in sides.items() if what[:5] in ("wrong", "swapp")
                },
            }
            for what, (a, b) in pairs.items():
                found = same(a, b, call)  # A has plain weights, so that its operations run in float64
                where = found.where[0].name if found.where else ""
                record = {"kind": kind, "dtype": str(dtype)[6:], "pair": what, "verdict": found.verdict}
                print(json.dumps({**record, "where": where, "sentence": found.sentence}), flush=True)


if __name__ == "__main__":
    main()
