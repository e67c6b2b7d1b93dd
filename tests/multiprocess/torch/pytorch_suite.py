"""PyTorch's own tests of torch.distributed, as its wheel brings them, over EPCCL with CPU tensors.

    pytorch_suite.py RANKS [PATTERN]

What PyTorch runs with gloo is run here, and what it runs with MPI alone (all-to-all of CPU tensors). There a test has processes of its own;
here the ranks are forked once, since importing these tests takes longer than running them, and share one default group.
"""

import importlib.util
import os
import re
import sys
import tempfile
import traceback
import types
import unittest
from datetime import timedelta

RANKS = int(sys.argv[1])
PATTERN = sys.argv[2] if len(sys.argv) > 2 else "."
# What is not run, and why. The rest of what is not run needs a GPU, and says so itself.
ITS_NAME, ITS_WORDS = "expects the name of one of PyTorch's own backends", "looks for gloo's words in an error"
NOT_RUN = {
    "test_barrier_timeout_full_group": f"times a call, and {ITS_WORDS}",
    "test_barrier_timeout_global": f"times a call, and {ITS_WORDS}",
    "test_barrier_timeout_group": f"times a call, and {ITS_WORDS}",
    "test_ddp_logging_data_cpu": ITS_NAME,
    "test_get_backend": ITS_NAME,
    "test_monitored_barrier_failure_order": ITS_WORDS,
    "test_monitored_barrier_gloo": ITS_WORDS,
    "test_monitored_barrier_gloo_rank_0_timeout": ITS_WORDS,
}

scratch = tempfile.TemporaryDirectory()
os.makedirs(f"{scratch.name}/test_dir")
# Which tests there are is decided when they are imported: those of gloo.
os.environ.update(BACKEND="gloo", WORLD_SIZE=str(RANKS), TEMP_DIR=scratch.name, OMP_NUM_THREADS="1", MASTER_ADDR="localhost")

import torch
import torch.distributed as dist

import epccl_torch  # noqa: F401

torch.set_num_threads(1)
if importlib.util.find_spec("expecttest") is None:  # they import it, and these do not use it
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)
try:
    from torch.testing._internal import common_distributed
    from torch.testing._internal.common_utils import TestCase
    from torch.testing._internal.distributed import distributed_test
except ImportError as missing:
    print(f"skipped: this PyTorch comes without its tests, or without what they need: {missing}")
    sys.exit(0)

os.environ["BACKEND"] = "mpi"  # (the one backend whose tests of some of the ranks do not ask for eight)
distributed_test.PROFILING_SUPPORTED_BACKENDS.append("epccl")
distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append("epccl")
SKIPS = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}


class Suite(distributed_test.DistributedTest._DistTestBase, TestCase):
    world_size = str(RANKS)

    def _barrier(self, *_, **__):
        dist.barrier()


def why_not(name):
    function = getattr(Suite, name)
    if name in NOT_RUN:
        return NOT_RUN[name]
    why = getattr(function, "__unittest_skip_why__", "") if getattr(function, "__unittest_skip__", False) else ""
    return "" if why.startswith("Only MPI supports") else why


def run_one(name, rank):
    """Returns why it was not run, or nothing."""
    if why := why_not(name):
        return why
    test = Suite(name)
    test.rank = rank
    torch.manual_seed(1)
    try:
        getattr(test, name)()
    except unittest.SkipTest as skip:
        return str(skip)
    except SystemExit as ended:
        if ended.code not in SKIPS:
            raise
        return SKIPS[ended.code]
    return None


def run_all(rank, names):
    store = dist.FileStore(f"{scratch.name}/store", RANKS)
    dist.init_process_group("epccl", store=store, rank=rank, world_size=RANKS, timeout=timedelta(seconds=60))
    passed, skipped = [], {}
    for name in names:
        try:
            why = run_one(name, rank)
        except BaseException:
            print(f"rank {rank}: {name} failed\n{traceback.format_exc()}", flush=True)
            return 1
        dist.barrier()
        for group in list(dist.distributed_c10d._world.pg_map):
            if group is not dist.group.WORLD:
                dist.destroy_process_group(group)
        if why is None:
            passed.append(name)
        else:
            skipped.setdefault(why, []).append(name)
    dist.destroy_process_group()
    if rank == 0:
        for why, its in sorted(skipped.items()):
            print(f"not run, {why}: {', '.join(its)}")
        print(f"{len(passed)} of PyTorch {torch.__version__}'s own tests passed on {RANKS} ranks: {', '.join(passed)}", flush=True)
    return 0


def rank_process(rank, names):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = run_all(rank, names)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    return pid


def main():
    names = [name for name in unittest.TestLoader().getTestCaseNames(Suite) if re.search(PATTERN, name)]
    running = {rank_process(rank, names) for rank in range(RANKS)}
    failed = 0
    while running:
        pid, status = os.wait()
        running.discard(pid)
        failed += status != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
