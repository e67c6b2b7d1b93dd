"""What README.md says needs no NumPy: all but epccl.empty, and dispatch and combine. Needs no launcher: there is one rank."""

import array
import sys

sys.modules["numpy"] = None  # as where it is not installed

import epccl  # noqa: E402
from expectations import expect_error  # noqa: E402

with epccl.Communicator(1, epccl.get_unique_id(), 0) as comm, epccl.Stream() as stream:
    recv = array.array("d", [0, 0])
    comm.alltoall(array.array("d", [1, 2]), recv, stream=stream)
    stream.synchronize()
    for factor, datatype in ((0.5, epccl.DataType.FLOAT64), (3, epccl.DataType.INT64)):
        op = comm.pre_mul_sum(factor, datatype)
        value = array.array("d" if datatype == epccl.DataType.FLOAT64 else "q", [8, 4])
        comm.allreduce(value, op=op)
        assert value.tolist() == [8 * factor, 4 * factor]
        comm.destroy_op(op)
    memory = epccl.mem_alloc(8)
    comm.broadcast(memory)
    assert recv.tolist() == [1, 2]
    expect_error(ImportError, "numpy", lambda: epccl.empty(3))
