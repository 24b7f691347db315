"""Builds: from a trained convolution, the self-attention layer that computes the same function.

The names are loaded when they are first used: a module of this room that needs no torch imports none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_PLACES = {
    ".agreement.layers": "compare_layers",
    ".agreement.report": "certify_report",
    ".certificate.data": "certify_data measure_input",
    ".certificate.layer": "Certificate certify",
    ".certificate.network.certificate": "NetworkCertificate certify_network",
    ".certificate.network.images": "ImagesCertificate certify_images",
    ".certificate.tolerance": "alpha_for",
    ".errors": "ConversionError",
    ".files.folder": "save_converted",
    ".files.open": "load_converted",
    ".layer.construction": "attention_from_conv conv_from_attention",
    ".layer.layer": "SelfAttention SelfAttention1d SelfAttention2d SelfAttention3d",
    ".network.convert": "Conversion convert_model restore_model",
    ".network.graft": "Graft Ungraft graft ungraft",
    ".spec": "ConvSpec",
    ".subclasses.readers": "Reader register_reader",
}
"""The modules of the names."""

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


def __getattr__(name: str) -> Any:
    """Loads a name from the module that defines it."""
    for place, names in _PLACES.items():
        if name in names.split():
            return getattr(import_module(place, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
