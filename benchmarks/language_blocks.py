"""Memory and time of ``same_blocks`` on a language model of 0.5 billion random parameters in bfloat16, and 128 tokens.

    python benchmarks/language_blocks.py

Needs transformers, 4 GB, and some minutes. The second model has another implementation of attention in all layers, and
another eps in one norm of layer 11.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import resource
import time
import warnings
from typing import Any

import torch
from zoo import declare_operators

from conv2attn.convert.sameness.blockwise import same_blocks

TOKENS, WRONG = 128, 11
_SIZES = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "vocab_size": 151936}
_HEADS = {"num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True}


def _peak() -> float:
    """Bytes of memory that the process has used at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


@torch.no_grad()
def main() -> None:
    """Measures, and prints a line of JSON."""
    warnings.simplefilter("ignore")
    declare_operators()
    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    a = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**_SIZES, **_HEADS)).eval()
    torch.set_default_dtype(torch.float32)
    b = copy.deepcopy(a)
    b.set_attn_implementation("eager")
    b.model.layers[WRONG].input_layernorm.variance_epsilon = 1e-2
    ids = torch.randint(0, 1000, (1, TOKENS))
    a(ids)
    before, start, used = _peak(), time.monotonic(), time.process_time()
    found = same_blocks(a, b, ids)
    record = {
        "parameters": sum(one.numel() for one in a.parameters()),
        "gigabytes above both models": (_peak() - before) / 1e9,
        "seconds": time.monotonic() - start,
        "seconds of processors": time.process_time() - used,
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "sentence": found.sentence,
        "not rounding": [one.name for one in found.blocks if one.found.exit_code],
        "blocks": len(found.blocks),
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
