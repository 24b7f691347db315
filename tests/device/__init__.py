"""A device that is not there: "pretend", which computes on the CPU and is as strict as a GPU.

Few machines that run the tests have a GPU. What a GPU would refuse, or wait for, is seen here without one: a tensor of
the device "pretend" has its numbers in the CPU's memory, and its dispatch key, its autograd and its name from another
device, through PyTorch's door for devices that are written elsewhere (PrivateUse1). So every operation on it comes by
``pretend.py``, which

- raises when a tensor of the device meets one of the CPU, where CUDA would: 0-dimensional CPU tensors are numbers, and
  may; CPU tensors may be indices of a device's tensor, which copies them there;
- records each time that the CPU would wait for a GPU: numbers read (``item``, ``tolist``, ``bool``, ``torch.equal``),
  results whose shape depends on numbers (``nonzero``, masks as indices, ``unique``), and copies between the two, in
  either direction, unless they are ``non_blocking``. ``torch.cuda.set_sync_debug_mode`` counts the same.

What it cannot show: speed, memory, TF32, the rounding of other kernels, streams and races. The tests that use it run on
"cuda" as well where there is one (``make cuda``).

    from tests.device import DEVICES, synchronisations

    x = torch.zeros(2, 3, device="pretend")
    with synchronisations(x.device) as found:
        x.sum().item()
    assert found == ["aten._local_scalar_dense.default"]
"""

from tests.device.available import DEVICES, synchronisations
from tests.device.pretend import PRETEND, PretendTensor

__all__ = ["DEVICES", "PRETEND", "PretendTensor", "synchronisations"]
