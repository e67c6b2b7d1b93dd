"""How a communicator ends that the program does not destroy.

    endings.py EPCCL-RUN [OPTION...]    every case, each as two ranks; what rank 1 prints tells
    endings.py . CASE                   one of these ranks
"""

import math
import os
import select
import subprocess
import sys

import epccl
from epccl import program_end

try:
    import numpy as np  # expert parallelism needs it
except ImportError:
    np = None

LARGE = 1 << 22  # not sent before somebody receives it
kept = []  # until the program ends


def join(keep=True, **settings):
    comm = epccl.Communicator.from_launcher(**{"timeout": 60, **settings})
    if keep:
        kept.append(comm)
    return comm


class Other:
    """The process of rank 0."""

    def __init__(self, comm):
        pid = bytearray(os.getpid().to_bytes(8, "little"))
        comm.broadcast(pid)
        try:
            self.end = os.pidfd_open(int.from_bytes(pid, "little"))
        except ProcessLookupError:
            self.end = None

    def wait_until_gone(self):
        if self.end is not None and not select.select([self.end], [], [], 60)[0]:
            sys.exit("rank 0 does not end")


def send(comm, **how):
    comm.send(b"7", 1, **how)


def receive(comm, size=1):
    """What the case shows: a message, or the reason why there is none."""
    message = bytearray(size)
    try:
        comm.recv(message, 0)
        if failure := comm.async_error():
            raise failure
        print("received", message[:1].decode(), flush=True)
    except epccl.RemoteError as failure:
        print("aborted" if "aborted by rank 0" in str(failure) else failure, flush=True)


def receive_late(comm):
    other = Other(comm)
    other.wait_until_gone()
    receive(comm)


def sends_and_ends(rank):
    comm = join()
    if rank == 1:
        return receive_late(comm)
    Other(comm)
    send(comm)


def sends_and_exits_in_a_with_block(rank, *code):
    with join(keep=False) as comm:
        if rank == 1:
            return receive_late(comm)
        Other(comm)
        send(comm)
        sys.exit(*code)


def exits_with_0_in_a_with_block(rank):
    sends_and_exits_in_a_with_block(rank, 0)


def exits_with_3_in_a_with_block(rank):
    with join(keep=False) as comm:
        if rank == 1:
            return receive(comm)
        sys.exit(3)


def raises_what_nothing_catches(rank):
    comm = join()
    if rank == 1:
        return receive(comm)
    raise KeyError("mine")


def forgets_it_and_goes_on(rank):
    forgotten, comm = join(keep=False), join()
    if rank == 0:
        send(forgotten)
        del forgotten
        return send(comm)
    comm.recv(bytearray(1), 0)  # it is forgotten by now
    receive(forgotten)


def forgets_it_with_a_call_under_way(rank):
    if rank == 1:
        return receive(join(), LARGE)
    with epccl.Stream() as stream:
        join(keep=False).send(b"7" * LARGE, 1, stream=stream)
        stream.synchronize()


def forgets_a_handle_with_a_call_under_way(rank):
    forgotten, comm = join(keep=rank == 1), join()
    group = epccl.EpGroup(forgotten, num_experts=2, max_send_tokens_per_rank=1, max_token_bytes=4)
    handle = group.handle(epccl.Layout.FLAT)
    handle.update(np.array([[1 - rank]]))  # each other's expert
    mine, got = np.full((1, 1), 7, np.float32), np.zeros((1, 1), np.float32)
    if rank == 1:
        comm.recv(bytearray(1), 0)  # it is forgotten by now
        handle.dispatch(mine, out=got)
        print("received", int(got[0, 0]), flush=True)
        return
    with epccl.Stream() as stream:
        handle.dispatch(mine, out=got, stream=stream)
        del handle, group, forgotten
        send(comm)
        stream.synchronize()
    assert got[0, 0] == 7


def ends_with_a_call_under_way(rank):
    program_end.SECONDS_TO_END = 50.0
    comm = join()
    if rank == 1:
        return receive(comm, LARGE)
    kept.append(epccl.Stream())
    comm.send(b"7" * LARGE, 1, stream=kept[-1])


def ends_with_a_call_to_which_nobody_comes(rank):
    program_end.SECONDS_TO_END = 0.2
    comm = join(timeout=math.inf)
    if rank == 1:
        return receive_late(comm)
    Other(comm)
    kept.append(epccl.Stream())
    comm.recv(bytearray(1), 1, stream=kept[-1])


def has_a_child_that_ends(rank):
    comm = join()
    if rank == 1:
        return receive(comm)
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    send(comm)


CASES = {
    sends_and_ends: "received 7",
    sends_and_exits_in_a_with_block: "received 7",
    exits_with_0_in_a_with_block: "received 7",
    exits_with_3_in_a_with_block: "aborted",
    raises_what_nothing_catches: "aborted",
    forgets_it_and_goes_on: "received 7",
    forgets_it_with_a_call_under_way: "received 7",
    forgets_a_handle_with_a_call_under_way: "received 7",
    ends_with_a_call_under_way: "received 7",
    ends_with_a_call_to_which_nobody_comes: "aborted",
    has_a_child_that_ends: "received 7",
}


def run_all(launcher, *options):
    if np is None:
        del CASES[forgets_a_handle_with_a_call_under_way]
    failed = 0
    for case, expected in CASES.items():
        command = [launcher, "-n", "2", *options, sys.executable, __file__, ".", case.__name__]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150)
        if expected not in done.stdout or (expected.startswith("received") and done.returncode != 0):
            failed += 1
            print(f"{case.__name__}: not '{expected}' but ({done.returncode}):\n{done.stdout}", flush=True)
    sys.exit(f"{failed} of {len(CASES)} failed" if failed else 0)


if __name__ == "__main__":
    if sys.argv[1] == ".":
        globals()[sys.argv[2]](int(os.environ["EPCCL_RANK"]))
    else:
        run_all(*sys.argv[1:])
