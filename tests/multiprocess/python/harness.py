"""Runs the test_* functions of a module on every rank of epccl-run: each gets the communicator. Exit code 77: skipped, and why."""

import os
import sys
import time

try:
    import numpy as np
except ImportError:
    print("skipped: no NumPy for", sys.executable)
    sys.exit(77)

import epccl

from expectations import expect_error  # noqa: F401  (for the tests)


def seed() -> int:
    """One seed for all ranks; EPCCL_TEST_SEED repeats it."""
    return int(os.environ["EPCCL_TEST_SEED"])


def values(dtype, shape, source, salt=0):
    """Values that depend on source and place, never zero."""
    count = int(np.prod(shape))
    raw = (np.arange(count, dtype=np.int64) * 7 + source * 31 + salt * 13) % 97 + 1
    return raw.astype(dtype).reshape(shape)


def wait_until_asleep(thread):
    """Returns when a thread of this process sleeps in the call that it comes to, however busy the machine is."""
    deadline, seen = time.monotonic() + 60, 0
    while seen < 3:
        with open(f"/proc/self/task/{thread.native_id}/stat") as stat:
            seen = seen + 1 if stat.read().rpartition(")")[2].split()[0] == "S" else 0
        assert time.monotonic() < deadline, "the thread does not block"
        time.sleep(0.005)


def main(module):
    rank = int(os.environ.get("EPCCL_RANK", "0"))
    if "EPCCL_TEST_SEED" not in os.environ:
        os.environ["EPCCL_TEST_SEED"] = "20240607"
    names = [name for name in module if name.startswith("test_")]
    for name in names:
        with epccl.Communicator.from_launcher(timeout=60) as comm:
            try:
                module[name](comm)
            except BaseException:
                print(f"rank {rank}: {name} failed (EPCCL_TEST_SEED={seed()})", flush=True)
                raise
    if rank == 0:
        print(f"{len(names)} passed on {os.environ.get('EPCCL_WORLD_SIZE', '1')} ranks: {', '.join(names)}")
