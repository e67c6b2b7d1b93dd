"""What frameworks build upon the collectives: FSDP, DTensor and functional collectives over EPCCL, on host memory."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from harness import RANK, SIZE, join, same, values
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def model():
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(10, 33), nn.ReLU(), nn.Linear(33, 7), nn.ReLU(), nn.Linear(7, 3))


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(4, 10, generator=generator)


def trained_alone(steps):
    """What a process of its own makes of all ranks' batches: gradients are averaged over ranks."""
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(SIZE):
            (network(batch(rank, step)).square().sum() / SIZE).backward()
        optimizer.step()
    return [p.detach() for p in network.parameters()]


def trained(network, steps):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        network(batch(RANK, step)).square().sum().backward()
        optimizer.step()
    return [p.detach().full_tensor() for p in network.parameters()]


def sharded(mesh, **options):
    network = model()
    for layer in network:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(network, mesh=mesh, **options)


def test_fsdp_trains_as_one_process_does():
    for got, want in zip(trained(sharded(init_device_mesh("cpu", (SIZE,))), 3), trained_alone(3), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_fsdp_with_replicas():
    mesh = init_device_mesh("cpu", (2, SIZE // 2), mesh_dim_names=("replicas", "shards"))
    for got, want in zip(trained(sharded(mesh), 3), trained_alone(3), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_fsdp_with_bfloat16_gradients():
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for got, want in zip(trained(sharded(init_device_mesh("cpu", (SIZE,)), mp_policy=policy), 2), trained_alone(2), strict=True):
        torch.testing.assert_close(got, want, rtol=0.1, atol=0.1)


def test_placements_of_a_tensor_are_changed():
    mesh = init_device_mesh("cpu", (SIZE,))
    whole = torch.arange(6 * SIZE * 5, dtype=torch.float32).reshape(6 * SIZE, 5)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    same(rows.to_local(), whole.chunk(SIZE)[RANK], "scattered")
    same(rows.redistribute(mesh, [Replicate()]).to_local(), whole, "gathered")
    uneven = distribute_tensor(whole, mesh, [Shard(1)])  # 5 columns on 4 ranks
    same(uneven.full_tensor(), whole, "shards that differ in size")
    same(rows.redistribute(mesh, [Shard(1)]).full_tensor(), whole, "from rows to columns")
    same(rows.sum(0).full_tensor(), whole.sum(0), "a sum over what ranks have")


def test_tensor_parallel_layers():
    mesh = init_device_mesh("cpu", (SIZE,))
    torch.manual_seed(2)
    plain = nn.Sequential(nn.Linear(8, 4 * SIZE), nn.ReLU(), nn.Linear(4 * SIZE, 6))
    x = torch.randn(5, 8)
    want = plain(x)
    want.sum().backward()
    gradient = plain[0].weight.grad.clone()
    plain.zero_grad()
    parallel = parallelize_module(plain, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    got = parallel(x)
    torch.testing.assert_close(got, want)
    got.sum().backward()
    assert isinstance(parallel[0].weight.grad, DTensor)
    torch.testing.assert_close(parallel[0].weight.grad.full_tensor(), gradient)


def test_functional_collectives():
    group = dist.group.WORLD
    mine = values(torch.float32, (SIZE, 3), RANK)
    all_of_them = [values(torch.float32, (SIZE, 3), rank) for rank in range(SIZE)]
    total = torch.stack(all_of_them).sum(0)
    same(functional.wait_tensor(functional.all_reduce(mine, "sum", group)), total, "all_reduce")
    same(functional.wait_tensor(functional.all_gather_tensor(mine, 0, group)), torch.cat(all_of_them), "all_gather")
    part = functional.wait_tensor(functional.reduce_scatter_tensor(mine, "sum", 0, group))
    same(part, total[RANK : RANK + 1], "reduce_scatter")
    columns = torch.cat([one[RANK : RANK + 1] for one in all_of_them])
    same(functional.wait_tensor(functional.all_to_all_single(mine, None, None, group)), columns, "all_to_all_single")
    into = [rank + 1 for rank in range(SIZE)]  # rows for each
    out = [RANK + 1] * SIZE
    rows = values(torch.int64, (sum(into), 2), RANK)
    want = torch.cat([values(torch.int64, (sum(into), 2), rank).split(into)[RANK] for rank in range(SIZE)])
    same(functional.wait_tensor(functional.all_to_all_single(rows, out, into, group)), want, "with splits")
    same(functional.wait_tensor(functional.broadcast(mine, 1, group)), all_of_them[1], "broadcast")


def test_a_gradient_through_an_exchange():
    x = values(torch.float32, (SIZE, 2), RANK).requires_grad_()
    y = functional.all_to_all_single_autograd(x, None, None, dist.group.WORLD)
    (y * (RANK + 1)).sum().backward()
    want = torch.arange(1, SIZE + 1, dtype=torch.float32).unsqueeze(1).expand(SIZE, 2)
    same(x.grad, want.contiguous(), "what row r did on rank r")


if __name__ == "__main__":
    join("epccl")
    tests = [test for name, test in globals().items() if name.startswith("test_")]
    for test in tests:
        test()
        dist.barrier()
    dist.destroy_process_group()
    if RANK == 0:
        print(f"{len(tests)} passed on {SIZE} ranks, PyTorch {torch.__version__}: {', '.join(test.__name__ for test in tests)}")
