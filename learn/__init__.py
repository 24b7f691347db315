"""Training of networks that learn where their heads look, from scratch or from a trained convolution."""

from .freezing.freeze import freeze
from .melting.groups import parameter_groups
from .melting.melt import melt

__all__ = ["freeze", "melt", "parameter_groups"]
