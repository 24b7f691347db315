"""Nodes of an exported program, as its JSON has them."""

from __future__ import annotations

from typing import Any

STACK = "call,net.conv,torch.nn.modules.conv.Conv2d"


def node(operation: str, output: str, *, stack: str | None = STACK, **given: Any) -> dict[str, object]:
    """A node as JSON has it: texts that begin with % are tensors, lists of such are lists of tensors."""

    def argument(value: Any) -> dict[str, object]:
        if isinstance(value, str) and value.startswith("%"):
            return {"as_tensor": {"name": value}}
        if isinstance(value, list) and value and str(value[0]).startswith("%"):
            return {"as_tensors": [{"name": name} for name in value]}
        return {"as_none": True} if value is None else {f"as_{type(value).__name__}": value}

    return {
        "name": output.removeprefix("%"),
        "target": f"torch.ops.aten.{operation}",
        "inputs": [{"name": name, "arg": argument(value)} for name, value in given.items()],
        "outputs": [{"as_tensor": {"name": output}}],
        "metadata": {} if stack is None else {"nn_module_stack": f"0,,Net;1,net,Part;{stack}"},
    }
