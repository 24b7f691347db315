"""Other people's attention as a layer of ours that computes the same function.

A module is known by its parts, and a module that has them may still compute something else. So it is tried: a copy with
whole numbers for parameters, whose heads look at one pixel each, must give what the layer read from it gives, bit for
bit. Keys are what they are over there: the image's pixels, without padding (``padded.py`` adds it).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ...convert.attention.checked import checked_model
from ...convert.attention.layer import SelfAttention
from ...convert.errors import ConversionError
from ...convert.export.gpsa import GPSAConvolution, attention_from_gpsa
from ...convert.export.multihead import MultiheadConvolution, attention_from_multihead
from ..heads.attention import HeadAttention
from .multihead import read_multihead
from .parts import is_gaussian, is_gpsa, plant_gaussian, plant_gpsa, read_gaussian, read_gpsa


def attention_from(
    module: nn.Module,
    *,
    positions_alone: bool = False,
    tokens: Tensor | None = None,
    keys: Tensor | None = None,
    size: Sequence[int] | None = None,
) -> HeadAttention | SelfAttention:
    """The layer that computes what another library's attention computes.

    Args:
        module: GPSA as ConViT's authors and timm have it; the Gaussian attention of the paper's authors; an
            ``nn.MultiheadAttention`` whose queries and keys are positions; or what ``convert/export`` made. Its numbers
            are copied; dropout is left out, as in eval mode.
        positions_alone: Of GPSA whose gates let content in, take the positions without it: another function.
        tokens: Of ``nn.MultiheadAttention``, its queries, [pixels, embed_dim].
        keys: Of the same, its keys, [pixels, kdim]; by default the tokens.
        size: Of the same, rows and columns of the image.

    Returns:
        A ``HeadAttention`` whose keys are the image's pixels; of what ``convert/export`` made, the ``SelfAttention`` it
        was made of, bit for bit. In the module's mode, precision and device.

    Raises:
        ConversionError: The module is none of these, looks at content, computes something else than its parts
            say, or has numbers that are not finite.
    """
    checked_model(module, "module")
    if isinstance(module, MultiheadConvolution):
        return attention_from_multihead(module)
    if isinstance(module, GPSAConvolution):
        return attention_from_gpsa(module)
    dtypes = {parameter.dtype for parameter in module.parameters()}
    if not dtypes <= {torch.float32, torch.float64} or len(dtypes) > 1:
        raise ConversionError(f"its numbers must be all float32 or all float64: {sorted(map(str, dtypes))}")
    numbers = [*module.parameters(), *(tensor for tensor in (tokens, keys) if isinstance(tensor, Tensor))]
    if any(tensor.is_meta for tensor in numbers) or not all(bool(tensor.isfinite().all()) for tensor in numbers):
        raise ConversionError("its numbers, or those of its tokens, are not all finite, or have no values")
    if isinstance(module, nn.MultiheadAttention):
        layer = read_multihead(module, tokens, keys, size)
    elif is_gpsa(module):
        layer = read_gpsa(module, positions_alone=positions_alone)
        _try(module, plant_gpsa, lambda made: read_gpsa(made, positions_alone=False), lambda made, x: made(x))
    elif is_gaussian(module):
        layer = read_gaussian(module)
        _try(module, plant_gaussian, read_gaussian, lambda made, x: made(x, None))
    else:
        raise ConversionError(
            f"{type(module).__name__} has the parts of no attention known here: GPSA (pos_proj, gating_param, v, "
            "proj), Gaussian attention (attention_centers, attention_spreads, value), nn.MultiheadAttention"
        )
    return layer.train(module.training)


@torch.no_grad()
def _try(
    module: nn.Module,
    plant: Callable[[nn.Module, torch.Generator], Tensor],
    read: Callable[[nn.Module], HeadAttention],
    call: Callable[[nn.Module, Tensor], Tensor | tuple[Tensor, ...]],
) -> None:
    """Holds what is read from a module against its ``forward``, on whole numbers.

    Raises:
        ConversionError: They differ, or it does not run.
    """
    made = copy.deepcopy(module).eval()
    x = plant(made, torch.Generator().manual_seed(0))
    try:
        theirs = call(made, x)
    except Exception as error:  # whatever its code raises
        raise ConversionError(f"{type(module).__name__} could not be tried: {type(error).__name__}: {error}") from error
    output = theirs[0] if isinstance(theirs, tuple) else theirs
    layer = read(made)
    side = int(x.shape[1] ** 0.5)
    image = x if x.ndim == 4 else x.unflatten(1, (side, side))
    expected = layer(image)
    if not isinstance(output, Tensor) or not torch.equal(output.reshape(-1), expected.reshape(-1)):
        raise ConversionError(f"{type(module).__name__} computes something else than its parts say")
