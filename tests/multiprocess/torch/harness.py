"""Ranks of torch.distributed for a test: of epccl-run (a file as store) or of torchrun, with EPCCL and gloo side by side."""

import inspect
import os
import sys
from datetime import timedelta
from pathlib import Path

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist

import epccl_torch  # noqa: F401  (an installed package is found when its backend is named)

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
from expectations import expect_error  # noqa: E402, F401  (for the tests)

torch.set_num_threads(1)
RANK = int(os.environ.get("EPCCL_RANK", os.environ.get("RANK", "0")))
SIZE = int(os.environ.get("EPCCL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1")))
DEVICE = os.environ.get("TEST_DEVICE", "cpu")
BACKEND = os.environ.get("TEST_BACKEND", "epccl")
TIMEOUT = timedelta(seconds=60)
if BACKEND == "nccl":
    # NVIDIA's library refuses ranks that share a GPU, unless it takes them to be on different hosts: then they reach each other by sockets.
    for name, value in (("NCCL_HOSTID", f"rank{RANK}"), ("NCCL_SOCKET_IFNAME", "lo"), ("NCCL_NET", "Socket")):
        os.environ.setdefault(name, value)


def join(backend, timeout=TIMEOUT, name="store", **options):
    """init_process_group, with torchrun's environment or, under epccl-run, with a file in TEST_STORE."""
    if "TEST_STORE" in os.environ:
        store = dist.FileStore(os.path.join(os.environ["TEST_STORE"], name), SIZE)
        dist.init_process_group(backend, store=store, rank=RANK, world_size=SIZE, timeout=timeout, **options)
    else:
        dist.init_process_group(backend, timeout=timeout, **options)


def values(dtype, shape, source, salt=0):
    """Small whole numbers that depend on source and place, never zero: sums of a few are exact in every dtype."""
    count = 1
    for size in shape:
        count *= size
    raw = (torch.arange(count) * 7 + source * 5 + salt * 3) % 4 + 1
    return raw.to(torch.int64).to(dtype).reshape(shape) if dtype != torch.bool else (raw % 2 == 0).reshape(shape)


def same(got, want, what):
    """Every bit equal."""
    assert got.dtype == want.dtype and got.shape == want.shape, (what, got.shape, want.shape)
    if got.dtype.is_floating_point and got.element_size() == 1:
        got, want = got.view(torch.uint8), want.view(torch.uint8)
    assert torch.equal(got, want), f"{what}: rank {RANK}\n got {got}\nwant {want}"


def lacks():
    """Functions that this version of PyTorch has not, or has for other backends only."""
    for name in ("gather_single", "set_timeout"):
        if not hasattr(dist, name):
            yield name
    if not hasattr(torch._C._distributed_c10d.Backend, "new_window"):
        yield "new_window"
    if "only implemented for GLOO" in inspect.getsource(dist.monitored_barrier):
        yield "monitored_barrier"


def names_in(code):
    """All that a function, and those inside it, name."""
    return set(code.co_names).union(*(names_in(part) for part in code.co_consts if inspect.iscode(part)))


def main(module):
    """Runs the test_* functions of a module in order, each with a group of EPCCL; the default group is gloo's."""
    join("gloo")
    missing = set(lacks())
    names = [name for name in module if name.startswith("test_")]
    skipped = {name for name in names if missing & names_in(inspect.unwrap(module[name]).__code__)}
    if RANK == 0 and skipped:
        print(f"skipped, since this PyTorch lacks {', '.join(sorted(missing))}: {', '.join(sorted(skipped))}", flush=True)
    names = [name for name in names if name not in skipped]
    for name in names:
        group = dist.new_group(backend="epccl", timeout=TIMEOUT)
        try:
            module[name](group)
        except BaseException:
            print(f"rank {RANK}: {name} failed", flush=True)
            raise
        dist.destroy_process_group(group)
        dist.barrier()
        if RANK == 0:
            print(f"passed: {name}", flush=True)
    dist.destroy_process_group()
    if RANK == 0:
        print(f"{len(names)} passed on {SIZE} ranks, PyTorch {torch.__version__}: {', '.join(names)}")
        sys.stdout.flush()
