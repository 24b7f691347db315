"""Builds: from a trained convolution, the self-attention layer that computes the same function."""

from conv2attn.convert.attention import SelfAttention2d
from conv2attn.convert.certificate import Certificate, certify
from conv2attn.convert.comparison import compare_layers
from conv2attn.convert.construction import attention_from_conv, conv_from_attention
from conv2attn.convert.errors import ConversionError
from conv2attn.convert.folder import load_converted, save_converted
from conv2attn.convert.measure import certify_data, measure_input
from conv2attn.convert.model import Conversion, convert_model, restore_model
from conv2attn.convert.network_certificate import NetworkCertificate, certify_network
from conv2attn.convert.spec import ConvSpec
from conv2attn.convert.tolerance import alpha_for

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
