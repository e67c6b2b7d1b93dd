"""What is wrong is an exception that says what; the communicator says who."""

import threading

import epccl
import numpy as np
from harness import expect_error, main


def test_arguments_that_are_wrong_by_themselves(comm):
    ok = np.zeros(comm.size, np.float32)
    expect_error(TypeError, "buffer protocol", lambda: comm.send(7, 0))
    expect_error(ValueError, "writable", lambda: comm.recv(b"1234", 0))
    expect_error(ValueError, "C-contiguous", lambda: comm.send(np.zeros((4, 4), np.float32).T, 0))
    expect_error(TypeError, "datatype", lambda: comm.send(np.zeros(3, np.complex64), 0))
    expect_error(ValueError, "float32, recv holds float64", lambda: comm.alltoall(ok, np.zeros(comm.size)))
    expect_error(ValueError, "not a multiple of", lambda: comm.alltoall(ok[1:], ok[1:].copy()))
    expect_error(ValueError, "reach to", lambda: comm.alltoallv(ok, [9] * comm.size, ok.copy(), [0] * comm.size))
    expect_error(ValueError, "entries", lambda: comm.alltoallv(ok, [0], ok.copy(), [0] * comm.size))
    expect_error(ValueError, "negative", lambda: comm.alltoallv(ok, [-1] * comm.size, ok.copy(), [0] * comm.size))
    none, half = [0] * comm.size, [0] * (comm.size - 1) + [0.5]
    expect_error(TypeError, f"sendcounts[{comm.size - 1}] is 0.5: not", lambda: comm.alltoallv(ok, half, ok.copy(), none))
    expect_error(TypeError, "recvcounts[0] is None: not", lambda: comm.alltoallv(ok, none, ok.copy(), [None] * comm.size))
    expect_error(TypeError, "rdispls[0] is '1': not", lambda: comm.alltoallv(ok, none, ok.copy(), none, rdispls="1" * comm.size))
    comm.alltoallv(ok, np.ones(comm.size, np.int32), ok.copy(), np.ones(comm.size, np.uint64))
    expect_error(TypeError, "op is 'sum': not an integer", lambda: comm.allreduce(ok, ok.copy(), "sum"))
    expect_error(TypeError, "root is '0': not an integer", lambda: comm.broadcast(ok, root="0"))
    expect_error(TypeError, "stream is 5: not a Stream", lambda: comm.send(ok, 0, stream=5))
    expect_error(ValueError, "128", lambda: epccl.Communicator(2, b"short", 0))
    failure = expect_error(epccl.InvalidArgument, "peer 77", lambda: comm.send(ok, 77))
    assert failure.code == epccl.Result.INVALID_ARGUMENT and failure.call == "epcclSend"
    assert isinstance(failure, epccl.EpcclError)
    comm.alltoall(ok, ok.copy())  # none of these broke it


def test_numbers_that_c_does_not_have_are_refused_by_name(comm):
    """They would lose their high bits, and be another rank's."""
    over, data, made_id = 2**32, np.zeros(comm.size, np.int32), epccl.get_unique_id()
    for sign in (1, -1):
        expect_error(ValueError, f"peer is {sign * over}: not in", lambda: comm.send(data, sign * over))
    expect_error(ValueError, "peer is", lambda: comm.recv(data, over))
    for call in (comm.broadcast, comm.reduce, comm.gather, comm.scatter):
        arguments = [data, data.copy()] if call in (comm.gather, comm.scatter) else [data]
        expect_error(ValueError, f"root is {over}", lambda: call(*arguments, root=over))
    for call in (comm.allreduce, comm.reduce):
        expect_error(ValueError, f"op is {over}", lambda: call(data, op=over))
    expect_error(ValueError, f"op is {over}", lambda: comm.reduce_scatter(data, data[:1].copy(), over))
    expect_error(ValueError, "op is", lambda: comm.destroy_op(over))
    expect_error(ValueError, "color is", lambda: comm.split(over))
    expect_error(ValueError, "key is", lambda: comm.split(0, over))
    expect_error(ValueError, "exclude[1] is", lambda: comm.shrink([0, over]))
    expect_error(ValueError, "nranks is", lambda: epccl.Communicator(over + 1, made_id, 0))
    expect_error(ValueError, "rank is", lambda: epccl.Communicator(1, made_id, over))
    expect_error(ValueError, "nranks is", lambda: epccl.Communicator.from_ids(over + 1, [made_id], 0))
    expect_error(ValueError, "nranks is", lambda: epccl.Communicator.init_all(2**31))
    expect_error(ValueError, "devices[0] is", lambda: epccl.Communicator.init_all(1, [over]))
    expect_error(ValueError, "nbytes is", lambda: epccl.mem_alloc(2**64 + 8))
    zeros, high = [0] * comm.size, [2**64] + [0] * (comm.size - 1)
    expect_error(ValueError, "sendcounts[0] is", lambda: comm.alltoallv(data, high, data.copy(), zeros))
    expect_error(ValueError, "rdispls[0] is", lambda: comm.alltoallv(data, zeros, data.copy(), zeros, rdispls=high))
    with epccl.EpGroup(comm, num_experts=comm.size, max_send_tokens_per_rank=1, max_token_bytes=4) as group:
        with group.handle(epccl.Layout.FLAT) as handle, epccl.Stream() as stream:
            expect_error(ValueError, "stage is", lambda: handle.complete(over + 2))
            expect_error(ValueError, "stage is", lambda: handle.make_wait(stream, over + 2))
    # What is no int, but taken for one.
    for big in (np.int64(over), np.array(over)):
        expect_error(ValueError, f"peer is {over}: not in", lambda: comm.send(data, big))
        expect_error(ValueError, f"op is {over}", lambda: comm.allreduce(data, op=big))
        expect_error(ValueError, f"exclude[1] is {over}", lambda: comm.shrink([0, big]))
        few = {"num_experts": comm.size, "max_token_bytes": 4}
        expect_error(ValueError, "max_send_tokens_per_rank is", lambda: epccl.EpGroup(comm, max_send_tokens_per_rank=big, **few))
    comm.broadcast(data, root=np.int64(comm.size - 1))
    comm.allreduce(data, data.copy())  # none of these broke it


