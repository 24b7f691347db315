"""Networks of timm, torchvision, transformers and diffusers, by name or drawn by a seed, without anybody's weights.

A family is the module that defines a network. ``drawn`` takes every family once, in an order that the seed draws, then
every family once more; a network's name is drawn among its family's. Images are small where the network takes them.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from conv2attn.convert.inputs import named_tensors

LIBRARIES = ("timm", "torchvision", "transformers")
MOST = 30_000_000  # parameters
TRIED = 6  # names of a family that may be too large
OUTPUTS = 4  # of a network, at most
_SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
_TEXT = ("bert", "roberta", "electra", "albert", "llama", "mistral", "qwen2", "gpt_neox", "opt", "gpt2", "distilbert")
_IMAGES = ("vit", "deit", "beit", "convnext", "convnextv2", "resnet", "regnet", "swin", "segformer", "mobilevit")
_VISION = (*_IMAGES, "poolformer", "levit", "focalnet", "dinov2")
_WITH_SIZES = {*_TEXT, "vit", "deit", "beit", "dinov2"}
_CAUSAL = (
    *("LlamaForCausalLM", "Qwen3ForCausalLM", "Gemma2ForCausalLM", "PhiForCausalLM", "GPT2LMHeadModel"),
    *("MixtralForCausalLM", "Qwen2MoeForCausalLM", "MambaForCausalLM", "FalconForCausalLM"),
)
_TINY = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_local_experts": 4,
    "num_experts": 4,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts_per_tok": 2,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_UNET = {"sample_size": 16, "block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8}
_CROSS = {"cross_attention_dim": 16, "attention_head_dim": 4}
_DIFFUSERS: dict[str, dict[str, Any]] = {
    "UNet2DModel": {
        **_UNET,
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    },
    "UNet2DConditionModel": {
        **_UNET,
        **_CROSS,
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    },
    "AutoencoderKL": {
        "block_out_channels": (16, 32),
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "norm_num_groups": 8,
    },
    "VQModel": {"block_out_channels": (16,), "norm_num_groups": 8, "num_vq_embeddings": 16},
    "DiTTransformer2DModel": {
        "num_attention_heads": 2,
        "attention_head_dim": 8,
        "in_channels": 4,
        "num_layers": 1,
        "sample_size": 8,
        "patch_size": 2,
        "norm_num_groups": 4,
        "num_embeds_ada_norm": 10,
    },
}
_GIVEN: dict[str, dict[str, Any]] = {
    "UNet2DModel": {"timestep": torch.tensor([3, 7])},
    "UNet2DConditionModel": {
        "timestep": torch.tensor([3, 7]),
        "encoder_hidden_states": torch.linspace(-1, 1, 160).sin().view(2, 5, 16),
    },
    "DiTTransformer2DModel": {"timestep": torch.tensor([3, 7]), "class_labels": torch.tensor([1, 4])},
}
_SAMPLES = {"UNet2DModel": (3, 16), "AutoencoderKL": (3, 32), "VQModel": (3, 16)}
_LARGE = ("_b5", "_b6", "_b7", "vit_", "vgg")  # in names of torchvision
_LEFT_OUT = (
    *_LARGE,
    "rcnn",
    "retina",
    "fcos",
    "ssd",
    "raft",
    "s3d",
    "r3d",
    "mc3",
    "r2plus",
    "mvit",
    "swin3d",
    "quantized",
)


_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")  # they are declared as long as this is kept


def declare_operators() -> None:
    """Lets torchvision be used where its compiled part does not load, as with another build of torch.

    Its own operators are declared; ``nms`` then keeps every box.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for operator in ("nms", "qnms"):
            _OPERATORS.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _OPERATORS.impl("nms", lambda boxes, scores, _: scores.argsort(descending=True), "CPU")
        boxes: Any = importlib.import_module("torchvision.ops.boxes")
        boxes._assert_has_ops = lambda: None


def names(library: str) -> list[str]:
    """The names of all networks of timm or torchvision."""
    home = "timm" if library == "timm" else "torchvision.models"
    return list(importlib.import_module(home).list_models())


def module_of(library: str, name: str) -> str:
    """The module of timm or torchvision that builds a network."""
    if library == "timm":
        return str(importlib.import_module("timm.models").model_entrypoint(name).__module__)
    return str(importlib.import_module("torchvision.models").get_model_builder(name).__module__)


def create(library: str, name: str, **options: Any) -> nn.Module:
    """A network with random weights; of transformers by its model type, with options of its configuration."""
    if library == "timm":
        return cast(nn.Module, importlib.import_module("timm").create_model(name, pretrained=False, **options))
    if library == "torchvision":
        if any(part in module_of(library, name) for part in ("detection", "segmentation")):
            options["weights_backbone"] = None
        models: Any = importlib.import_module("torchvision.models")
        return cast(nn.Module, models.get_model(name, weights=None, **options))
    if library == "diffusers":
        return Given(getattr(importlib.import_module("diffusers"), name)(**_DIFFUSERS[name]), _GIVEN.get(name, {}))
    transformers: Any = importlib.import_module("transformers")
    if name in _CAUSAL:
        kind = getattr(transformers, name)
        config = kind.config_class()
        for key, value in _TINY.items():
            if hasattr(config, key):
                setattr(config, key, value)
        return cast(nn.Module, kind(config))
    kind = "eager" if name in _VISION else None
    config = transformers.AutoConfig.for_model(name, **options)
    return cast(nn.Module, transformers.AutoModel.from_config(config, attn_implementation=kind))


