"""Whether a batch normalisation is folded into a node's weights, as far as the file tells."""

from __future__ import annotations

import re

from .nodes import Node
from .protobuf import Message

_KEY, _VALUE = 1, 2  # of an entry of metadata
_REWRITES, _FOLDING = "pkg.onnxscript.rewriter.rule_name", "FuseBatchNormIntoConv"  # what torch's exporter did
_ORIGIN = "pkg.torch.onnx."  # torch's exporter keeps such a record of every node
_COMPUTED_NAME = re.compile(r"onnx::|_v_\d+$")  # how torch's older exporter and onnx-simplifier name what they compute
FOLDED = "the exporter folded a batch normalisation into the weights, so the layer computes both"
COMPUTED = "the exporter computed the weights, as it does to fold in a batch normalisation, which is then in the layer"
OPEN = "the file leaves open whether the weights have a batch normalisation folded in; if so, the layer computes both"


def folding_note(node: Node, weight: str, *, has_bias: bool, normalised: bool) -> str | None:
    """What is known of a batch normalisation in a node's weights.

    Without a record, a bias is needed for the question to be open, and no batch normalisation left in the graph.

    Args:
        node: The node.
        weight: The name of the tensor that its weights were taken from.
        has_bias: Whether it has a bias.
        normalised: Whether a batch normalisation is left in the graph.
    """
    records = [told for told in map(_folded, node.metadata) if told is not None]
    if records:
        return FOLDED if any(records) else None
    if _COMPUTED_NAME.match(weight):
        return COMPUTED
    return OPEN if has_bias and not normalised else None


def _folded(message: Message) -> bool | None:
    """Whether an entry of a node's metadata tells of folding; None if it is no record of torch's exporter."""
    parts = {part.number: part for part in message.fields()}
    key = message.text(parts[_KEY]) if _KEY in parts else ""
    if key == _REWRITES and _VALUE in parts:
        return _FOLDING in message.text(parts[_VALUE])
    return False if key.startswith(_ORIGIN) else None
