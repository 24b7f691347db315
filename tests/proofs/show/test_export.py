"""``conv2attn export`` writes what other tools load, and refuses in one sentence what they cannot say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import nn

from conv2attn.convert import ConversionError, convert_model, save_converted
from conv2attn.convert.errors import OptionError
from conv2attn.convert.examples.networks import plain_cnn
from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.size import Size
from conv2attn.proofs.show.export import export_network
from conv2attn.proofs.terminal.options import Target

SPEC = Architecture("conv2attn.convert.examples.networks:plain_cnn", {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_converted(convert_model(plain_cnn().eval()).model, tmp_path / "net", architecture=SPEC)
    return tmp_path / "net"


def export(folder: Path, out: Path, to: Target, form: str | None = None) -> None:
    export_network(
        folder, out, to=to, architecture=None, ema=False, alpha=None, skip_unsupported=False,
        size=Size(12, 12), form=form, force=False,
    )  # fmt: skip


def test_tensors_of_multihead_attention_are_loaded_by_pytorchs_own_class(folder: Path, tmp_path: Path) -> None:
    export(folder, tmp_path / "heads.safetensors", Target.mha)
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


def test_gpsa_says_what_is_missing(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="reads embed_dim / heads channels"):
        export(folder, tmp_path / "gpsa", Target.gpsa)
    assert [path.name for path in tmp_path.iterdir()] == ["net"]


def test_a_form_is_for_onnx_only(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="ONNX files only"):
        export(folder, tmp_path / "heads.safetensors", Target.mha, form="literal")
