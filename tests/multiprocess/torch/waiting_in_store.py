"""A message arrives while its sender waits in the store, whose connection is the program's (of torchrun: a TCPStore)."""

import torch
import torch.distributed as dist
from harness import RANK, join

join("epccl")
store = dist.distributed_c10d._get_default_store()
tensor = torch.full((3,), float(RANK))
if RANK == 0:
    work = dist.isend(tensor + 7, 1)
    assert store.get("it has come") == b"yes"  # the other rank says so when it has the message
    work.wait()
if RANK == 1:
    dist.recv(tensor, 0)
    assert tensor.tolist() == [7.0] * 3
    store.set("it has come", "yes")
dist.barrier()
dist.destroy_process_group()
