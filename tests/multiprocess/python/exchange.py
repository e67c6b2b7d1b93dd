"""All-to-all, sends and receives on NumPy arrays and plain buffers: every bit against what NumPy says."""

import array
import time
import weakref

import epccl
import numpy as np
from epccl import streams
from harness import expect_error, main, seed, values

DTYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


def test_alltoall_moves_every_block_of_every_datatype(comm):
    for dtype in DTYPES:
        for count in (1, 5, 4096):
            send = values(dtype, (comm.size, count), comm.rank)
            recv = np.full_like(send, 99)
            comm.alltoall(send, recv)
            want = np.stack([values(dtype, (comm.size, count), source)[comm.rank] for source in range(comm.size)])
            np.testing.assert_array_equal(recv, want)


def test_alltoall_of_bfloat16_by_name(comm):
    send = values("uint16", (comm.size, 3), comm.rank)
    recv = np.zeros_like(send)
    comm.alltoall(send, recv, datatype=epccl.DataType.BFLOAT16)
    want = np.stack([values("uint16", (comm.size, 3), source)[comm.rank] for source in range(comm.size)])
    np.testing.assert_array_equal(recv, want)


def test_alltoallv_with_random_counts_and_gaps(comm):
    rng = np.random.default_rng(seed())
    for dtype in ("uint8", "float64"):
        counts = rng.integers(0, 200, (comm.size, comm.size))
        counts[rng.random(counts.shape) < 0.3] = 0
        data = [values(dtype, int(counts[s].sum()) + 1, s) for s in range(comm.size)]
        starts = np.cumsum(counts, axis=1) - counts
        gap = 3
        rcounts = counts[:, comm.rank]
        rdispls = np.cumsum(rcounts + gap) - rcounts
        recv = np.full(int((rcounts + gap).sum()) + gap, 101, dtype)
        want = recv.copy()
        for s in range(comm.size):
            block = data[s][starts[s, comm.rank] :][: counts[s, comm.rank]]
            want[rdispls[s] :][: len(block)] = block
        comm.alltoallv(data[comm.rank], counts[comm.rank], recv, rcounts, rdispls=rdispls)
        np.testing.assert_array_equal(recv, want)


def test_copy_engines_move_the_same_bits_and_statistics_count(comm):
    send = np.arange(comm.size * 5, dtype="int32") + 1000 * comm.rank
    results = []
    for use in ("always", "never", None):
        comm.set_copy_engine(use)
        results.append(np.zeros_like(send))
        comm.alltoall(send, results[-1])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    expect_error(epccl.InvalidArgument, "sometimes", lambda: comm.set_copy_engine("sometimes"))
    counted = comm.statistics()
    # Nothing is sent over a network that is not there, and nothing comes that was not sent.
    assert (counted["messagesSent"] == 0) == (counted["bytesSent"] == 0), counted
    assert counted["railsLost"] == 0, counted


def test_calls_are_measured_while_that_is_asked_for(comm):
    send = np.arange(comm.size * 5, dtype="int32")
    comm.measure_calls(True)
    comm.alltoall(send, np.zeros_like(send))
    comm.measure_calls(False)
    comm.alltoall(send, np.zeros_like(send))
    times = comm.call_times()
    assert times["calls"] == 1, times
    assert abs(times["total"] - sum(times[part] for part in ("kernel", "copy", "signal", "host"))) < 1e-6, times


def test_a_rank_that_computes_longer_is_a_straggler(comm):
    send, slow = np.arange(comm.size * 5, dtype="int32"), comm.size - 1
    expect_error(epccl.InvalidUsage, "rank 0 does not measure its calls", comm.find_stragglers)
    comm.measure_calls(True)
    for _ in range(8):
        if comm.rank == slow:
            time.sleep(0.03)
        comm.alltoall(send, np.zeros_like(send))
    found = comm.find_stragglers()
    comm.measure_calls(False)
    assert found.calls == 7 and len(found.ranks) == comm.size, found
    assert found.late[0] == slow, found
    its = found.ranks[slow]
    assert its.late_by == epccl.Lateness.BETWEEN_CALLS and its.late > 0.1 and its.between > 0.2, its
    assert its.last_calls > 3 and 0 < found.lost < found.seconds, found
    assert "between calls" in str(found).splitlines()[2 + slow], str(found)
    expect_error(epccl.InvalidArgument, "threshold is 1.5", lambda: comm.find_stragglers(1.5))


