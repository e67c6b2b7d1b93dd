"""A message arrives while its sender waits in the store, whose connection is the program's (of torchrun: a TCPStore). All groups of
a process share one more."""

import os

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


def connections_to_store():
    """TCP connections of this process whose other end has the store's port."""
    own = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}
    rows = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}").readlines()[1:]]
    port = f"{int(os.environ['MASTER_PORT']):04X}"
    return sum(row[2].endswith(":" + port) and f"socket:[{row[9]}]" in own for row in rows)


before = connections_to_store()
assert before > 0
groups = [dist.new_group() for _ in range(5)]
assert connections_to_store() == before, (before, connections_to_store())
# Messages of each go their own way over it.
for number, group in enumerate(groups):
    if RANK == 0:
        dist.send(torch.full((2,), float(number)), 1, group=group)
    if RANK == 1:
        got = torch.zeros(2)
        dist.recv(got, None, group=group)
        assert got.tolist() == [float(number)] * 2
dist.barrier()
dist.destroy_process_group()
