"""Communicators that are made in other ways than by a launcher, what is set for those of a split, and windows."""

import epccl
import numpy as np
from harness import expect_error, main


def exchange(comms):
    """An all-to-all of all ranks of this process, in one group; every bit is checked."""
    sent = [np.arange(comm.size, dtype=np.int32) + 100 * comm.rank for comm in comms]
    received = [np.zeros(comm.size, np.int32) for comm in comms]
    with epccl.group():
        for comm, send, recv in zip(comms, sent, received):
            comm.alltoall(send, recv)
    for comm, recv in zip(comms, received):
        assert list(recv) == [100 * source + comm.rank for source in range(comm.size)], (comm, recv)


def test_all_ranks_in_one_process(_):
    for devices in (None, [4, 4, 1]):
        comms = epccl.Communicator.init_all(3, devices)
        assert [comm.rank for comm in comms] == [0, 1, 2] and {comm.size for comm in comms} == {3}
        assert [comm.device for comm in comms] == (devices or [0, 1, 2])
        exchange(comms)
        with epccl.group():
            for comm in comms:
                comm.finalize()
        for comm in comms:
            comm.destroy()
    expect_error(ValueError, "3 are needed", lambda: epccl.Communicator.init_all(3, [0]))
    expect_error(epccl.InvalidArgument, "0", lambda: epccl.Communicator.init_all(0))


def test_a_communicator_of_several_ids(comm):
    assert comm.device == 0
    ids = np.frombuffer(b"".join(epccl.get_unique_id() for _ in range(2)), np.uint8).copy()
    comm.broadcast(ids)  # rank 0's
    first, second = bytes(ids[:128]), bytes(ids[128:])
    with epccl.Communicator.from_ids(comm.size, [first, second], comm.rank, timeout=20) as made:
        assert (made.size, made.rank) == (comm.size, comm.rank)
        exchange([made])
    expect_error(ValueError, "unique_ids[1] has 5 bytes", lambda: epccl.Communicator.from_ids(2, [first, b"short"], 0))
    expect_error(epccl.InvalidArgument, "", lambda: epccl.Communicator.from_ids(2, [first, first], 0))
    expect_error(epccl.InvalidArgument, "", lambda: epccl.Communicator.from_ids(2, [], 0))


def test_the_settings_of_a_split_and_of_a_shrink(comm):
    expect_error(epccl.InvalidArgument, "algorithm", lambda: comm.split(0, algorithm="none such"))
    with comm.split(0, algorithm="flat", timeout=30, name="all of them") as same:
        exchange([same])
    if comm.rank > 0:
        expect_error(epccl.InvalidArgument, "algorithm", lambda: comm.shrink([0], algorithm="none such"))
        rest = comm.shrink([0], timeout=20, name="rest")
        exchange([rest])
        rest.destroy()


def test_windows(comm):
    buffer = np.zeros(1000, np.float32)
    for symmetric in (False, True):
        window = comm.register_window(buffer, symmetric=symmetric)
        window.deregister()
        window.deregister()


if __name__ == "__main__":
    main(globals())
