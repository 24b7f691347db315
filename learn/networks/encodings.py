"""The encodings by name: how a block's heads know positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...convert.errors import SelectionError
from ..heads.content import Content
from ..heads.gaussian import Gaussian, IsotropicGaussian
from ..heads.learned import Learned
from ..heads.positions import Positions
from ..heads.sinusoidal import SinusoidalAbsolute, SinusoidalRelative


@dataclass(frozen=True)
class HeadSizes:
    """Sizes that the heads of a layer are made for.

    Attributes:
        num_heads: Heads.
        channels: Channels of the layer's input.
        reach: Most keys along an axis.
        spread: Standard deviation of the first centres of Gaussian heads, in pixels.
        sharpness: Factor of the first scores of positions.
        key_dim: Dimension in which content is compared.
    """

    num_heads: int
    channels: int
    reach: int
    spread: float = 1.0
    key_dim: int = 16
    sharpness: float = 1.0


_POSITIONS: dict[str, Callable[[HeadSizes], Positions]] = {
    "quadratic": lambda sizes: IsotropicGaussian(sizes.num_heads, alpha=sizes.sharpness, spread=sizes.spread),
    "gaussian": lambda sizes: Gaussian(sizes.num_heads, alpha=sizes.sharpness, spread=sizes.spread),
    "learned": lambda sizes: Learned(sizes.num_heads, reach=sizes.reach, sharpness=sizes.sharpness),
    "sinusoidal": lambda sizes: SinusoidalRelative(
        sizes.num_heads, longest=2.0 * sizes.reach, sharpness=sizes.sharpness
    ),
    "absolute": lambda sizes: SinusoidalAbsolute(sizes.num_heads, longest=2.0 * sizes.reach, sharpness=sizes.sharpness),
}
_CONTENT = "+content"
ENCODINGS = ("quadratic", "gaussian", "learned", "learned+content", "sinusoidal", "absolute")
"""Encodings that a comparison has; every encoding can also be asked for with "+content"."""


def heads_of(encoding: str, sizes: HeadSizes) -> tuple[Positions, Content | None]:
    """The scores of a layer's heads.

    Args:
        encoding: One of quadratic, gaussian, learned, sinusoidal and absolute, which may be followed by "+content".
        sizes: What they are made for.

    Returns:
        Scores of positions, and of content, or None.

    Raises:
        SelectionError: There is no such encoding.
    """
    name = encoding.removesuffix(_CONTENT)
    if name not in _POSITIONS:
        known = ", ".join(_POSITIONS)
        raise SelectionError(f'there is no encoding {encoding!r}; there are {known}, each also with "{_CONTENT}"')
    content = None
    if name != encoding:
        content = Content(sizes.num_heads, sizes.channels, key_dim=sizes.key_dim, reach=sizes.reach)
    return _POSITIONS[name](sizes), content
