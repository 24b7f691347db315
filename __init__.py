"""Changes a trained CNN's architecture without changing what it computes, and proves it.

    import conv2attn as c2a

    attention = c2a.attention_from_conv(conv)        # a convolution as self-attention, by Theorem 1
    model, report = c2a.convert_model(cnn)           # a network
    c2a.certify(attention, input_range=(-1, 1))      # a proven bound on the difference
    model, report = c2a.graft(cnn, example=images)   # attention that starts at the CNN's bits, and can learn
    c2a.same(model, cnn, images)                     # is the difference of two networks rounding?

The public names are loaded when they are first used, so ``import conv2attn`` does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .convert import (
        Conversion,
        ConversionError,
        SelfAttention,
        alpha_for,
        attention_from_conv,
        certify,
        certify_images,
        certify_network,
        compare_layers,
        conv_from_attention,
        convert_model,
        graft,
        load_converted,
        register_reader,
        restore_model,
        save_converted,
        ungraft,
    )
    from .convert.export.hub import HubNetwork
    from .convert.export.to_onnx import export_onnx
    from .convert.layer.layer import set_engine
    from .convert.sameness.blockwise import same_blocks
    from .convert.sameness.recorded import record_values
    from .convert.sameness.same import assert_same, same
    from .convert.sameness.serving import decode, left_padded, one_at_a_time, with_attention
    from .learn import freeze, melt, parameter_groups
    from .show.page.draw import draw

    __version__: str

_PLACES = {
    "HubNetwork": ".convert.export.hub",
    "assert_same": ".convert.sameness.same",
    "decode": ".convert.sameness.serving",
    "draw": ".show.page.draw",
    "export_onnx": ".convert.export.to_onnx",
    "freeze": ".learn",
    "left_padded": ".convert.sameness.serving",
    "melt": ".learn",
    "one_at_a_time": ".convert.sameness.serving",
    "parameter_groups": ".learn",
    "record_values": ".convert.sameness.recorded",
    "same": ".convert.sameness.same",
    "same_blocks": ".convert.sameness.blockwise",
    "set_engine": ".convert.layer.layer",
    "with_attention": ".convert.sameness.serving",
}
"""The modules of the public names that ``conv2attn.convert`` does not have."""

__all__ = [
    "Conversion",
    "ConversionError",
    "HubNetwork",
    "SelfAttention",
    "__version__",
    "alpha_for",
    "assert_same",
    "attention_from_conv",
    "certify",
    "certify_images",
    "certify_network",
    "compare_layers",
    "conv_from_attention",
    "convert_model",
    "decode",
    "draw",
    "export_onnx",
    "freeze",
    "graft",
    "left_padded",
    "load_converted",
    "melt",
    "one_at_a_time",
    "parameter_groups",
    "record_values",
    "register_reader",
    "restore_model",
    "same",
    "same_blocks",
    "save_converted",
    "set_engine",
    "ungraft",
    "with_attention",
]


def __getattr__(name: str) -> Any:
    """Loads a public name from the module that defines it."""
    if name == "__version__":
        return version("conv2attn")
    if name in __all__:
        return getattr(import_module(_PLACES.get(name, ".convert"), __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    hidden = set() if find_spec("huggingface_hub") else {"HubNetwork"}  # help() would load it, and fail
    return sorted({*__all__} - hidden)
