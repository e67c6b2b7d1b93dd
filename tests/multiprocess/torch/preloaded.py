"""PyTorch is imported and used with libepccl-nccl preloaded; run with LD_PRELOAD set to it.

Python resolves all symbols of what it loads: a function of NCCL that PyTorch is linked with and the library has not, ends the import.
"""
import ctypes

import torch
import torch.distributed as dist

version = ctypes.c_int()
process = ctypes.CDLL(None)
assert process.ncclGetVersion(ctypes.byref(version)) == 0
assert hasattr(process, "epccl_nccl_shim"), "NVIDIA's library is in front"
print("PyTorch", torch.__version__, "with NCCL", version.value)

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
value = torch.ones(3)
dist.all_reduce(value)
assert value.tolist() == [1, 1, 1]
dist.destroy_process_group()
