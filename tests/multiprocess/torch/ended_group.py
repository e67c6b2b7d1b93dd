"""A group that has ended keeps nothing of its store: neither the port of a TCPStore nor the file of a FileStore."""

import gc
import os
import socket
import tempfile

import torch
import torch.distributed as dist

import epccl_torch  # noqa: F401


def make_and_end(**options):
    dist.init_process_group("epccl", rank=0, world_size=1, **options)
    group = dist.new_group()
    dist.all_reduce(torch.ones(1), group=group)
    del group
    dist.destroy_process_group()
    gc.collect()


with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
for number in range(2):
    store = dist.TCPStore("127.0.0.1", port, 1, is_master=True)  # of the same port again: EADDRINUSE if the first one still has it
    make_and_end(store=store)
    del store
    gc.collect()

with tempfile.TemporaryDirectory() as folder:
    place = os.path.join(folder, "store")
    make_and_end(init_method=f"file://{place}")
    assert not os.path.exists(place), "the store that removes it is still there"
