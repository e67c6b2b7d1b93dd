"""Ranks that are forked children of multiprocessing, which end by os._exit(), without exit functions: one that returns has left its groups, as any
program that ends, and does not count as dead.

    forked_rank.py     needs no launcher
"""

import multiprocessing
import os
import sys
import tempfile
import threading
import time
from datetime import timedelta

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from expectations import expect_error  # noqa: E402

SIZE = 3
LAST = SIZE - 1
NEVER = timedelta(hours=1)


def join(rank, store):
    import epccl_torch  # noqa: F401  (under fork it is the parent that has it already)

    torch.set_num_threads(1)
    dist.init_process_group("epccl", store=dist.FileStore(store, SIZE), rank=rank, world_size=SIZE, timeout=NEVER)
    return dist.new_group(backend="epccl", timeout=NEVER)


def one_returns_first(rank, store, first_is_gone):
    """The others make their first connection when its process is no more."""
    pairs = join(rank, store)
    if rank == LAST:
        return
    first_is_gone.wait()
    got = torch.zeros(4)
    for group in (None, pairs):
        if rank == 0:
            dist.send(torch.ones(4), 1, group)
            dist.recv(got, 1, group)
        else:
            dist.recv(got, 0, group)
            dist.send(torch.ones(4), 0, group)
        assert got.tolist() == [1.0] * 4, got
    said = expect_error(dist.DistBackendError, f"rank {LAST} ", lambda: dist.all_reduce(got))
    assert "has left after call" in str(said), said
    expect_error(dist.DistBackendError, "has left the process group", lambda: dist.send(got, LAST, pairs))


def messages_of_ranks_that_return(rank, store, first_is_gone):
    """What a rank has sent arrives, though it has returned; and its line to this one has been left."""
    join(rank, store)
    got = torch.zeros(4)
    if rank == LAST:
        dist.send(got, 0, tag=1)
        dist.send(got + 3, 0, tag=2)
    elif rank == 0:
        dist.recv(got, LAST, tag=1)
        first_is_gone.wait()
        dist.recv(got, LAST, tag=2)
        assert got.eq(3).all()
        said = expect_error(dist.DistBackendError, "", lambda: dist.recv(got, LAST))
        assert "died" not in str(said), said


def a_thread_goes_on(rank, store, first_is_gone):
    """The calls of threads that the process waits for are made before it leaves."""
    join(rank, store)

    def later():
        time.sleep(0.3)
        got = torch.ones(4)
        dist.all_reduce(got)
        assert got.tolist() == [float(SIZE)] * 4
        done.set()

    done = threading.Event()
    threading.Thread(target=later).start()
    if rank != LAST:
        done.wait()


def run(method, body):
    context = multiprocessing.get_context(method)
    first_is_gone = context.Event()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        ranks = [context.Process(target=body, args=(rank, store, first_is_gone)) for rank in range(SIZE)]
        for each in ranks:
            each.start()
        ranks[LAST].join()
        first_is_gone.set()
        for each in ranks:
            each.join()
    codes = [each.exitcode for each in ranks]
    assert codes == [0] * SIZE, f"{method}: {body.__name__}: the ranks ended with {codes}"
    print(f"passed: {method}: {body.__name__}", flush=True)


if __name__ == "__main__":
    import epccl_torch  # noqa: F401

    for start_method in ("fork", "forkserver", "spawn"):
        run(start_method, one_returns_first)
    for each_body in (messages_of_ranks_that_return, a_thread_goes_on):
        run("fork", each_body)
