"""The other direction of the certificate: from a tolerance to the sharpness.

The tail falls as alpha grows: tau <= 2 n exp(-alpha) along n axes (claim ``tail-bound`` in
``proofs/claims/certificate/tail.py``). What rounding adds hardly depends on alpha, until attention becomes exactly
one-hot and the probabilities stop rounding. The certificate itself decides: the numbers of alpha's dtype between one
that does not meet the tolerance and one that does are halved until the two are neighbours, in some 30 certificates in
single and 60 in double precision.
"""

from __future__ import annotations

import torch

from ..arguments import as_number
from ..errors import ConversionError
from ..heads.regime import EXACT_ALPHA, Regime, compute_dtype
from ..heads.values import LayerValues
from ..layer.checked import checked_layer
from ..layer.layer import SelfAttention
from .layer import Certificate, InputRange, certify

FLATTEST_ALPHA = 2.0**-6  # a head then reaches over some 30 pixels: flatter ones are not looked for

_INTEGERS = {4: torch.int32, 8: torch.int64}  # by bytes: the bits of a floating-point number


def alpha_for(tolerance: float, layer: SelfAttention | LayerValues, input_range: InputRange) -> float:
    """A sharpness that is certified for a tolerance, while its predecessor in alpha's dtype is not.

    Bisection finds it; a smaller alpha that is certified as well is not excluded.

    Args:
        tolerance: Largest allowed difference of any output.
        layer: The layer; its present sharpnesses do not matter.
        input_range: As for ``certify``.

    Returns:
        A number alpha of the dtype of ``layer.alpha``, to be shared by all heads. The certificate with alpha meets the
        tolerance, and the certificate with the next smaller number of that dtype does not. ``FLATTEST_ALPHA`` where
        that meets the tolerance already.

    Raises:
        ConversionError: The tolerance is not a positive number, or smaller than what rounding alone may come to; the
            message gives the smallest that can be met. Also where ``certify`` raises it.

    Examples:
        >>> layer = c2a.attention_from_conv(torch.nn.Conv2d(3, 8, kernel_size=3))
        >>> layer.set_positions(alpha=c2a.alpha_for(0.01, layer, (-1, 1)))
        >>> c2a.certify(layer, input_range=(-1, 1)).bound <= 0.01
        True
    """
    layer, tolerance = checked_layer(layer), as_number(tolerance, "tolerance")
    if not tolerance > 0:
        raise ConversionError(f"tolerance must be a positive number; got {tolerance}")
    exact = EXACT_ALPHA[compute_dtype(layer.weight.dtype)]
    reachable = _certified(layer, exact, input_range).bound
    if not reachable <= tolerance:
        raise ConversionError(
            f"no alpha meets the tolerance {tolerance:g} on this input range: in {layer.weight.dtype} rounding alone "
            f"may come to {reachable:.3g}, with exactly one-hot attention; allow that much, or use a wider dtype"
        )

    if _certified(layer, FLATTEST_ALPHA, input_range).bound <= tolerance:
        return FLATTEST_ALPHA
    dtype = layer.regime.dtype
    bits = _INTEGERS[dtype.itemsize]  # positive floating-point numbers are in the order of their bits read as integers
    below, above = (int(torch.tensor(end, dtype=dtype, device="cpu").view(bits)) for end in (FLATTEST_ALPHA, exact))
    while above - below > 1:
        middle = (below + above) // 2
        if _certified(layer, _number(middle, dtype), input_range).bound <= tolerance:
            above = middle
        else:
            below = middle
    return _number(above, dtype)


def _certified(layer: LayerValues, alpha: float, input_range: InputRange) -> Certificate:
    """The certificate that the layer would have with this sharpness."""
    regime = layer.regime
    regime = Regime.of(layer.spec, alpha=alpha, centers=regime.centers, dtype=regime.dtype)
    return certify(layer._replace(regime=regime), input_range=input_range)


def _number(bits: int, dtype: torch.dtype) -> float:
    return float(torch.tensor(bits, dtype=_INTEGERS[dtype.itemsize], device="cpu").view(dtype))
