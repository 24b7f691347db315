"""A search for violations of certificates of given images: adversarial programs of random networks.

    python -m benchmarks.attack 0 1000

Plays programs (``tests/convert/certificate/network/attacked.py``) against ``.certified``, ``.bound``, the margins'
bounds and ``.error`` of networks with these numbers, half in float32 and half in bfloat16, under either hypothesis.
Prints violations, progress, and a summary as JSON. The exit code is 1 if there is a violation.
"""

from __future__ import annotations

import json
import sys
from collections import Counter

import torch

from conv2attn.convert import ConversionError
from tests.convert.certificate.network.attacked import attacks


def search(first: int, last: int) -> int:
    """Attacks the networks of a range of numbers; the number of violations."""
    torch.set_num_threads(1)  # tensors are small
    counts, worst, why = Counter[str](), Counter[str](), Counter[str]()
    for seed in range(first, last):
        try:
            found = attacks(seed)
        except ConversionError as reason:
            counts["refused"] += 1
            why[str(reason).rpartition(": ")[2]] += 1
            continue
        counts["networks"] += 1
        for hypothesis, one in found.items():
            counts["certificates"] += 1
            counts["certified"] += one.certified
            counts["without a bound"] += not one.bounded
            counts["violations"] += len(one.violations)
            worst[hypothesis] = max(worst[hypothesis], one.share)  # type: ignore[assignment]
            worst["error"] = max(worst["error"], one.error)  # type: ignore[assignment]
            for what in one.violations:
                print(f"network {seed}, {hypothesis}: {what}", flush=True)
        if seed % 50 == 49:
            print(seed + 1, dict(counts), dict(worst), file=sys.stderr, flush=True)
    print(json.dumps({"range": [first, last], **counts, "largest share": dict(worst), "refused because": dict(why)}))
    return counts["violations"]


if __name__ == "__main__":
    sys.exit(bool(search(*map(int, sys.argv[1:]))))
