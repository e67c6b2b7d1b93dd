"""Communicators that are made in other ways than by a launcher, what is set for those of a split, and windows."""

import weakref

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


def test_groups_inside_a_group_act_at_its_end(_):
    comms = epccl.Communicator.init_all(2)
    sent, received = np.arange(4, dtype=np.int32).reshape(2, 2), np.zeros((2, 2), np.int32)
    with epccl.group():
        for comm in comms:
            with epccl.group():
                comm.alltoall(sent[comm.rank], received[comm.rank])
            with epccl.simulated_group() as expected:
                pass
            assert expected == [-1] and not received.any()
    assert (received == sent.T).all()
    for fails in (False, True):
        received[:] = 0
        streams, before, kept = [epccl.Stream() for _ in comms], [], []
        with epccl.group():
            for comm, stream in zip(comms, streams):
                data = sent[comm.rank].copy()
                before.append(weakref.ref(data))
                comm.alltoall(data, np.zeros(2, np.int32), stream=stream)
        del data
        try:
            with epccl.group():
                for comm, stream in zip(comms, streams):
                    with stream:  # of which one call is to come when its block ends
                        comm.alltoall(sent[comm.rank], received[comm.rank], stream=stream)
                    kept.append(stream)
                    expect_error(ValueError, "destroyed", stream.synchronize)
                    # Which has waited for nothing: the calls before the group may be under way.
                    assert all(buffer() is not None for buffer in before)
                    if fails:
                        raise KeyError("mine")
        except KeyError:
            assert fails
        assert (received == (0 if fails else sent.T)).all() and all(stream._handle is None for stream in kept)
        for stream in streams:
            stream.destroy()
        assert all(buffer() is None for buffer in before)
    for comm in comms:
        comm.destroy()


def id_of_rank_0(comm):
    made = np.frombuffer(epccl.get_unique_id(), np.uint8).copy()
    comm.broadcast(made)
    return bytes(made)


def test_a_nonblocking_communicator_from_its_making_to_its_end(comm):
    made = epccl.Communicator(comm.size, id_of_rank_0(comm), comm.rank, blocking=False, timeout=20)
    assert made.wait(20) is made and not made.in_progress
    assert (made.size, made.rank) == (comm.size, comm.rank)
    exchange([made])
    half = made.split(comm.rank % 2)
    half.wait(20)
    made.wait(20)
    assert half.size == (comm.size + 1 - comm.rank % 2) // 2
    exchange([half])
    for one in (half, made):
        one.finalize()
        one.wait(20)
        one.destroy()
    assert (made.size, made.rank) == (comm.size, comm.rank) and "destroyed" in repr(made)


def test_a_communicator_in_the_making_says_so_and_can_be_aborted(comm):
    made_id = id_of_rank_0(comm)
    if comm.rank == 1:
        alone = epccl.Communicator(2, made_id, 1, blocking=False)
        assert alone.in_progress and "in the making" in repr(alone)
        expect_error(TimeoutError, "still in progress", lambda: alone.wait(0.05))
        expect_error(epccl.InvalidArgument, "epcclInProgress", lambda: alone.rank)
        expect_error(epccl.InvalidArgument, "", alone.destroy)  # which changes nothing
        assert alone.in_progress
        alone.abort()
    comm.allreduce(np.zeros(1, np.int32), np.zeros(1, np.int32))  # rank 0 stays: the id is of its process


def test_one_thread_is_several_ranks(_):
    made_id = epccl.get_unique_id()
    with epccl.group():
        ranks = [epccl.Communicator(3, made_id, rank) for rank in range(3)]
    assert [one.rank for one in ranks] == [0, 1, 2]
    exchange(ranks)
    with epccl.group():
        for one in ranks:
            one.finalize()
    for one in ranks:
        one.destroy()


def test_settings_are_named_when_they_are_wrong(comm):
    made_id = epccl.get_unique_id()
    expect_error(TypeError, "'algoritm' is not a setting", lambda: epccl.Communicator(1, made_id, 0, algoritm="flat"))
    expect_error(epccl.InvalidArgument, "maxCTAs", lambda: epccl.Communicator(1, made_id, 0, max_ctas=0))
    expect_error(ValueError, "max_ctas is 4294967297", lambda: epccl.Communicator(1, made_id, 0, max_ctas=2**32 + 1))
    expect_error(epccl.InvalidArgument, "none such", lambda: epccl.Communicator(1, made_id, 0, network="none such"))
    with epccl.Communicator(1, made_id, 0, network="tcp", copy_engine="never", max_ctas=3, blocking=True, first_calls=False) as one:
        exchange([one])


def test_windows(comm):
    buffer = np.zeros(1000, np.float32)
    for symmetric in (False, True):
        window = comm.register_window(buffer, symmetric=symmetric)
        window.deregister()
        window.deregister()


if __name__ == "__main__":
    main(globals())
