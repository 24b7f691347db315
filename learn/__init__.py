"""Trains: networks that learn where their heads look, from nothing or from what a trained convolution knows."""

from .freezing.freeze import freeze
from .melting.groups import parameter_groups
from .melting.melt import melt

__all__ = ["freeze", "melt", "parameter_groups"]
