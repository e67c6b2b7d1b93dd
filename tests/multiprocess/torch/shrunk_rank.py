"""Ranks are excluded from a group, one because it was killed: the others go on in a smaller group, at last the default one."""

import os
import signal
import sys

import torch
import torch.distributed as dist
from harness import RANK, SIZE, expect_error, join
from torch.distributed.distributed_c10d import SHRINK_ABORT, SHRINK_DEFAULT

LOST = 1


def sum_of_ranks(group, members):
    got = torch.tensor([float(RANK)])
    dist.all_reduce(got, group=group)
    assert got.item() == sum(members), (got, members)


join("epccl")
group = dist.new_group()
if RANK in (1, 2):
    pair = dist.shrink_group([0, 3], group=group)
    assert dist.get_world_size(pair) == 2 and dist.get_rank(pair) == RANK - 1
    sum_of_ranks(pair, (1, 2))
    request = dist.irecv(torch.zeros(1), 3 - RANK, group=pair)  # peers are named by their global rank
    dist.send(torch.ones(1), 3 - RANK, group=pair)
    request.wait()

got = torch.zeros(SIZE)
dist.all_to_all_single(got, torch.ones(SIZE))
store = dist.distributed_c10d._get_default_store()
store.set(f"{RANK} is through", "")
if RANK == LOST:
    store.wait([f"{rank} is through" for rank in range(SIZE)])
    os.kill(os.getpid(), signal.SIGKILL)
under_way = dist.all_to_all_single(got, torch.ones(SIZE), async_op=True)
expect_error(dist.DistBackendError, f"rank {LOST} ", under_way.wait)

world = dist.shrink_group([LOST], shrink_flags=SHRINK_ABORT if RANK == 0 else SHRINK_DEFAULT)
rest = [rank for rank in range(SIZE) if rank != LOST]
assert world is dist.group.WORLD and dist.get_world_size() == len(rest) and dist.get_rank() == rest.index(RANK)
for _ in range(3):
    sum_of_ranks(world, rest)
got = torch.zeros(len(rest))
dist.all_to_all_single(got, torch.full((len(rest),), float(RANK)))
assert got.tolist() == rest
dist.destroy_process_group()
print(f"rank {RANK} went on without rank {LOST}", flush=True)
sys.stdout.flush()
