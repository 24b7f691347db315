"""Training of networks that learn where their heads look, from scratch or from a trained convolution."""

from .freezing.freeze import freeze
from .imported.attention_from import attention_from
from .melting.groups import parameter_groups
from .melting.melt import melt

__all__ = ["attention_from", "freeze", "melt", "parameter_groups"]
