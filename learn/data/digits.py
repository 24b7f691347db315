"""Handwritten digits: 1797 real ones of 8 x 8 pixels, which scikit-learn ships.

They are the test set of the UCI's "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, 1998). The
division is ours, and always the same: 60 % train, 15 % choose, 25 % test.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ...convert.errors import ToolError
from .images import ImageData, Split, divided

_LARGEST = 16.0  # grey values are counts of dark pixels of 16
_SHARES = 0.25, 0.15  # test, validation
_SEED = 0


def digits(side: int | None = None) -> ImageData:
    """The digits, [1, 8, 8] each, values from -1 to 1.

    Args:
        side: Rows and columns to scale them to, bilinearly.

    Raises:
        ToolError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise ToolError(
            'the digits come with scikit-learn, which is not installed: pip install "conv2attn[learn]"'
        ) from error
    found = load_digits()
    images = torch.from_numpy(found.images).float().unsqueeze(1).mul_(2 / _LARGEST).sub_(1)
    if side is not None:
        images = F.interpolate(images, (side, side), mode="bilinear")
    test, validation, train = divided(Split(images, torch.from_numpy(found.target).long()), shares=_SHARES, seed=_SEED)
    return ImageData("digits", tuple("0123456789"), train, validation, test)