@dataclass(frozen=True)
class Family:
    """Networks that one module defines.

    Attributes:
        library: One of ``LIBRARIES``, or "diffusers".
        name: The module, or the model type of transformers, or the class.
        members: Their names.
    """

    library: str
    name: str
    members: tuple[str, ...]


def half(family: str) -> int:
    """The half that a family belongs to, by the hash of its name: 0 chooses the threshold, 1 judges it."""
    return hashlib.sha256(family.encode()).digest()[0] % 2


@functools.cache
def families() -> tuple[Family, ...]:
    """The families of the libraries."""
    found: dict[tuple[str, str], list[str]] = {}
    for library in ("timm", "torchvision"):
        for name in names(library):
            if library == "timm" or not any(part in name for part in _LEFT_OUT):
                found.setdefault((library, module_of(library, name).rpartition(".")[2]), []).append(name)
    for name in (*_TEXT, *_CAUSAL, *_VISION):
        found["transformers", name] = [name]
    for name in _DIFFUSERS:
        found["diffusers", name] = [name]
    return tuple(Family(*key, tuple(members)) for key, members in found.items())


def drawn(index: int, seed: int) -> tuple[Family, list[str]]:
    """The family of network ``index``, and names in it, of which the first that is small enough is taken."""
    every = families()
    order = random.Random(f"{seed}:families").sample(range(len(every)), len(every))
    family = every[order[index % len(every)]]
    chance = random.Random(f"{seed}:{index}")
    return family, chance.sample(family.members, min(TRIED, len(family.members)))


def taken(library: str, members: list[str], most: int = MOST) -> str:
    """The first of the names whose network has at most so many parameters.

    Raises:
        ValueError: All have more.
    """
    for name in members:
        if parameters(partial(_small, library, name)) <= most:
            return name
    raise ValueError("all that were drawn have too many parameters")


def parameters(build: Callable[[], nn.Module]) -> int:
    """Number of a network's parameters, without its values; 0 where it cannot be built so."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in build().parameters())
    except Exception:  # other people's code
        return 0


def _small(library: str, name: str) -> nn.Module:
    """A network for small inputs, where there is one."""
    if library != "timm":
        return create(library, name, **(_SIZES if library == "transformers" and name in _WITH_SIZES else {}))
    try:
        return create(library, name, img_size=64)
    except Exception:  # the network has no such option, or does not divide
        return create(library, name)


@torch.no_grad()
def built(library: str, name: str) -> nn.Module:
    """A network with random weights and statistics, in eval mode. No branch is switched off, and no bias is 0."""
    torch.manual_seed(0)
    network = _small(library, name)
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    for parameter in network.parameters():
        if parameter.ndim <= 1 and float(parameter.abs().max()) < 1e-3:
            parameter.normal_(0, 0.1)
    return Plain(network).eval().requires_grad_(False)


class Given(nn.Module):
    """A network with some of its arguments."""

    def __init__(self, model: nn.Module, given: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.given = model, given

    def forward(self, x: Tensor) -> Any:
        """What it gives."""
        return self.model(x, **self.given)


class Plain(nn.Module):
    """A network that gives its first tensors in a list."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> list[Tensor]:
        """Its first tensors."""
        return list(named_tensors(self.model(x)).values())[:OUTPUTS]


@torch.no_grad()
def inputs(library: str, name: str, network: nn.Module, *, run: Callable[[Tensor], object] | None = None) -> Tensor:
    """Two inputs that a network runs on: small images, or images of its own size; tokens.

    Args:
        library: Its library.
        name: Its name there.
        network: It.
        run: How it is run; it is called, if nothing else is said.

    Raises:
        ValueError: It runs on none.
    """
    generator = torch.Generator().manual_seed(1)
    if library == "diffusers":
        channels, side = _SAMPLES.get(name, (4, 8 if name.startswith("DiT") else 16))
        return torch.randn(2, channels, side, side, generator=generator)
    if name in (*_TEXT, *_CAUSAL) and library == "transformers":
        return torch.randint(0, 1000, (2, 12), generator=generator)
    channels, *own = getattr(getattr(network, "model", network), "default_cfg", {}).get("input_size", (3, 224, 224))
    for size in ((64, 64), (96, 96), own):
        images = torch.randn(2, channels, *size, generator=generator)
        try:
            (run or network)(images)
        except Exception:  # the network takes one size
            continue
        return images
    raise ValueError("it runs on no image")
