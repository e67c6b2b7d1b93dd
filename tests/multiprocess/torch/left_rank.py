"""A program ends and has not destroyed its group: the others hear that the rank has left, before Python has taken PyTorch apart, and after the
calls of its exit functions."""

import atexit
from datetime import timedelta


def last_call():
    dist.all_reduce(total)


atexit.register(last_call)  # before the backend is loaded, so it runs after what that registers

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from harness import RANK, SIZE, expect_error, join, same  # noqa: E402

join("epccl")
store = dist.distributed_c10d._get_default_store()
pairs = dist.new_group(backend="epccl", timeout=timedelta(hours=1))  # in which nobody has sent anything
total = torch.ones(3)
if RANK != SIZE - 1:
    last_call()
    same(total, torch.full((3,), float(SIZE)), "with the last rank's exit function")
    store.set(f"{RANK} is through", "")  # who hears of the rank that left tells the others, wherever they are
    store.wait([f"{rank} is through" for rank in range(SIZE - 1)])
    expect_error(dist.DistBackendError, "has left after call", lambda: dist.all_reduce(total))
    for message in (dist.isend(torch.zeros(1), SIZE - 1, pairs), dist.irecv(torch.zeros(1), SIZE - 1, pairs)):
        expect_error(dist.DistBackendError, "has left the process group", message.wait)
    atexit.unregister(last_call)
    print(f"rank {RANK} heard of it", flush=True)
