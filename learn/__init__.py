"""Training of networks that learn where their heads look, from scratch or from a trained convolution."""

from .freezing import freeze
from .melting import melt, parameter_groups

__all__ = ["freeze", "melt", "parameter_groups"]