def test_a_ring_in_a_group_and_plain_buffers(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    send, recv = array.array("d", [comm.rank + 0.5] * 9), array.array("d", [0.0] * 9)
    got = bytearray(4)
    with epccl.group():
        comm.send(send, right)
        with epccl.group():
            comm.recv(recv, left)
        comm.send(b"%04d" % comm.rank, right)
        comm.recv(got, left)
    assert list(recv) == [left + 0.5] * 9
    assert bytes(got) == b"%04d" % left


def test_pairs_outside_a_group(comm):
    if comm.rank == 0:
        comm.send(values("int32", 100, 0), 1)
    elif comm.rank == 1:
        got = np.zeros(100, np.int32)
        comm.recv(got, 0)
        np.testing.assert_array_equal(got, values("int32", 100, 0))


def test_streams_run_in_order_and_events_order_streams(comm):
    first, second, event = epccl.Stream(), epccl.Stream(), epccl.Event()
    assert event.query(), "never recorded: complete"
    a, b, c = (np.zeros((comm.size, 1000), np.int64) for _ in range(3))
    a[:] = values("int64", (comm.size, 1000), comm.rank)
    comm.alltoall(a, b, stream=first)
    event.record(first)
    second.wait_event(event)
    comm.alltoall(b, c, stream=second)  # sends what the first brought: back home
    second.synchronize()
    first.synchronize()
    event.synchronize()
    assert event.query() and first.query() and second.query()
    np.testing.assert_array_equal(c, a)
    event.destroy()
    first.destroy()
    second.destroy()


def test_a_stream_keeps_buffers_that_nobody_else_has(comm):
    stream = epccl.Stream()
    recv = np.zeros((comm.size, 5000), np.float32)
    for salt in range(8):
        comm.alltoall(values("float32", (comm.size, 5000), comm.rank, salt), recv, stream=stream)
    stream.synchronize()
    want = np.stack([values("float32", (comm.size, 5000), s, 7)[comm.rank] for s in range(comm.size)])
    np.testing.assert_array_equal(recv, want)


def kept(comm, issue):
    """A call whose send buffer nobody has but the library, once it is issued; and how that is seen."""
    send = values("float32", (comm.size, 10), comm.rank)
    issue(send)
    return weakref.ref(send)


def test_buffers_are_kept_until_a_call_is_known_to_be_over(comm):
    stream, event, recv = epccl.Stream(), epccl.Event(), np.zeros((comm.size, 10), np.float32)
    first = kept(comm, lambda send: comm.alltoall(send, recv, stream=stream))
    event.record(stream)
    second = kept(comm, lambda send: comm.alltoall(send, recv, stream=stream))
    assert first() is not None and second() is not None
    event.synchronize()
    assert first() is None and second() is not None
    while not stream.query():
        time.sleep(0.001)
    assert second() is None


def test_an_event_does_not_tell_of_what_another_thread_gives_the_stream_behind_it(comm):
    stream, event, recv = epccl.Stream(), epccl.Event(), np.zeros((comm.size, 10), np.float32)
    behind = []

    def record_and_issue(name, *arguments):
        call(name, *arguments)
        if name == "epcclEventRecord":
            behind.append(kept(comm, lambda send: comm.alltoall(send, recv, stream=stream)))

    call, streams.call = streams.call, record_and_issue
    try:
        event.record(stream)
    finally:
        streams.call = call
    event.synchronize()
    assert behind[0]() is not None
    stream.synchronize()
    assert behind[0]() is None


def test_buffers_of_a_group_are_kept_until_its_calls_are_over(comm):
    stream, recv = epccl.Stream(), np.zeros((comm.size, 10), np.float32)
    with epccl.group():
        inline = kept(comm, lambda send: comm.alltoall(send, recv.copy()))
        queued = kept(comm, lambda send: comm.alltoall(send, recv, stream=stream))
        stream.synchronize()  # nothing has been given to it yet
        assert inline() is not None and queued() is not None
    assert inline() is None and queued() is not None
    stream.synchronize()
    assert queued() is None
    with epccl.simulated_group():
        simulated = kept(comm, lambda send: comm.alltoall(send, recv))
    assert simulated() is None


def test_memory_that_peers_map(comm):
    send, recv = (epccl.empty((comm.size, 30000), "int32") for _ in range(2))
    registered = comm.register(send)
    send[:] = values("int32", (comm.size, 30000), comm.rank)
    recv[:] = -1
    comm.alltoall(send, recv)
    want = np.stack([values("int32", (comm.size, 30000), s)[comm.rank] for s in range(comm.size)])
    np.testing.assert_array_equal(recv, want)
    registered.deregister()
    part = send[1:2]
    del send
    assert part[0, 0] == want.dtype.type(values("int32", (comm.size, 30000), comm.rank)[1, 0]), "a slice keeps the memory"
    assert epccl.empty(np.int64(3)).shape == (3,) and epccl.empty((np.int32(2), 0)).shape == (2, 0)
    expect_error(TypeError, "float", lambda: epccl.empty(2.5))
    assert len(epccl.mem_alloc(0)) == 0 and epccl.mem_alloc(10).nbytes == 10


if __name__ == "__main__":
    main(globals())