def test_a_group_that_raises_runs_nothing(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    got = np.full(3, 5, np.int32)

    def body():
        with epccl.group():
            comm.send(np.array([1, 2, 3], np.int32), right)
            raise KeyError("mine")

    expect_error(KeyError, "mine", body)
    with epccl.group():
        comm.send(np.array([7, 8, 9], np.int32), right)
        comm.recv(got, left)
    assert list(got) == [7, 8, 9], "the first of the two sends must not have left"


def test_a_refused_call_fails_its_group(comm):
    def body():
        with epccl.group():
            try:
                comm.send(b"1", 1000)
            except epccl.InvalidArgument:
                pass

    expect_error(epccl.EpcclError, "refused", body)


def test_ranks_that_disagree_are_named(comm):
    count = 10 if comm.rank == 1 else 4
    send = np.ones((comm.size, count), np.float32)
    failure = expect_error(epccl.EpcclError, "rank 1", lambda: comm.alltoall(send, send.copy()))
    assert failure.code in (epccl.Result.INVALID_USAGE, epccl.Result.REMOTE_ERROR)
    assert comm.async_error() is not None


def test_errors_of_a_stream_come_with_its_synchronize(comm):
    stream = epccl.Stream()
    send = np.ones((comm.size, 3 if comm.rank == 0 else 2), np.int32)
    comm.alltoall(send, send.copy(), stream=stream)
    expect_error(epccl.EpcclError, "rank", stream.synchronize)


def test_abort_from_another_thread(comm):
    if comm.rank == 0:
        timer = threading.Timer(2, comm.abort)  # long after the call has begun
        timer.start()
    send = np.ones(comm.size, np.int32)
    call = (lambda: comm.recv(send, 1)) if comm.rank == 0 else (lambda: comm.recv(send, 0))
    expect_error(epccl.RemoteError, "", call)
    if comm.rank == 0:
        timer.join()
        expect_error(epccl.InvalidUsage, "destroyed or aborted", lambda: comm.send(send, 1))


def test_a_timeout_is_told_from_other_failures(comm):
    comm.set_timeout(1 if comm.rank == 0 else 60)
    mine = np.zeros(1, np.int32)
    failure = expect_error(epccl.RemoteError, "", lambda: comm.recv(mine, (comm.rank + 1) % comm.size))
    assert failure.reason == epccl.Reason.TIMEOUT, failure
    assert expect_error(epccl.InvalidArgument, "peer", lambda: comm.send(mine, 77)).reason == epccl.Reason.NONE


def test_life_of_a_communicator(comm):
    assert 0 <= comm.rank < comm.size and f"of {comm.size}" in repr(comm)
    mine = epccl.Communicator(1, epccl.get_unique_id(), 0, name="alone", algorithm="flat", timeout=5)
    recv = np.zeros(4)
    mine.alltoall(np.arange(4.0), recv)
    assert list(recv) == [0, 1, 2, 3] and mine.async_error() is None
    mine.finalize()
    expect_error(epccl.InvalidUsage, "finalize", lambda: mine.alltoall(np.arange(4.0), recv))
    mine.destroy()
    mine.destroy()
    expect_error(epccl.InvalidUsage, "destroyed", mine.async_error)
    expect_error(epccl.InvalidArgument, "algorithm", lambda: epccl.Communicator(1, epccl.get_unique_id(), 0, algorithm="x"))


def test_split_and_shrink(comm):
    mine = comm.split(comm.rank % 2, key=-comm.rank)
    members = sorted((rank for rank in range(comm.size) if rank % 2 == comm.rank % 2), reverse=True)
    assert (mine.size, members[mine.rank]) == (len(members), comm.rank)
    recv = np.zeros(mine.size, np.int32)
    mine.alltoall(np.full(mine.size, comm.rank, np.int32), recv)
    assert list(recv) == members
    mine.destroy()
    assert (comm.split(None) is None) if comm.rank == 0 else comm.split(5).size == comm.size - 1
    if comm.rank > 0:
        rest = comm.shrink([0])
        assert (rest.size, rest.rank) == (comm.size - 1, comm.rank - 1)
        rest.revoke()
        expect_error(epccl.EpcclError, "revoke", lambda: rest.send(recv, 0))


def test_a_simulated_group_runs_nothing(comm):
    got = np.full(comm.size * 1000, 7, np.uint8)
    with epccl.simulated_group() as expected:
        comm.alltoall(np.ones_like(got), got)
    assert expected[0] > 0 and (got == 7).all()


if __name__ == "__main__":
    main(globals())
