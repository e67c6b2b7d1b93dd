"""The Python package on PyTorch's CPU tensors: the layer of docs/examples/moe_layer.py against one that has all experts at hand,
and tensors as arguments of every kind. Needs no NumPy, and no group of torch.distributed."""

import gc
import os
import sys
import weakref
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # all ranks are on the same few cores

import epccl  # noqa: E402
import torch  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
sys.path += [str(ROOT / "docs/examples"), str(ROOT / "tests/multiprocess/python")]
from expectations import expect_error  # noqa: E402
from moe_layer import MoE  # noqa: E402

torch.set_num_threads(1)
EXPERTS, HIDDEN, TOKENS, TOPK = 8, 20, 17, 2


def x_of(rank):
    return torch.randn(TOKENS, HIDDEN, generator=torch.Generator().manual_seed(100 + rank))


def test_a_layer_and_its_gradients_are_those_of_a_dense_one(comm):
    torch.manual_seed(3)
    experts = [torch.nn.Linear(HIDDEN, HIDDEN) for _ in range(EXPERTS)]
    layer = MoE(comm, EXPERTS, HIDDEN, TOKENS, TOPK)
    for number, expert in layer.experts.items():
        expert.load_state_dict(experts[int(number)].state_dict())
    with torch.no_grad():
        for parameter in layer.router.parameters():
            comm.broadcast(parameter.detach())
    dense = 0
    for rank in range(comm.size):
        x = x_of(rank).requires_grad_(rank == comm.rank)
        weights, chosen = layer.router(x).softmax(-1).topk(TOPK)
        every = torch.stack([expert(x) for expert in experts], 1)
        y = (every.gather(1, chosen[..., None].expand(-1, -1, HIDDEN)) * weights[..., None]).sum(1)
        dense = dense + (y * y.detach().roll(1, 0)).sum()
        if rank == comm.rank:
            mine, wanted, of_mine = x, y, layer.router.weight
    (dense_x,) = torch.autograd.grad(dense, [mine], retain_graph=True)
    (router,) = torch.autograd.grad((wanted * wanted.detach().roll(1, 0)).sum(), [of_mine], retain_graph=True)
    theirs = {number: torch.autograd.grad(dense, experts[int(number)].weight, retain_graph=True)[0] for number in layer.experts}
    x = x_of(comm.rank).requires_grad_()
    y = layer(x)
    torch.testing.assert_close(y, wanted)
    (y * y.detach().roll(1, 0)).sum().backward()
    torch.testing.assert_close(x.grad, dense_x)
    torch.testing.assert_close(layer.router.weight.grad, router)
    for number, expert in layer.experts.items():
        torch.testing.assert_close(expert.weight.grad, theirs[number])


def group_of(comm):
    return epccl.EpGroup(comm, num_experts=comm.size, max_send_tokens_per_rank=TOKENS, max_token_bytes=4 * HIDDEN)


def test_rows_of_every_dtype_that_there_is(comm):
    everywhere = torch.arange(comm.size).expand(TOKENS, -1).contiguous()
    with group_of(comm) as group, group.handle(epccl.Layout.FLAT) as handle:
        counters = handle.update(everywhere.int())
        assert isinstance(counters.expert_counters, torch.Tensor) and counters.rows == comm.size * TOKENS
        assert counters.src_rank_counters.tolist() == [TOKENS] * comm.size
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            mine = [(torch.arange(TOKENS * HIDDEN) % 50 + rank).reshape(TOKENS, HIDDEN).to(dtype) for rank in range(comm.size)]
            rows = handle.dispatch(mine[comm.rank])
            assert rows.dtype == dtype and torch.equal(rows, torch.cat(mine))
            home = handle.combine(rows, out=torch.empty(TOKENS, HIDDEN, dtype=dtype))
            assert torch.equal(home, mine[comm.rank] * comm.size)
        quantised, scales = torch.empty(counters.rows, HIDDEN, dtype=torch.float8_e4m3fn), torch.empty(counters.rows, 1)
        handle.dispatch(mine[comm.rank], out=quantised, out_scales=scales)
        torch.testing.assert_close(quantised.float() * scales, torch.cat(mine).float(), rtol=1 / 16, atol=0)
        nothing = handle.update(everywhere[:0])
        assert nothing.rows == 0 and handle.dispatch(torch.zeros(0, HIDDEN)).shape == (0, HIDDEN)


