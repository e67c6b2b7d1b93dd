"""A program that is typed as strictly as mypy can ask: its ranks run it, and mypy reads it, with the package.

Where it says `type: ignore` mypy has to find the error that is named, or it tells that there is none."""

from __future__ import annotations

import array
from typing import TYPE_CHECKING, Any, Callable

import epccl
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from typing_extensions import assert_type

Rows = npt.NDArray[np.float32]


def refused(kind: type[epccl.EpcclError], call: Callable[[], object]) -> epccl.EpcclError:
    try:
        call()
    except kind as failure:
        return failure
    raise AssertionError(f"no {kind.__name__}")


def collectives(comm: epccl.Communicator) -> None:
    send = np.arange(4 * comm.size, dtype=np.float32) + 100 * comm.rank
    recv = np.empty_like(send)
    comm.alltoall(send, recv)
    counts = np.full(comm.size, 4)
    comm.alltoallv(send, counts, recv, [4] * comm.size, rdispls=4 * np.arange(comm.size))
    comm.allgather(send[:4], recv)
    comm.reduce_scatter(send, recv[:4], epccl.RedOp.MAX)
    comm.allreduce(send)
    comm.broadcast(recv, root=0)
    comm.reduce(send, recv, root=comm.size - 1)
    comm.gather(send[:4], recv if comm.rank == 0 else None)
    comm.scatter(send if comm.rank == 0 else None, recv[:4])

    shared = epccl.empty((2, 8), np.int64)
    shared[:] = comm.rank
    comm.allreduce(shared, op=epccl.RedOp.SUM)
    words: array.array[int] = array.array("i", [comm.rank] * comm.size)
    comm.allreduce(words, op=epccl.RedOp.MIN)
    memory: memoryview = epccl.mem_alloc(2 * comm.size)
    comm.allreduce(memory, datatype=epccl.DataType.BFLOAT16)
    turned = comm.split(color=0, key=-comm.rank, timeout=60)
    assert turned is not None
    with turned:
        rank: int = turned.rank
        assert rank == turned.size - 1 - comm.rank
    registration: epccl.Registration = comm.register(send)
    registration.deregister()


def factors(comm: epccl.Communicator) -> None:
    for factor in (2, 0.5, np.float32(1.5), np.int64(3)):
        op: int = comm.pre_mul_sum(factor, epccl.DataType.FLOAT32)
        value = np.ones(3, np.float32)
        comm.allreduce(value, op=op)
        comm.destroy_op(op)
        assert value[0] == comm.size * float(factor)
    refuses: Callable[[], int] = lambda: comm.pre_mul_sum("2", epccl.DataType.INT8)  # type: ignore[arg-type]
    try:
        refuses()
    except TypeError:
        pass


def streams(comm: epccl.Communicator) -> None:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    got = np.zeros(3, np.int32)
    with epccl.Stream() as stream:
        event = epccl.Event()
        with epccl.group():
            comm.send(np.array([1, 2, 3], np.int32), right, stream=stream)
            comm.recv(got, left, stream=stream)
        event.record(stream)
        event.synchronize()
        complete: bool = stream.query()
        assert complete and got.tolist() == [1, 2, 3]
    with epccl.simulated_group() as microseconds:
        comm.allreduce(got)
    estimate: float = microseconds[0]
    assert estimate > 0


def dispatch_and_combine(comm: epccl.Communicator) -> None:
    experts, tokens, hidden = 2 * comm.size, 6, 8
    topk_idx = np.arange(2 * tokens).reshape(tokens, 2) % experts
    x: Rows = np.ones((tokens, hidden), np.float32)
    w: Rows = np.full((tokens, 2), 0.5, np.float32)
    owners = np.arange(experts) // 2
    with epccl.EpGroup(
        comm, num_experts=experts, max_send_tokens_per_rank=tokens, max_token_bytes=4 * hidden, expert_to_rank=owners
    ) as group:
        local: list[int] = group.local_experts
        with group.handle(epccl.Layout.EXPERT_MAJOR, alignment=1) as handle:
            counters: epccl.Counters = handle.update(topk_idx)
            row_weights = np.empty(counters.rows, np.float32)
            rows: Rows = handle.dispatch(x, topk_weights=w, out_weights=row_weights)
            begin = 0
            for expert, count in zip(local, counters.expert_counters.tolist()):
                rows[begin : begin + count] *= expert
                begin += count
            y: Rows = handle.combine(rows, weighted=True)
            assert np.array_equal(y[:, 0], topk_idx.mean(axis=1))
            strategy: epccl.Strategy = handle.stats().strategy
            assert strategy != epccl.Strategy.AUTO
            handle.dispatch(x, out=rows, send_only=True)
            handle.complete()
            over: int = handle.progress().calls_over
            assert over == 1
        misspelt: Callable[[], object] = lambda: group.handle(epccl.Layout.FLAT, aligment=4)  # type: ignore[call-arg]
        mistaken: Callable[[], object] = lambda: group.handle(epccl.Layout.FLAT, alignment="4")  # type: ignore[arg-type]
        for wrong in (misspelt, mistaken):
            try:
                wrong()
            except TypeError:
                pass


def errors(comm: epccl.Communicator) -> None:
    failure = refused(epccl.InvalidArgument, lambda: comm.send(b"1", 1000))
    code: epccl.Result = failure.code
    text: str = failure.text
    assert code == epccl.Result.INVALID_ARGUMENT and "peer" in text and failure.call == "epcclSend"
    late: epccl.EpcclError | None = comm.async_error()
    assert late is None


if TYPE_CHECKING:

    def what_calls_return(comm: epccl.Communicator, handle: epccl.EpHandle) -> None:
        assert_type(epccl.empty(3), npt.NDArray[Any])
        assert_type(epccl.version(), tuple[int, int, int])
        epccl.reset_debug()
        assert_type(comm.statistics(), dict[str, int])
        assert_type(comm.split(None), epccl.Communicator | None)
        assert_type(comm.size, int)
        assert_type(handle.stats().tokens_network, int)
        comm.split(0, algorithm=2)  # type: ignore[arg-type]
        comm.split(0, timeouts=2)  # type: ignore[call-arg]
        comm.send(comm.size, "1")  # type: ignore[arg-type]
        comm.sned(b"", 1)  # type: ignore[attr-defined]


if __name__ == "__main__":
    with epccl.Communicator.from_launcher(timeout=60) as world:
        for part in (collectives, factors, streams, dispatch_and_combine, errors):
            part(world)
        if world.rank == 0:
            print(f"ran on {world.size} ranks, epccl {epccl.__version__}, library {epccl.version()}")
