"""Builds: from a trained convolution, the self-attention layer that computes the same function."""

from .attention.construction import attention_from_conv, conv_from_attention
from .attention.layer import SelfAttention2d
from .certificate.comparison import compare_layers
from .certificate.data import certify_data, measure_input
from .certificate.layer import Certificate, certify
from .certificate.propagation.certificate import NetworkCertificate, certify_network
from .certificate.tolerance import alpha_for
from .errors import ConversionError
from .files.load import load_converted
from .files.save import save_converted
from .model.convert import Conversion, convert_model, restore_model
from .spec import ConvSpec

__all__ = [
    "Certificate",
    "ConvSpec",
    "Conversion",
    "ConversionError",
    "NetworkCertificate",
    "SelfAttention2d",
    "alpha_for",
    "attention_from_conv",
    "certify",
    "certify_data",
    "certify_network",
    "compare_layers",
    "conv_from_attention",
    "convert_model",
    "load_converted",
    "measure_input",
    "restore_model",
    "save_converted",
]
