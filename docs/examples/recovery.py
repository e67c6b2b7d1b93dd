"""Ranks die, and the others go on: each of them runs train(epccl.Communicator.from_launcher(timeout=30), 100)."""

from __future__ import annotations

import time
from typing import Callable

import epccl
import numpy as np


def recover(comm: epccl.Communicator, step: int, seconds: float = 120) -> tuple[epccl.Communicator, int]:
    """Of a communicator that has failed: one of the ranks that are left, and the step that all of these have come to."""
    until = time.monotonic() + seconds
    while True:
        try:
            # Empty: who has died is not known yet, or nobody has: one is stuck. Who went on all the same would not know whom to leave out.
            if lost := comm.lost_ranks():
                left = comm.shrink(lost, abort=True)
                try:
                    first = np.array([step], np.int64)
                    left.allreduce(first, op=epccl.RedOp.MIN)
                except epccl.EpcclError:
                    left.abort()
                    raise
                comm.abort()
                return left, int(first[0])
        except epccl.EpcclError as failure:
            # One that was to come has died, too, or ranks do not know of the same deaths yet: next time more is known.
            print(f"rank {comm.rank}: once more, {failure}", flush=True)
        if time.monotonic() > until:
            raise TimeoutError(f"rank {comm.rank} knows of no way to go on without ranks {comm.lost_ranks()}")
        time.sleep(0.1)


def train(comm: epccl.Communicator, steps: int, one_step: Callable[[epccl.Communicator, int], None]) -> epccl.Communicator:
    """The communicator at the end."""
    step = 0
    while step < steps:
        try:
            one_step(comm, step)
            step += 1
        except epccl.EpcclError:
            comm, step = recover(comm, step)
    return comm
