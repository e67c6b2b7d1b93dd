"""A process that forks beside its groups: a child is refused calls of them, and one that ends as Python programs do, its interpreter taken
apart and all, ends nothing of the parent's."""

import os
import sys

import torch
import torch.distributed as dist
from harness import RANK, SIZE, expect_error, join, same

join("epccl")
total = torch.ones(3)
work = dist.all_reduce(total, async_op=True)  # so that there is a thread that the child lacks
work.wait()
if RANK % 2:
    dist.send(total, (RANK + 1) % SIZE)
else:
    dist.recv(total, (RANK - 1) % SIZE)

child = os.fork()
if child == 0:
    for call in (
        lambda: dist.all_reduce(total, async_op=True).wait(),
        lambda: dist.isend(total, (RANK + 1) % SIZE).wait(),
        dist.monitored_barrier,
    ):
        expect_error(RuntimeError, "forked", call)
    if RANK < 2:
        dist.destroy_process_group()
    sys.exit(7)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, f"the child ended with status {status}"

dist.all_reduce(total)
same(total, torch.full((3,), float(SIZE * SIZE)), "after the child's end")
dist.destroy_process_group()
