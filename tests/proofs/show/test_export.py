"""``conv2attn export`` writes what other tools load, and refuses in one sentence what they cannot say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import nn

from conv2attn.convert import ConversionError, ConvSpec, SelfAttention2d, convert_model, load_converted, save_converted
from conv2attn.convert.examples.networks import plain_cnn
from conv2attn.convert.export.gpsa import GatedPositionalAttention, GPSAConvolution, attention_from_gpsa
from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.files.checkpoint import Opening
from conv2attn.convert.size import Size
from conv2attn.proofs.show.export import export_network
from conv2attn.proofs.terminal.options import Target

SPEC = Architecture("conv2attn.convert.examples.networks:plain_cnn", {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_converted(convert_model(plain_cnn().eval()).model, tmp_path / "net", architecture=SPEC)
    return tmp_path / "net"


def export(folder: Path, out: Path, to: Target, size: Size) -> None:
    kept: dict[str, Any] = {"opening": Opening(), "alpha": None, "skip_unsupported": False, "form": None}
    export_network(folder, out, to=to, size=size, force=False, **kept)


def test_tensors_of_multihead_attention_are_loaded_by_pytorchs_own_class(folder: Path, tmp_path: Path) -> None:
    export(folder, tmp_path / "heads.safetensors", "mha", Size(12, 12))
    cnn = plain_cnn()
    with safe_open(tmp_path / "heads.safetensors", "pt") as file:
        described = json.loads(file.metadata()["multihead_attention"])
        names = list(file.keys())
        keys = ("embed_dim", "num_heads", "kdim", "vdim", "batch_first")
        assert len(described) == sum(isinstance(module, nn.Conv2d) for module in cnn.modules())
        for name, about in described.items():
            module = nn.MultiheadAttention(**{key: about[key] for key in keys})
            prefix = f"{name}.attention."
            module.load_state_dict({k.removeprefix(prefix): file.get_tensor(k) for k in names if k.startswith(prefix)})
            tokens = torch.randn(1, file.get_tensor(f"{name}.keys").shape[0], about["vdim"])
            queries, positions = (file.get_tensor(f"{name}.{part}")[None] for part in ("queries", "keys"))
            _, weights = module(queries, positions, tokens)
            assert weights.shape[1] == torch.Size(about["output_size"]).numel()


def test_tensors_of_gpsa_hold_the_networks_layers(folder: Path, tmp_path: Path) -> None:
    export(folder, tmp_path / "heads.safetensors", "gpsa", Size(12, 12))
    layers = {n: m for n, m in load_converted(folder).named_modules() if isinstance(m, SelfAttention2d)}
    with safe_open(tmp_path / "heads.safetensors", "pt") as file:
        described = json.loads(file.metadata()["gpsa"])
        assert described.keys() == layers.keys()
        for name, about in described.items():
            module = GatedPositionalAttention(about["dim"], about["num_heads"])
            prefix = f"{name}.attention."
            module.load_state_dict(
                {k.removeprefix(prefix): file.get_tensor(k) for k in file.keys() if k.startswith(prefix)}  # noqa: SIM118
            )
            places, (rows, columns) = file.get_tensor(f"{name}.places"), about["output_size"]
            assert len(places) == rows * columns
            whole = GPSAConvolution(ConvSpec.from_json(about["geometry"]), Size(*about["size"]), dtype=torch.float32)
            whole.attention = module
            again = attention_from_gpsa(whole).state_dict()
            assert all(torch.equal(value, again[key]) for key, value in layers[name].state_dict().items())


def test_gpsa_says_of_every_layer_what_is_missing(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConversionError, match=r"as gpsa: .*GPSA is for square images; the layer's keys are 14x12 pixel"
    ):
        export(folder, tmp_path / "gpsa.safetensors", "gpsa", Size(12, 10))
    assert [path.name for path in tmp_path.iterdir()] == ["net"]
