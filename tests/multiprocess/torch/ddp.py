"""DistributedDataParallel over EPCCL: two steps end where they end over gloo, and alike on every rank.

TEST_DEVICE=cuda: with EPCCL on a GPU that all ranks share.
"""

import torch
import torch.distributed as dist
from harness import DEVICE, RANK, SIZE, join
from torch.nn.parallel import DistributedDataParallel


def train(device):
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(20, 300), torch.nn.BatchNorm1d(300), torch.nn.ReLU(), torch.nn.Linear(300, 5)
    ).to(device)
    # Small buckets: several allreduces are under way at once.
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(RANK)
    for _ in range(2):
        x = torch.randn(8, 20, generator=generator).to(device)
        loss = wrapped(x).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def run(backend, device="cpu"):
    join(backend, name=f"store-{backend}")
    result = train(device)
    of_rank_0 = result.clone()
    dist.broadcast(of_rank_0, 0)
    assert torch.equal(result, of_rank_0), f"rank {RANK} differs from rank 0 ({backend})"
    dist.destroy_process_group()
    return result.cpu()


if __name__ == "__main__":
    over_gloo, over_epccl = run("gloo"), run("epccl", DEVICE)
    # The order in which gradients are added up is the backend's.
    torch.testing.assert_close(over_epccl, over_gloo, rtol=1e-4, atol=1e-6)
    print(f"rank {RANK} of {SIZE}: as over gloo, largest difference {(over_epccl - over_gloo).abs().max().item():.1e}")
