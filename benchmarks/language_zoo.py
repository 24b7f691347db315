"""Small language models of transformers with random weights: decoders, mixtures, state spaces, T5, Whisper, images.

Weights are drawn with a deviation of one by the root of what a row reads, and norms' weights around one, so that
attention looks somewhere, tokens differ, and a norm's weight is no factor of one, as in trained models.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY, TOKENS, ROWS = 100, 12, 2
IMAGE = 99  # the token that an image's features replace
_SMALL = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2}
_HEADS = {**_SMALL, "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 2}
_ONE = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_VISION = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_hidden_layers": 2}
_IMAGES = {**_VISION, "image_size": 8, "patch_size": 4}
_SPEECH = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
_EXPERTS = {"num_experts": 4, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
_MAMBA = {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8}

Call = dict[str, Tensor]


def _llava(library: Any) -> Any:
    vision, text = library.CLIPVisionConfig(**_IMAGES), library.LlamaConfig(**_HEADS)
    return library.LlavaConfig(vision_config=vision, text_config=text, image_token_index=IMAGE, image_seq_length=4)


def _smolvlm(library: Any) -> Any:
    vision, text = library.SmolVLMVisionConfig(**_IMAGES), library.LlamaConfig(**_HEADS, **_ONE)
    return library.SmolVLMConfig(
        vision_config=vision, text_config=text, image_token_id=IMAGE, scale_factor=2, pad_token_id=0
    )


def _of(name: str, options: Mapping[str, Any]) -> Callable[[Any], Any]:
    return lambda library: getattr(library, f"{name}Config")(**options)


MODELS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "Llama": ("LlamaForCausalLM", _of("Llama", _HEADS)),
    "Qwen3": ("Qwen3ForCausalLM", _of("Qwen3", {**_HEADS, "head_dim": 16})),
    "Gemma 3": ("Gemma3ForCausalLM", _of("Gemma3Text", {**_HEADS, "head_dim": 16, "sliding_window": 8})),
    "Phi": ("PhiForCausalLM", _of("Phi", _HEADS)),
    "GPT-2": ("GPT2LMHeadModel", _of("GPT2", {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 2})),
    "Mixtral": ("MixtralForCausalLM", _of("Mixtral", {**_HEADS, "num_local_experts": 4})),
    "Qwen2-MoE": ("Qwen2MoeForCausalLM", _of("Qwen2Moe", {**_HEADS, **_EXPERTS, "num_experts_per_tok": 2})),
    "Mamba": ("MambaForCausalLM", _of("Mamba", {**_SMALL, "state_size": 4})),
    "Falcon-H1": ("FalconH1ForCausalLM", _of("FalconH1", {**_HEADS, **_MAMBA, "mamba_chunk_size": 4})),
    "T5": (
        "T5ForConditionalGeneration",
        _of("T5", {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2}),
    ),
    "Whisper": (
        "WhisperForConditionalGeneration",
        _of(
            "Whisper",
            {
                **_SPEECH,
                **_ONE,
                "vocab_size": VOCABULARY,
                "d_model": 32,
                "encoder_ffn_dim": 48,
                "decoder_ffn_dim": 48,
                "num_mel_bins": 8,
                "max_source_positions": 20,
                "max_target_positions": 80,
                "decoder_start_token_id": 1,
            },
        ),
    ),
    "LLaVA": ("LlavaForConditionalGeneration", _llava),
    "SmolVLM": ("SmolVLMForConditionalGeneration", _smolvlm),
}


def built(name: str, dtype: torch.dtype = torch.float32, **options: Any) -> nn.Module:
    """A model of the list in eval mode, with its random weights.

    Args:
        name: Its name in the list.
        dtype: Its precision.
        options: Attributes of its configuration, in place of the list's.
    """
    library: Any = importlib.import_module("transformers")
    kind, configured = MODELS[name]
    config = configured(library)
    for key, value in options.items():
        setattr(config, key, value)
    model: nn.Module = getattr(library, kind)(config).eval()
    chance = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for key, value in model.named_parameters():
            drawn = torch.randn(value.shape, generator=chance)
            if value.ndim >= 2 and "A_log" not in key:
                value.copy_(drawn * value.shape[-1] ** -0.5)
            elif "norm" in key or "ln_" in key or key.endswith(".bias"):
                value.add_(0.2 * drawn)
    held = {name: one.clone() for name, one in model.named_buffers() if "inv_freq" in name}
    model.to(dtype)
    for name, one in held.items():  # which files do not hold, so that loading leaves them as they were computed
        path, _, key = name.rpartition(".")
        model.get_submodule(path).register_buffer(key, one, persistent=False)
    return model


def given(name: str, dtype: torch.dtype = torch.float32, *, tokens: int = TOKENS, rows: int = ROWS) -> Call:
    """Inputs of a model, by name: token ids [rows, tokens], and what its encoder or its eyes take."""
    chance = torch.Generator().manual_seed(1)
    ids = torch.randint(3, IMAGE, (rows, tokens), generator=chance)
    if name == "T5":
        return {"input_ids": torch.randint(3, IMAGE, (rows, 9), generator=chance), "decoder_input_ids": ids}
    if name == "Whisper":
        return {"input_features": torch.randn(rows, 8, 40, generator=chance).to(dtype), "decoder_input_ids": ids}
    if name == "LLaVA":
        ids[:, 1:5] = IMAGE
        return {"input_ids": ids, "pixel_values": torch.randn(rows, 3, 8, 8, generator=chance).to(dtype)}
    if name == "SmolVLM":
        ids[:, 1] = IMAGE
        return {"input_ids": ids, "pixel_values": torch.randn(rows, 1, 3, 8, 8, generator=chance).to(dtype)}
    return {"input_ids": ids}
