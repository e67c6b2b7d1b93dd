"""torchrun starts the ranks again after one was killed: they find each other, and not what the first ones left in torchrun's store."""

import os
import signal

import torch
import torch.distributed as dist
from harness import RANK, SIZE, join, same

attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
join("epccl")
everybody = torch.zeros(SIZE)
dist.all_to_all_single(everybody, torch.full((SIZE,), RANK + 1.0))
same(everybody, torch.arange(1.0, SIZE + 1), f"attempt {attempt}")
# Messages have communicators of their own, from any rank through the store's list of senders.
if RANK == 0:
    for _ in range(SIZE - 1):
        got = torch.zeros(1)
        source = dist.recv(got)
        same(got, torch.tensor([source + 1.0]), f"attempt {attempt}: message from rank {source}")
else:
    dist.send(torch.tensor([RANK + 1.0]), 0)
dist.monitored_barrier()
# Rank 0's end is the worst: its rendezvous, whose address is still in the store, is gone.
if attempt == 0 and RANK == 0:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
dist.destroy_process_group()
if RANK == 0:
    print(f"attempt {attempt} is through")
