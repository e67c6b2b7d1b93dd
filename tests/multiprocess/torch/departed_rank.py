"""Ranks die, leave or give up before the first message with them: who waits for such a message hears it, and can leave himself, long before
the timeout. (The timeout is far beyond the test's.)"""

import os
import signal
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from harness import RANK, SIZE, expect_error, join

NEVER = timedelta(hours=1)
LAST = SIZE - 1


def first_messages(peer, group, said):
    one = torch.zeros(1)
    send, receive = dist.isend(one, peer, group=group), dist.irecv(torch.zeros(1), peer, group=group)
    failures = [expect_error(dist.DistBackendError, said, work.wait) for work in (send, receive)]
    expect_error(dist.DistBackendError, said, lambda: dist.send(one, peer, group=group))
    return failures[0]


def a_rank_that_has_left():
    group = dist.new_group(backend="epccl", timeout=NEVER)
    if RANK != LAST:
        first_messages(LAST, group, "has left the process group")
    dist.destroy_process_group(group)


def give_up_a_receive(source, group):
    """What it has written into the store stays there."""
    dist.set_timeout(timedelta(seconds=1), group)
    expect_error(dist.DistBackendError, "has not come within 1000 ms", dist.irecv(torch.zeros(1), source, group=group).wait)
    dist.set_timeout(NEVER, group)


def a_rank_that_has_given_up_its_receive():
    group = dist.new_group(backend="epccl", timeout=NEVER)
    if RANK == 1:
        give_up_a_receive(0, group)
    dist.barrier()
    if RANK == 0:
        alone = dist.isend(torch.zeros(1), 1, group=group)
        time.sleep(0.3)  # it finds what rank 1 has written, and waits for it
        dist.destroy_process_group(group)
        expect_error(dist.DistBackendError, "destroyed", alone.wait)
    dist.barrier()
    if RANK != 0:
        dist.destroy_process_group(group)


def a_rank_that_was_killed():
    if RANK == LAST:
        give_up_a_receive(0, None)
    dist.barrier()
    if RANK == LAST:
        time.sleep(3)  # rank 0 waits for it already
        os.kill(os.getpid(), signal.SIGKILL)
    failure = first_messages(LAST, None, f"rank {LAST} ")
    assert "died" in str(failure), failure
    print(f"rank {RANK} names it: {failure}", flush=True)


join("epccl", timeout=NEVER)
a_rank_that_has_left()
a_rank_that_has_given_up_its_receive()
a_rank_that_was_killed()
os._exit(0)  # (the group of a job that lost a rank)
