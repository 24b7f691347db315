"""The forms in which attention is written, and the nodes of one layer in one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ...bounds.rounding import joined_error, literal_error
from ...errors import OptionError
from ...heads.values import LayerValues
from .grid import Grid
from .heads import Heads
from .literal import literal
from .nodes import COMPUTED, STORED, Nodes
from .separable import separable

if TYPE_CHECKING:
    from onnx import NodeProto


class Form(NamedTuple):
    """A way to write attention.

    Attributes:
        name: Name.
        write: Adds the attention of all heads to a graph.
        error: Its error in floating point, as ``Engine.error``, whatever the order of its sums.
    """

    name: str
    write: Callable[[Nodes, Grid, Heads, str], str]
    error: Callable[[LayerValues], float]


FORMS = {
    form.name: form
    for form in (
        Form("separable", separable, joined_error),  # a softmax an axis, which is affordable at any size
        Form("literal", literal, literal_error),  # scores, softmax over all keys, products: as the paper writes it
    )
}
"""The forms by name."""
DEFAULT_FORM = "separable"
OPSET = 11
"""The first version of the standard that has the operators of the forms."""


def form_named(name: str) -> Form:
    """The form of a name, or an OptionError if there is none."""
    if name not in FORMS:
        raise OptionError(f"there is no form {name!r}; there are {', '.join(FORMS)}")
    return FORMS[name]


def refusal(layer: LayerValues) -> str | None:
    """Why a layer cannot be written as ONNX, or None if it can."""
    if layer.content is not None:
        return "its content terms have no form in ONNX here"
    if layer.axis_scores is not None:
        return "its positional scores are learned tables, which have no form in ONNX here"
    if not layer.regime.is_read:
        return "its alpha and centers have no values, as on the meta device"
    return None


def layer_nodes(layer: LayerValues, form: str, *, x: str, weight: str, bias: str, output: str) -> list[NodeProto]:
    """The nodes that compute a layer, of which only geometry, positions and precision are looked at.

    From the names of the input, [batch, in_channels, *size], of the weight as the convolution holds it and of the bias,
    or "", they compute the output of the name that is given, [batch, out_channels, *output size].
    """
    nodes, spec, stored, computed = Nodes(output), layer.spec, layer.weight.dtype, layer.regime.dtype
    if stored != computed:
        x, weight = (nodes.cast(part, COMPUTED[computed]) for part in (x, weight))
        bias = bias and nodes.cast(bias, COMPUTED[computed])
    attended = FORMS[form].write(nodes, Grid.of(nodes, spec, x), Heads.of(layer), weight)
    if bias:
        own = nodes.reshaped(bias, -1, *[1] * spec.axes)
        attended = nodes.add("Add", attended, own, name="with_bias", description="The bias of the output projection.")
    nodes.add("Cast", attended, output=output, name="output", to=STORED[stored], description=str(spec))
    return nodes.written
