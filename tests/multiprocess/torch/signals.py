"""Signals of the program are handled on its own threads: those of a group let them pass."""

import os
import signal
import tempfile

import torch
import torch.distributed as dist

import epccl_torch  # noqa: F401


def threads():
    return set(os.listdir("/proc/self/task"))


def blocks(thread, number):
    with open(f"/proc/self/task/{thread}/status") as status:
        mask = next(line.split()[1] for line in status if line.startswith("SigBlk:"))
    return int(mask, 16) >> (number - 1) & 1 == 1


torch.ones(1).add_(1)  # with the threads of PyTorch that come with it
before = threads()
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("epccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
    dist.all_reduce(torch.ones(1), async_op=True).wait()
    new = threads() - before
    takers = {
        number.name: sum(not blocks(thread, number) for thread in new)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGUSR1, signal.SIGCHLD)
    }
    dist.destroy_process_group()
assert new, "a group without threads"
assert not any(takers.values()), f"of {len(new)} threads so many take it: {takers}"
