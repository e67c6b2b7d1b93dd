"""A rank is killed: every other one gets an error that names it, long before the timeout."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from harness import RANK, SIZE, expect_error, join

join("epccl")
store = dist.distributed_c10d._get_default_store()
got = torch.zeros(SIZE)
dist.all_to_all_single(got, torch.ones(SIZE))
anyone = dist.irecv(torch.zeros(1))  # (no rank has sent a message yet)
store.set(f"{RANK} is through", "")
if RANK == SIZE - 1:
    store.wait([f"{rank} is through" for rank in range(SIZE)])
    os.kill(os.getpid(), signal.SIGKILL)
begin = time.monotonic()
try:
    dist.all_to_all_single(got, torch.ones(SIZE))
except dist.DistBackendError as failure:
    expect_error(dist.DistBackendError, f"rank {SIZE - 1} ", anyone.wait)
    assert time.monotonic() - begin < 30, failure
    print(f"rank {RANK} names it: {failure}", flush=True)
    sys.stdout.flush()
    os._exit(0)  # (the group of a job that lost a rank)
sys.exit("no error")
