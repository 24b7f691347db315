"""Remarks about a batch normalisation that may be folded into a node's weights."""

from __future__ import annotations

import re
from collections.abc import Mapping

_REWRITES, _FOLDING = "pkg.onnxscript.rewriter.rule_name", "FuseBatchNormIntoConv"  # written by torch's exporter
_ORIGIN = "pkg.torch.onnx."  # torch's exporter keeps such a record of every node
_COMPUTED_NAME = re.compile(r"onnx::|_v_\d+$")  # names that torch's older exporter and onnx-simplifier make up
FOLDED = "the exporter folded a batch normalisation into the weights, so the layer computes both"
COMPUTED = "the exporter computed the weights, as it does to fold in a batch normalisation, which is then in the layer"
OPEN = "the file leaves open whether the weights have a batch normalisation folded in; if so, the layer computes both"


def folding_note(metadata: Mapping[str, str], weight: str, *, has_bias: bool, normalised: bool) -> str | None:
    """Remark about a batch normalisation in a node's weights, or None if there is nothing to say.

    Without a record, the question is open only if the node has a bias and the graph has no batch normalisation left.

    Args:
        metadata: Metadata of the node.
        weight: Name of the tensor that its weights come from.
        has_bias: Whether it has a bias.
        normalised: Whether a batch normalisation is left in the model.
    """
    if _FOLDING in metadata.get(_REWRITES, ""):
        return FOLDED
    if _REWRITES in metadata or any(key.startswith(_ORIGIN) for key in metadata):
        return None
    if _COMPUTED_NAME.match(weight):
        return COMPUTED
    return OPEN if has_bias and not normalised else None
