"""A rank is killed: every other one gets an error that names it, long before the timeout."""

import os
import signal
import sys
import time

import epccl_torch
import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
from harness import RANK, SIZE, expect_error, join

join("epccl")
store = dist.distributed_c10d._get_default_store()
got = torch.zeros(SIZE)
dist.all_to_all_single(got, torch.ones(SIZE))
anyone = dist.irecv(torch.zeros(1))  # (no rank has sent a message yet)
# Of a death it does not count what the group is called, though texts say it.
named = epccl_torch._C.create(dist.PrefixStore("named", store), RANK, SIZE, 60.0, list(range(SIZE)), "timeout: a name")
if RANK == SIZE - 1:
    for other in range(RANK):
        named.send([torch.ones(1)], other, 0).wait()
else:
    named.recv([torch.zeros(1)], SIZE - 1, 0).wait()
    second = named.recv([torch.zeros(1)], SIZE - 1, 0)
store.set(f"{RANK} is through", "")
if RANK == SIZE - 1:
    store.wait([f"{rank} is through" for rank in range(SIZE)])
    os.kill(os.getpid(), signal.SIGKILL)
begin = time.monotonic()
try:
    dist.all_to_all_single(got, torch.ones(SIZE))
except dist.DistBackendError as failure:
    expect_error(dist.DistBackendError, f"rank {SIZE - 1} ", anyone.wait)
    expect_error(dist.DistBackendError, "timeout: a name", second.wait)
    comm_error = 2  # c10d::WorkResult::COMM_ERROR
    assert second.get_future_result().wait() == comm_error
    assert named.get_error() == c10d.ErrorType.COMM_ERROR, named.get_error()
    assert time.monotonic() - begin < 30, failure
    print(f"rank {RANK} names it: {failure}", flush=True)
    sys.stdout.flush()
    os._exit(0)  # (the group of a job that lost a rank)
sys.exit("no error")
