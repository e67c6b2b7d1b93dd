"""Collectives that gather, spread and add up, against NumPy."""

import epccl
import numpy as np
from epccl import RedOp
from harness import expect_error, main, values

DTYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
OPS = {RedOp.SUM: np.add, RedOp.PROD: np.multiply, RedOp.MAX: np.maximum, RedOp.MIN: np.minimum}


def small(dtype, count, source):
    """1 to 3: a few of them, multiplied or added, are exact in every datatype."""
    return (values("int64", (count,), source) % 3 + 1).astype(dtype)


def reduced(dtype, count, size, op):
    all_of_them = np.stack([small(dtype, count, source) for source in range(size)])
    return OPS[op].reduce(all_of_them, axis=0, dtype=dtype)


def test_allreduce_of_every_datatype_and_operation(comm):
    for dtype in DTYPES:
        for op in OPS:
            for count in (1, 77, 20000):
                send, recv = small(dtype, count, comm.rank), np.zeros(count, dtype)
                comm.allreduce(send, recv, op)
                np.testing.assert_array_equal(recv, reduced(dtype, count, comm.size, op))
                comm.allreduce(send, op=op)  # in place
                np.testing.assert_array_equal(send, recv)


def test_reductions_of_truth_values(comm):
    mine = np.array([comm.rank == 0, True, False])
    for op, want in ((RedOp.SUM, [1, 1, 0]), (RedOp.PROD, [0, 1, 0]), (RedOp.MAX, [1, 1, 0]), (RedOp.MIN, [0, 1, 0])):
        got = np.zeros(3, bool)
        comm.allreduce(mine, got, op)
        assert got.view(np.uint8).tolist() == want, (op, got.view(np.uint8))
    expect_error(ValueError, "avg of truth values", lambda: comm.allreduce(mine, op=RedOp.AVG))
    expect_error(ValueError, "the other does not", lambda: comm.allreduce(mine, np.zeros(3, np.uint8)))
    counts = mine.copy()
    comm.allreduce(counts, datatype=epccl.DataType.UINT8)  # the bytes, as said
    assert counts.view(np.uint8).tolist() == [1, comm.size, 0]


def test_averages_and_pre_multiplied_sums(comm):
    value = np.full(9, 2.0 * comm.rank)
    comm.allreduce(value, op=RedOp.AVG)
    np.testing.assert_array_equal(value, np.full(9, comm.size - 1.0))
    op = comm.pre_mul_sum(0.5, epccl.DataType.FLOAT32)
    value = np.full(9, 2.0, np.float32)
    comm.allreduce(value, op=op)
    np.testing.assert_array_equal(value, np.full(9, comm.size, np.float32))
    comm.destroy_op(op)
    for factor in (3, -1.0, np.float32(2)):
        op = comm.pre_mul_sum(factor, epccl.DataType.INT32)
        value = np.full(9, 2, np.int32)
        comm.allreduce(value, op=op)
        np.testing.assert_array_equal(value, np.full(9, 2 * int(factor) * comm.size, np.int32))
        comm.destroy_op(op)


def test_a_factor_that_its_datatype_cannot_hold_is_refused(comm):
    for factor, datatype in ((0.5, "INT32"), (2**31, "INT32"), (-1, "UINT8"), (np.inf, "INT64"), (np.nan, "UINT64"), (2**2000, "INT64")):
        expect_error(ValueError, f"factor is {factor}", lambda: comm.pre_mul_sum(factor, epccl.DataType[datatype]))
    expect_error(ValueError, "bfloat16 is not supported", lambda: comm.pre_mul_sum(0.5, epccl.DataType.BFLOAT16))


def test_reduce_and_broadcast(comm):
    for root in (0, comm.size - 1):
        send = small("int32", 50, comm.rank)
        recv = np.zeros(50, np.int32) if comm.rank == root else None
        comm.reduce(send, recv, RedOp.MAX, root)
        np.testing.assert_array_equal(send, small("int32", 50, comm.rank))
        if comm.rank == root:
            np.testing.assert_array_equal(recv, reduced("int32", 50, comm.size, RedOp.MAX))
        comm.broadcast(send, root)
        np.testing.assert_array_equal(send, small("int32", 50, root))


def test_allgather_and_reduce_scatter(comm):
    for dtype in DTYPES:
        recv = np.zeros((comm.size, 31), dtype)
        comm.allgather(values(dtype, 31, comm.rank), recv)
        np.testing.assert_array_equal(recv, np.stack([values(dtype, 31, source) for source in range(comm.size)]))
        part = np.zeros(31, dtype)
        comm.reduce_scatter(small(dtype, 31 * comm.size, comm.rank), part)
        want = reduced(dtype, 31 * comm.size, comm.size, RedOp.SUM).reshape(comm.size, 31)[comm.rank]
        np.testing.assert_array_equal(part, want)


def test_gather_and_scatter(comm):
    for root in (0, comm.size - 1):
        there = comm.rank == root
        recv = np.zeros((comm.size, 5)) if there else None
        comm.gather(values("float64", 5, comm.rank), recv, root)
        if there:
            np.testing.assert_array_equal(recv, np.stack([values("float64", 5, source) for source in range(comm.size)]))
        mine = np.zeros(5, np.int64)
        comm.scatter(values("int64", (comm.size, 5), root) if there else None, mine, root)
        np.testing.assert_array_equal(mine, values("int64", (comm.size, 5), root)[comm.rank])


def test_on_a_stream(comm):
    with epccl.Stream() as stream:
        value = np.ones(1000, np.float32)
        for _ in range(4):
            comm.allreduce(value, stream=stream)
        stream.synchronize()
        np.testing.assert_array_equal(value, np.full(1000, comm.size**4, np.float32))


def test_what_is_wrong_is_said(comm):
    ok = np.zeros(4, np.float32)
    expect_error(ValueError, "recv has 4 elements", lambda: comm.allgather(ok, ok.copy()))
    expect_error(ValueError, "send has 4 elements", lambda: comm.allreduce(ok, np.zeros(3, np.float32)))
    expect_error(ValueError, "writable", lambda: comm.allreduce(b"1234"))
    if comm.rank == 0:
        expect_error(ValueError, "needed on the root", lambda: comm.gather(ok))
    expect_error(epccl.InvalidArgument, "", lambda: comm.allreduce(ok, op=1234))
    expect_error(epccl.InvalidArgument, "root", lambda: comm.broadcast(ok, comm.size))


if __name__ == "__main__":
    main(globals())
