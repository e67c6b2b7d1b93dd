"""The package is for host memory, and says so where memory is a GPU's. EPCCL_DEVICE is cuda here."""

import epccl
from harness import expect_error, np


class OnGpu:
    """As CuPy's arrays and PyTorch's CUDA tensors say where they are."""

    dtype = np.dtype("float32")
    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (1 << 40, False), "version": 3}


said = "memory of a GPU"
for make in (lambda: epccl.mem_alloc(100), lambda: epccl.empty((2, 3))):
    assert "EPCCL_DEVICE" in str(expect_error(epccl.InvalidUsage, said, make))
with epccl.Communicator.from_launcher(timeout=20) as comm:
    on_host = np.zeros(3, "float32")
    expect_error(TypeError, f"send: {said}", lambda: comm.alltoall(OnGpu(), on_host))
    expect_error(TypeError, f"recv: {said}", lambda: comm.alltoall(on_host, OnGpu()))
