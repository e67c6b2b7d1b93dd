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
    for factor, datatype in ((0.5, "INT32"), (2**31, "INT32"), (-129, "INT8"), (-1, "UINT8"), (np.inf, "INT64"), (np.nan, "UINT64"), (2**2000, "INT64")):
        expect_error(ValueError, f"factor is {factor}", lambda: comm.pre_mul_sum(factor, epccl.DataType[datatype]))
    for factor in ("2", None, np.ones(2)):
        for datatype in (epccl.DataType.INT32, epccl.DataType.BFLOAT16):
            expect_error(TypeError, f"factor is {factor!r}: not a number", lambda: comm.pre_mul_sum(factor, datatype))


# Of a datatype: bits of its mantissa, bias of its exponent, 1.0, NaN, and how many codes are numbers of one sign. Beyond the last one of
# float16 and bfloat16 is the infinity, for what rounds up to where the next number would be.
LAYOUTS = {
    "FLOAT16": (10, 15, 0x3C00, 0x7E00, 0x7C01),
    "BFLOAT16": (7, 127, 0x3F80, 0x7FC0, 0x7F81),
    "FLOAT8E4M3": (3, 7, 0x38, 0x7F, 0x7F),
    "FLOAT8E5M2": (2, 15, 0x3C, 0x7F, 0x7C),
}


def numbers_by_code(name):
    mantissa, bias, _, _, count = LAYOUTS[name]
    exponent, rest = np.divmod(np.arange(count), 2**mantissa)
    return np.where(exponent == 0, rest * 2.0 ** (1 - bias), (2**mantissa + rest) * 2.0 ** (exponent - bias)) / 2**mantissa


def nearest_code(numbers, factor):
    """Of two the even one; the last one beyond it."""
    above = int(np.searchsorted(numbers, factor))
    if above in (0, len(numbers)):
        return min(above, len(numbers) - 1)
    half_way = (numbers[above - 1] + numbers[above]) / 2
    below = factor < half_way or (factor == half_way and above % 2 == 1)
    return above - below


def test_a_factor_becomes_the_nearest_number_of_its_datatype(comm):
    for name, (mantissa, _, one, nan, count) in LAYOUTS.items():
        numbers, kind = numbers_by_code(name), np.uint8 if "8E" in name else np.uint16
        of_interest = {0, 1, 2**mantissa - 1, 2**mantissa, one - 1, one, one + 1, one + 2**mantissa + 2, count - 3, count - 2}
        factors = [numbers[-1], 2 * numbers[-1], 1e300, 2**2000, np.inf, np.nan, 0.1, 1 / 3]
        for code in sorted(of_interest):
            half_way = (numbers[code] + numbers[code + 1]) / 2
            factors += [numbers[code], np.nextafter(half_way, 0), half_way, np.nextafter(half_way, np.inf)]
        for turn, magnitude in enumerate(factors):
            for sign in (1, -1):
                # One rank's factor is tried: the sum of it and of zeros is itself.
                op = comm.pre_mul_sum(sign * magnitude if turn % comm.size == comm.rank else 0, epccl.DataType[name])
                got = np.full(3, one, kind)
                comm.allreduce(got, op=op, datatype=epccl.DataType[name])
                comm.destroy_op(op)
                want = nan if magnitude != magnitude else nearest_code(numbers, magnitude)
                negative = sign < 0 and 0 < want < nan
                code = int(got[0]) & (nan if want == nan else -1)  # a NaN's sign says nothing
                assert code == want + negative * (np.iinfo(kind).max // 2 + 1), (name, sign * magnitude, hex(code), hex(want))
                assert (got == got[0]).all()


def test_a_factor_of_integers_may_be_any_of_them(comm):
    for dtype in DTYPES[:6]:
        for factor in (np.iinfo(dtype).min, np.iinfo(dtype).max):
            op = comm.pre_mul_sum(factor if comm.rank == 1 else 0.0, epccl.DataType[dtype.upper()])
            got = np.ones(3, dtype)
            comm.allreduce(got, op=op)
            comm.destroy_op(op)
            assert got.tolist() == [factor] * 3


def test_a_factor_of_float32_and_float64_is_rounded_as_numpy_does(comm):
    for factor in (0.1, 1 / 3, -1e39, 3.4028235677973366e38, 1.5 * 2.0**-149, 2.5 * 2.0**-149, 1e-300, np.float64(0.7), np.float16(0.7)):
        for dtype, name in ((np.float32, "FLOAT32"), (np.float64, "FLOAT64")):
            op = comm.pre_mul_sum(factor if comm.rank == 1 else 0, epccl.DataType[name])
            got = np.ones(3, dtype)
            comm.allreduce(got, op=op)
            comm.destroy_op(op)
            with np.errstate(over="ignore", under="ignore"):
                np.testing.assert_array_equal(got, np.full(3, factor).astype(dtype))


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
        doubles = np.zeros(4 * comm.size)
        expect_error(ValueError, "recv holds float64, send holds float32", lambda: comm.gather(ok, doubles))
        expect_error(ValueError, "send holds float64, recv holds float32", lambda: comm.scatter(doubles, ok))
    expect_error(epccl.InvalidArgument, "", lambda: comm.allreduce(ok, op=1234))
    expect_error(epccl.InvalidArgument, "root", lambda: comm.broadcast(ok, comm.size))


if __name__ == "__main__":
    main(globals())
