"""A program ends in a call of CUDA tensors that the others do not make: they hear at once that the rank has left the other groups, and the process
ends, long before the timeout. (The GPU is a double.)"""

import os
import time
from datetime import timedelta

import gpu_double as gpu
import torch
import torch.distributed as dist
from harness import RANK, expect_error, join

NEVER = timedelta(hours=1)

join("epccl", timeout=NEVER)
store = dist.distributed_c10d._get_default_store()
groups = [dist.new_group(backend="epccl", timeout=NEVER) for _ in range(4)]
on_host, on_gpu = torch.ones(3), gpu.to_gpu(torch.ones(3))
for group in groups:
    dist.all_reduce(on_gpu, group=group)
gpu.synchronize()
alone = groups.pop(1)
if RANK == 0:
    store.set("process of rank 0", str(os.getpid()))
    dist.all_reduce(on_gpu, group=alone, async_op=True)
else:
    process = int(store.get("process of rank 0"))
    for group in groups:
        expect_error(dist.DistBackendError, "has left after call", lambda: dist.all_reduce(on_host, group=group))
        on_gpu_too = dist.all_reduce(on_gpu, group=group, async_op=True)
        expect_error(dist.DistBackendError, "rank 0 ", lambda: on_gpu_too.wait(timedelta(minutes=1)))
    while os.path.exists(f"/proc/{process}"):
        time.sleep(0.01)