def test_what_is_made_is_where_the_tensors_are(comm):
    with group_of(comm) as group, group.handle(epccl.Layout.FLAT) as handle:
        table, x = torch.full((TOKENS, 1), comm.rank), x_of(comm.rank)
        torch.set_default_device("meta")
        try:
            counters = handle.update(table)
            home = handle.combine(handle.dispatch(x))
        finally:
            torch.set_default_device(None)
        assert counters.rows == TOKENS and torch.equal(home, x)


def test_a_stream_keeps_tensors_and_their_memory(comm):
    with epccl.Stream() as stream, group_of(comm) as group, group.handle(epccl.Layout.FLAT) as handle:
        handle.update(torch.full((TOKENS, 1), comm.rank))
        x, out = torch.full((TOKENS, HIDDEN), 3.0), torch.zeros(TOKENS, HIDDEN)
        memory = weakref.ref(x.untyped_storage())
        handle.dispatch(x, out=out, stream=stream)
        x.set_(torch.zeros(1))
        gc.collect()
        assert memory() is not None
        stream.synchronize()
        assert (out == 3).all()


def test_tensors_in_the_other_calls(comm):
    for dtype in (torch.bfloat16, torch.uint8, torch.int64, torch.float64):
        got = torch.full((5,), comm.rank + 1, dtype=dtype)
        comm.allreduce(got)
        assert got.tolist() == [sum(range(1, comm.size + 1))] * 5
    flag = torch.tensor([comm.rank == 0, False])
    comm.allreduce(flag)
    assert flag.tolist() == [True, False]
    pairs = torch.tensor([1 + 2j, 3j])
    expect_error(TypeError, "no datatype", lambda: comm.broadcast(pairs))
    got = torch.zeros(comm.size * 2, dtype=pairs.dtype)
    comm.allgather(pairs * comm.rank, got, datatype=epccl.DataType.UINT8)
    assert torch.equal(got, torch.cat([pairs * rank for rank in range(comm.size)]))
    comm.allgather(torch.zeros(0), torch.zeros(0))


def test_tensors_that_are_refused(comm):
    out = torch.zeros(2, 3)
    for tensor, kind, text in (
        (torch.zeros(3, 2).t(), ValueError, "must be C-contiguous"),
        (torch.zeros(6, dtype=torch.complex64).conj(), ValueError, "resolve_conj"),
        (torch._neg_view(torch.zeros(6)), ValueError, "resolve_neg"),
        (torch.zeros(6, device="meta"), TypeError, "a tensor on meta"),
        (torch.zeros(2, 3).to_sparse(), TypeError, "must be dense"),
        (torch.zeros(6, dtype=torch.int16), TypeError, "no datatype"),
    ):
        expect_error(kind, "send: ", lambda: comm.allreduce(tensor, out))
        expect_error(kind, text, lambda: comm.allreduce(tensor, out))
    expect_error(ValueError, "detach", lambda: comm.allreduce(out, torch.zeros(2, 3, requires_grad=True)))
    comm.allreduce(torch.zeros(2, 3, requires_grad=True), out)


if __name__ == "__main__":
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    for name, test in tests.items():
        with epccl.Communicator.from_launcher(timeout=60) as comm:
            try:
                test(comm)
            except BaseException:
                print(f"rank {os.environ['EPCCL_RANK']}: {name} failed", flush=True)
                raise
    if os.environ["EPCCL_RANK"] == "0":
        print(f"{len(tests)} passed, PyTorch {torch.__version__}: {', '.join(tests)}")
