"""Builds: from a trained convolution, the self-attention layer that computes the same function."""

from conv2attn.convert.attention import SelfAttention2d
from conv2attn.convert.certificate import Certificate, certify
from conv2attn.convert.construction import attention_from_conv, conv_from_attention
from conv2attn.convert.errors import ConversionError
from conv2attn.convert.folder import load_converted, save_converted
from conv2attn.convert.model import Conversion, convert_model, restore_model
from conv2attn.convert.spec import ConvSpec

__all__ = [
    "Certificate",
    "ConvSpec",
    "Conversion",
    "ConversionError",
    "SelfAttention2d",
    "attention_from_conv",
    "certify",
    "conv_from_attention",
    "convert_model",
    "load_converted",
    "restore_model",
    "save_converted",
]
