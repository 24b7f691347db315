"""Small stand-ins for timm, torchvision and transformers, which tests must not need: their registries, nothing else.

Each has one network, ``tiny``, and records what would have been fetched in its ``fetched``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

TIMM = {
    "timm/__init__.py": """
        from torch import nn
        fetched = []
        known = {"tiny": 3, "tinier": 2, "large_net": 9}
        def is_model(name): return name.split(".")[0] in known
        def list_models(): return list(known)
        def create_model(model_name, pretrained=False, pretrained_cfg=None, checkpoint_path=None, width=None, **kwargs):
            if pretrained or checkpoint_path or ":" in model_name:
                fetched.append(model_name)
            made = nn.Sequential(nn.Conv2d(3, width or known.get(model_name.split(".")[0], 1), 1))
            made.pretrained_cfg = pretrained_cfg
            return made
    """,
    "timm/data.py": """
        import torch
        def resolve_data_config(args, pretrained_cfg): return {"mode": pretrained_cfg["crop_mode"]}
        def create_transform(mode, is_training):
            assert mode == "squash" and not is_training
            return lambda picture: torch.full((3, picture.height, picture.width), 7.0)
    """,
}
TORCHVISION = {
    "torchvision/__init__.py": "",
    "torchvision/models/__init__.py": """
        import torch
        from torch import nn
        from . import segmentation, quantization
        fetched = []
        class Net(nn.Sequential): pass
        def tiny(*, weights=None, progress=True, width=3):
            if weights is not None: fetched.append(weights)
            return Net(nn.Conv2d(3, width, 1))
        def unregistered(): return Net()
        _all = {"tiny": tiny, "segmenter": segmentation.segmenter, "quantized_tiny": quantization.tiny}
        def list_models(): return list(_all)
        def get_model_builder(name): return _all[name]
        class ImageClassification:
            def __call__(self, picture): return torch.full((3, picture.height, picture.width), 7.0)
            mean, std, crop_size = [0.5, 0.25, 0.5], [0.5, 0.5, 0.25], [7]
        class ObjectDetection: pass
        class VideoClassification(ImageClassification): pass
        _transforms = {"tiny": ImageClassification, "segmenter": ObjectDetection, "quantized_tiny": VideoClassification}
        class Weights:
            def __init__(self, name): self.name, self.transforms = name, _transforms[name]
            def __str__(self): return f"{self.name}.DEFAULT"
            @property
            def DEFAULT(self): return self
        def get_model_weights(name): return Weights(name)
        def get_weight(name): return Weights(name.removesuffix(".DEFAULT"))
    """,
    "torchvision/models/segmentation.py": """
        from torch import nn
        fetched = []
        def segmenter(*, weights=None, weights_backbone="IMAGENET1K_V1", classes=4):
            fetched.extend(w for w in (weights, weights_backbone) if w is not None)
            return nn.Sequential(nn.Conv2d(3, classes, 3))
    """,
    "torchvision/models/quantization.py": """
        from torch import nn
        def tiny(*, weights=None): return nn.Sequential(nn.Conv2d(3, 7, 1))
    """,
}
TRANSFORMERS = {
    "transformers/__init__.py": """
        import json
        from pathlib import Path
        import torch
        from .modeling_utils import PreTrainedModel
        from .models.tiny import TinyConfig, TinyForImages
        class AutoImageProcessor:
            @staticmethod
            def from_pretrained(folder, local_files_only):
                config = json.loads(Path(folder, "preprocessor_config.json").read_text())
                assert local_files_only and "auto_map" not in config and config["crop_pct"] == 0.5
                return lambda images, return_tensors: {
                    "pixel_values": torch.full((1, 3, images.height, images.width), 7.0)
                }
    """,
    "transformers/modeling_utils.py": """
        from torch import nn
        class PreTrainedModel(nn.Module):
            config_class = None
    """,
    "transformers/models/__init__.py": "",
    "transformers/models/tiny.py": """
        import json
        from pathlib import Path
        import torch
        from torch import nn
        from ..modeling_utils import PreTrainedModel
        fetched = []
        class TinyConfig:
            def __init__(self, width=2, use_pretrained_backbone=False, backbone_config=None, **kwargs):
                self.width = width
                if use_pretrained_backbone or (backbone_config or {}).get("use_pretrained_backbone"):
                    fetched.append(width)
            @classmethod
            def from_dict(cls, config): return cls(**config)
        class TinyForImages(PreTrainedModel):
            config_class = TinyConfig
            def __init__(self, config):
                super().__init__()
                self.config, self.conv = config, nn.Conv2d(3, config.width, 3)
            @classmethod
            def from_pretrained(cls, folder, *, config, local_files_only, trust_remote_code, output_loading_info):
                assert local_files_only
                made = cls(config)
                state = torch.load(Path(folder) / "weights.pth")
                found = made.load_state_dict(state, strict=False)
                return made, {"missing_keys": found.missing_keys}
    """,
    "transformers/utils/__init__.py": "",
    "transformers/utils/logging.py": """
        shown = True
        def is_progress_bar_enabled(): return shown
        def disable_progress_bar(): globals().update(shown=False)
        def enable_progress_bar(): globals().update(shown=True)
    """,
    "transformers/dynamic_module_utils.py": """
        import importlib.util
        def get_class_from_dynamic_module(reference, folder, local_files_only):
            module, name = reference.split(".")
            spec = importlib.util.spec_from_file_location(module, f"{folder}/{module}.py")
            made = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(made)
            return getattr(made, name)
    """,
}


def install(files: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the modules importable; what is imported of them goes again with the test."""
    library = next(iter(files)).partition("/")[0]
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    for name in [known for known in sys.modules if known.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    modules = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files]
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)  # remembered as absent, so that it is taken away afterwards
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(folder)
