"""CTranslate2: its converter of Llamas reads the network, whose names are those of transformers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import ctranslate2
import numpy as np
import torch
from ctranslate2.converters.transformers import LlamaLoader
from torch import Tensor, nn

from benchmarks.engines.networks import HEADS, VOCABULARY, Llama
from benchmarks.engines.port import Calls, CannotRunError

PACKAGE = "ctranslate2 transformers"
VERSION = ctranslate2.__version__
DECLARED = {
    "float32": "float32",
    "int8_float32": "8 bits",
    "float16": "float16 stored",
    "bfloat16": "bfloat16 stored",
}


def port(network: nn.Module, inputs: Tensor, way: str, folder: Path) -> Calls:
    """The network in CTranslate2."""
    if not isinstance(network, Llama):
        raise CannotRunError("it runs language models and translators alone")
    supported = ctranslate2.get_supported_compute_types("cpu")
    if way not in supported:
        raise CannotRunError(f"this processor has no {way}: CTranslate2 computes in {', '.join(sorted(supported))}")
    layers = network.model.layers
    network.config = SimpleNamespace(
        num_hidden_layers=len(layers), num_attention_heads=HEADS, rope_parameters=None, rope_theta=network.model.base
    )
    spec = LlamaLoader().get_model_spec(network)
    spec.register_vocabulary([f"t{place}" for place in range(VOCABULARY)])
    spec.config.layer_norm_epsilon = network.model.norm.eps
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = "t0"
    spec.validate()
    spec.optimize(quantization="int8" if way.startswith("int8") else None)
    (folder / "model").mkdir()
    spec.save(str(folder / "model"))
    generator = ctranslate2.Generator(str(folder / "model"), compute_type=way, intra_threads=1)

    def call(x: Tensor) -> tuple[Tensor, ...]:
        count = np.full(len(x), x.shape[1], dtype=np.int32)
        tokens, lengths = (ctranslate2.StorageView.from_array(one) for one in (x.numpy().astype(np.int32), count))
        return (torch.from_numpy(np.array(generator.forward_batch(tokens, lengths))),)

    return call
