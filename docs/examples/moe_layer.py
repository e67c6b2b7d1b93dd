"""An MoE layer on tensors of PyTorch on the CPU, forward and backward: torchrun --nproc-per-node 4 moe_layer.py"""

import epccl
import torch


class Dispatch(torch.autograd.Function):
    """Tokens, with the weights of their experts, to the ranks of these. The gradient of a dispatch is a combine."""

    @staticmethod
    def forward(ctx, handle, rows, x, weights):
        ctx.handle, ctx.weights = handle, torch.empty_like(weights)
        of_rows = weights.new_empty(rows)
        return handle.dispatch(x, topk_weights=weights, out_weights=of_rows), of_rows

    @staticmethod
    def backward(ctx, rows, of_rows):
        x = ctx.handle.combine(rows.contiguous(), topk_weights=of_rows.contiguous(), out_weights=ctx.weights)
        return None, None, x, ctx.weights


class Combine(torch.autograd.Function):
    """Rows back to the ranks of their tokens, added up there. The gradient of a combine is a dispatch."""

    @staticmethod
    def forward(ctx, handle, rows):
        ctx.handle = handle
        return handle.combine(rows)

    @staticmethod
    def backward(ctx, y):
        return None, ctx.handle.dispatch(y.contiguous())


class MoE(torch.nn.Module):
    """Its backward pass uses the routing of the forward pass before it."""

    def __init__(self, comm, experts, hidden, most_tokens, topk):
        super().__init__()
        self.topk = topk
        group = epccl.EpGroup(comm, num_experts=experts, max_send_tokens_per_rank=most_tokens, max_token_bytes=4 * hidden)
        self.handle = group.handle(epccl.Layout.EXPERT_MAJOR)
        self.router = torch.nn.Linear(hidden, experts)
        self.experts = torch.nn.ModuleDict({str(expert): torch.nn.Linear(hidden, hidden) for expert in group.local_experts})

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(self.topk)
        counters = self.handle.update(chosen)  # tensors, as the table is one
        rows, of_rows = Dispatch.apply(self.handle, counters.rows, x, weights)
        parts = rows.split(counters.expert_counters.tolist())
        done = torch.cat([expert(part) for expert, part in zip(self.experts.values(), parts)])
        return Combine.apply(self.handle, done * of_rows[:, None])


if __name__ == "__main__":
    with epccl.Communicator.from_launcher() as comm:
        torch.manual_seed(0)  # the same router on every rank
        layer = MoE(comm, experts=2 * comm.size, hidden=32, most_tokens=100, topk=2)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
        x, losses = torch.randn(100, 32), []
        for step in range(3):
            loss = torch.nn.functional.mse_loss(layer(x), x)
            optimizer.zero_grad()
            loss.backward()
            for parameter in layer.router.parameters():
                comm.allreduce(parameter.grad, op=epccl.RedOp.AVG)
            optimizer.step()
            losses.append(loss.item())
            if comm.rank == 0:
                print(f"step {step}: loss {losses[-1]:.6f}")
        assert losses[-1] < losses[0], "it learns nothing"
