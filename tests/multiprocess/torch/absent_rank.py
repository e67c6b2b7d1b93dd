"""A rank does not come: all the others are told which one, also those that wait for rank 0 alone."""

from datetime import timedelta

import torch.distributed as dist
from harness import RANK, SIZE, expect_error, join

LAST = SIZE - 1
if RANK != LAST:
    failure = expect_error(dist.DistBackendError, f"have not come: {LAST}", lambda: join("epccl", timeout=timedelta(seconds=40)))
    print(f"rank {RANK} is told: {failure}", flush=True)
