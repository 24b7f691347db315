"""Builds: from a trained convolution, the self-attention layer that computes the same function."""

from .agreement.layers import compare_layers
from .agreement.report import certify_report
from .certificate.data import certify_data, measure_input
from .certificate.layer import Certificate, certify
from .certificate.network.certificate import NetworkCertificate, certify_network
from .certificate.network.images import ImagesCertificate, certify_images
from .certificate.tolerance import alpha_for
from .errors import ConversionError
from .files.folder import save_converted
from .files.open import load_converted
from .layer.construction import attention_from_conv, conv_from_attention
from .layer.layer import SelfAttention, SelfAttention1d, SelfAttention2d, SelfAttention3d
from .network.convert import Conversion, convert_model, restore_model
from .network.graft import Graft, Ungraft, graft, ungraft
from .spec import ConvSpec
from .subclasses.readers import Reader, register_reader

__all__ = [
    "Certificate",
    "ConvSpec",
    "Conversion",
    "ConversionError",
    "Graft",
    "ImagesCertificate",
    "NetworkCertificate",
    "Reader",
    "SelfAttention",
    "SelfAttention1d",
    "SelfAttention2d",
    "SelfAttention3d",
    "Ungraft",
    "alpha_for",
    "attention_from_conv",
    "certify",
    "certify_data",
    "certify_images",
    "certify_network",
    "certify_report",
    "compare_layers",
    "conv_from_attention",
    "convert_model",
    "graft",
    "load_converted",
    "measure_input",
    "register_reader",
    "restore_model",
    "save_converted",
    "ungraft",
]
