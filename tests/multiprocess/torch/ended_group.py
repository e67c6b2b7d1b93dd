"""A group that has ended keeps nothing of its store: neither the port of a TCPStore nor the file of a FileStore."""

import contextlib
import gc
import os
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


def listens(port):
    """Whether a socket of this process listens there."""
    own = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the folder's own, which is closed by now
            own.add(os.readlink(f"/proc/self/fd/{number}"))
    listening = "0A"
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with contextlib.suppress(FileNotFoundError), open(table) as lines:
            for fields in [line.split() for line in lines][1:]:
                at = int(fields[1].rsplit(":", 1)[1], 16)
                if at == port and fields[3] == listening and f"socket:[{fields[9]}]" in own:
                    return True
    return False


store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
port = store.port
assert listens(port), "this test sees no listening sockets"
make_and_end(store=store)
del store
gc.collect()
assert not listens(port), "the store that listens there is still there"

with tempfile.TemporaryDirectory() as folder:
    place = os.path.join(folder, "store")
    make_and_end(init_method=f"file://{place}")
    assert not os.path.exists(place), "the store that removes it is still there"
