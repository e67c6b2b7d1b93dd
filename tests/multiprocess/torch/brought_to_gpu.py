"""torch.distributed for tests of host memory, with every tensor of a call brought to the GPU and back.

The GPU is a double (gpu_double), or with TEST_GPU=real a GPU that all ranks share (gpu_real).
"""

import contextlib
import functools
import os

import torch
import torch.distributed as dist

if os.environ.get("TEST_GPU") == "real":
    import gpu_real as gpu
else:
    import gpu_double as gpu

    torch.cuda.get_device_capability = lambda device=None: (9, 0)  # what torch.distributed asks of it


class Brought:
    """Work of a call on the GPU, whose results go back to where the test has its tensors."""

    def __init__(self, work, back):
        self.work, self.back = work, back

    def wait(self, *timeout):
        result = self.work.wait(*timeout)
        self.back()
        return result

    def is_completed(self):
        if completed := self.work.is_completed():
            self.back()
        return completed

    def __getattr__(self, name):
        return getattr(self.work, name)


coalesced = None  # what is to come back when the calls that are gathered now are made


@contextlib.contextmanager
def coalescing(group):
    global coalesced
    coalesced = []
    with dist._coalescing_manager(group):
        yield
    for back in coalesced:
        back()
    coalesced = None


def on_gpu(call):
    @functools.wraps(call)
    def brought(*arguments, **named):
        if not any(isinstance(each, dist.ProcessGroup) for each in (*arguments, *named.values())):
            return call(*arguments, **named)  # of gloo, the default group: what comes is compared with it
        pairs = {}

        def there(thing):
            if isinstance(thing, (list, tuple)):
                return [there(part) for part in thing]
            if not isinstance(thing, torch.Tensor) or thing.is_cuda:
                return thing
            if id(thing) not in pairs:
                pairs[id(thing)] = thing, gpu.to_gpu(thing)
            return pairs[id(thing)][1]

        def back():
            for here, moved in pairs.values():
                here.copy_(moved)

        with torch.no_grad():
            work = call(*map(there, arguments), **{name: there(thing) for name, thing in named.items()})
            if isinstance(work, dist.Work):
                return Brought(work, back)
            if coalesced is None:
                back()
            else:
                coalesced.append(back)
            return work

    return brought


class OnGpu:
    """torch.distributed, on the GPU."""

    MOVED = {
        "all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "gather", "gather_single", "scatter",
        "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "send", "recv", "isend", "irecv",
    }  # fmt: skip

    _coalescing_manager = staticmethod(coalescing)

    def __getattr__(self, name):
        return on_gpu(getattr(dist, name)) if name in self.MOVED else getattr(dist, name)
