"""Rank 0's process has the store, as without torchrun, and ends while the others are not through: what it was in they still end, and what they
begin then is an error that says what is gone.  first_rank_ends.py monitored_barrier|reply|others"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import epccl_torch

RANK, SIZE = int(os.environ["EPCCL_RANK"]), int(os.environ["EPCCL_WORLD_SIZE"])
LONG = timedelta(seconds=200)  # longer than the test may take


def store_of_rank_0():
    place = Path(os.environ["EPCCL_STORE"]) / "port"
    if RANK == 0:
        store = dist.TCPStore("127.0.0.1", 0, SIZE, True, wait_for_workers=False)
        (partly := place.with_suffix(".new")).write_text(str(store.port))
        partly.rename(place)
        return store
    while not place.exists():
        time.sleep(0.01)
    return dist.TCPStore("127.0.0.1", int(place.read_text()), SIZE, False)


def expect_error(part, call):
    try:
        call()
    except dist.DistBackendError as error:
        assert part in str(error), f"rank {RANK}: {error}"
    else:
        raise AssertionError(f"rank {RANK}: no error")


def monitored_barrier():
    dist.monitored_barrier()


def reply():
    """Rank 0 answers, and does not wait until that is received."""
    number = torch.zeros(3)
    if RANK == 1:
        dist.send(torch.ones(3), 0)
        dist.recv(number, 0)
        assert number.tolist() == [2, 2, 2]
    if RANK == 0:
        dist.recv(number, 1)
        dist.isend(number + 1, 1)


def others():
    dist.barrier()
    if RANK == 0:
        dist.destroy_process_group()
        os._exit(0)  # without an end that would wait for the others
    while True:  # until its process is gone, and the store with it
        try:
            store.check(["any"])
        except dist.DistNetworkError:
            break
        time.sleep(0.01)
    expect_error("has left after call", lambda: dist.all_reduce(torch.ones(3)))
    number = torch.zeros(3)
    expect_error(
        "the store of the process group does not answer",
        lambda: dist.send(number, 2) if RANK == 1 else dist.recv(number, 1),
    )


store = store_of_rank_0()
dist.init_process_group("epccl", store=store, rank=RANK, world_size=SIZE, timeout=LONG)
globals()[sys.argv[1]]()
dist.destroy_process_group()
print(f"rank {RANK}: {sys.argv[1]} ended", flush=True)
if RANK == 0:
    os._exit(0)  # at once
