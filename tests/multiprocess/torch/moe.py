"""An MoE layer written for torch.distributed, as people write it: it trains on EPCCL to the same loss as on gloo, bit by bit.

Under epccl-run, or: torchrun --nproc-per-node 4 moe.py
TEST_DEVICE=cuda: with EPCCL on a GPU that all ranks share. TEST_BACKEND=nccl: by PyTorch's backend of that name, with libepccl-nccl preloaded.
"""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from harness import BACKEND, DEVICE, RANK, SIZE, join

EXPERTS, HIDDEN, TOKENS, TOPK, STEPS = 2 * SIZE, 16, 24, 2, 2


# ---- nothing of this knows which backend there is


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, out_splits, in_splits):
        ctx.splits = in_splits, out_splits
        out = x.new_empty(sum(out_splits), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), out_splits, in_splits)
        return out

    @staticmethod
    def backward(ctx, grad):
        return AllToAll.apply(grad, *ctx.splits), None, None


class MoE(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.local = EXPERTS // SIZE
        self.router = torch.nn.Linear(HIDDEN, EXPERTS)
        torch.manual_seed(100 + RANK)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(HIDDEN, HIDDEN) for _ in range(self.local))

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(TOPK)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=EXPERTS)
        incoming = torch.empty_like(counts)
        dist.all_to_all_single(incoming, counts)
        in_splits = counts.view(SIZE, -1).sum(1).tolist()
        out_splits = incoming.view(SIZE, -1).sum(1).tolist()
        rows = AllToAll.apply(x[order // TOPK], out_splits, in_splits)
        expert = torch.arange(self.local, device=x.device).repeat(SIZE).repeat_interleave(incoming)
        done = torch.zeros_like(rows)
        for local, layer in enumerate(self.experts):
            here = (expert == local).nonzero().flatten()
            done = done.index_add(0, here, F.gelu(layer(rows[here])))
        back = AllToAll.apply(done, in_splits, out_splits)
        places = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=x.device))
        return (back[places].view(-1, TOPK, HIDDEN) * weights[..., None]).sum(1)


def train(device):
    torch.manual_seed(7)
    model = MoE().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(RANK)
    losses = []
    for _ in range(STEPS):
        x = torch.randn(TOKENS, HIDDEN, generator=generator).to(device)
        loss = F.mse_loss(model(x), x.roll(1, dims=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu())
    return losses, [p.detach().cpu() for p in model.parameters()]


# ----


def run(backend, device="cpu"):
    join(backend, name=f"store-{backend}")
    assert dist.get_backend() == backend
    result = train(device)
    dist.destroy_process_group()
    return result


if __name__ == "__main__":
    (with_gloo, gloo_weights), (with_epccl, epccl_weights) = run("gloo"), run(BACKEND, DEVICE)
    assert with_gloo[0] != with_gloo[1], "it learns nothing"
    for mine, other in zip(with_epccl + epccl_weights, with_gloo + gloo_weights):
        alike = torch.equal if DEVICE == "cpu" else partial(torch.allclose, rtol=1e-3, atol=1e-5)  # another device rounds otherwise
        assert alike(mine, other), f"rank {RANK}: {with_epccl} with EPCCL, {with_gloo} with gloo"
    how = "the same bits as" if DEVICE == "cpu" else "about as"
    print(f"rank {RANK} of {SIZE}: losses {[round(loss.item(), 6) for loss in with_epccl]}, {how} with gloo")
