"""A group that is dropped as soon as its calls are complete is left in order, though its thread is still in what a completion brings with it: that
the others come later to the same calls is no reason to abort them."""

import os
import threading
import time

import epccl_torch
import torch
import torch.distributed as dist
from harness import RANK, SIZE, same

LONG = 600.0
store = dist.FileStore(os.path.join(os.environ["TEST_STORE"], "store"), SIZE)
group = epccl_torch._C.create(store, RANK, SIZE, LONG, list(range(SIZE)), "dropped")
options = dist.BroadcastOptions()
options.rootRank, options.asyncOp = 0, True
tensor = torch.full((3,), float(RANK + 1))

if RANK == 0:
    in_callback = threading.Event()

    def callback(_):
        in_callback.set()
        time.sleep(0.5)

    work = group.broadcast([tensor], options)
    future = work.get_future()
    after = future.then(callback)
    future.wait()
    in_callback.wait()
    del work, group
    store.set("dropped", "")
    after.wait()
else:
    store.wait(["dropped"])
    group.broadcast([tensor], options).wait()
    same(tensor, torch.ones(3), "of the rank that has dropped its group")
    del group
store.set(f"{RANK} is through", "")
store.wait([f"{rank} is through" for rank in range(SIZE)])
