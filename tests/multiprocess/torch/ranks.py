"""Starts the ranks of a test as epccl-run does, but forks them off one process that has loaded PyTorch, which takes longer than most tests do.

    ranks.py [--nodes NODES] [--import MODULE]... RANKS SCRIPT [ARGUMENT]...

MODULE: what the script, or PyTorch beneath it, imports besides, and takes as long. Where a rank fails the others have 10 s to end by themselves.
How programs are started by epccl-run, and die, is for tests that use it.
"""

import argparse
import contextlib
import importlib
import os
import runpy
import signal
import sys
from pathlib import Path

GRACE = 10.0


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--import", action="append", default=[], dest="modules")
    parser.add_argument("ranks", type=int)
    parser.add_argument("script", type=Path)
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    return parser.parse_args()


def environment(rank, ranks, nodes):
    per_node = -(-ranks // nodes)
    values = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank % per_node}
    values |= {f"EPCCL_{name}": value for name, value in values.items()}
    values["EPCCL_STORE"] = f"{os.environ['TEST_STORE']}/ranks"
    return values | ({"EPCCL_HOSTID": f"node{rank // per_node}"} if nodes > 1 else {})


def kill(ranks):
    for pid in ranks:
        with contextlib.suppress(ProcessLookupError):  # its end is just being told
            os.kill(pid, signal.SIGKILL)


def wait_for(ranks):
    """The exit code of the first rank that failed, or 0."""
    failed = 0
    while ranks:
        pid, status = os.wait()
        rank = ranks.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if code and not failed:
            failed = code if code > 0 else 128 - code
            print(f"rank {rank} failed: {code}", flush=True)
            signal.signal(signal.SIGALRM, lambda *_: kill(ranks))
            signal.setitimer(signal.ITIMER_REAL, GRACE)
    return failed


def fork(options):
    """Returns in each rank; the process that has forked them ends here."""
    for name in ["torch.distributed", *options.modules]:
        importlib.import_module(name)
    os.mkdir(f"{os.environ['TEST_STORE']}/ranks", 0o700)
    ranks = {}
    for rank in range(options.ranks):
        pid = os.fork()
        if pid == 0:
            os.environ.update({name: str(value) for name, value in environment(rank, options.ranks, options.nodes).items()})
            return
        ranks[pid] = rank
    # (whose environment outside of them is this one's)
    print("processes of the ranks:", *ranks, flush=True)
    # As a process that ends at once: that unloads nothing.
    failed = wait_for(ranks)
    sys.stdout.flush()
    os._exit(failed)


options = arguments()
os.environ["OMP_NUM_THREADS"] = "1"  # before PyTorch is loaded
fork(options)
sys.argv = [str(options.script), *options.rest]
sys.path[0] = str(options.script.resolve().parent)
runpy.run_path(str(options.script), run_name="__main__")
