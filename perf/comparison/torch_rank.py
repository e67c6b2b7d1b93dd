"""One rank of perf/torch: all_to_all_single over EPCCL and over gloo, turn by turn in the same processes. Rank 0 prints JSON lines.

  torch_rank.py SMALLEST LARGEST SECONDS [SPLITS]      bytes per rank pair, seconds per size and backend
"""

import json
import os
import sys
import time
from datetime import timedelta

os.environ.setdefault("GLOO_SOCKET_IFNAME", os.environ.get("EPCCL_SOCKET_IFNAME", "lo").lstrip("="))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import epccl_torch  # noqa: E402, F401
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

RANK, SIZE = int(os.environ["EPCCL_RANK"]), int(os.environ["EPCCL_WORLD_SIZE"])
WARM_UP, FEWEST, MOST = 3, 5, 2000


def check(group, pair):
    """Bytes that depend on source, destination and place."""
    at = torch.arange(pair, dtype=torch.int64)
    send = torch.cat([(at * 3 + 17 * RANK + 5 * peer + 1) % 251 for peer in range(SIZE)]).to(torch.uint8)
    got = torch.full_like(send, 255)
    dist.all_to_all_single(got, send, group=group)
    want = torch.cat([(at * 3 + 17 * peer + 5 * RANK + 1) % 251 for peer in range(SIZE)]).to(torch.uint8)
    return torch.equal(got, want)


def timed(group, barrier, send, got, splits, calls):
    """Seconds of each call on this rank."""
    seconds = []
    for _ in range(calls):
        dist.barrier(barrier)
        begin = time.perf_counter()
        dist.all_to_all_single(got, send, splits, splits, group=group)
        seconds.append(time.perf_counter() - begin)
    return torch.tensor(seconds, dtype=torch.float64)


def measure(group, barrier, pair, budget, with_splits):
    """(median microseconds, 99th percentile) over calls of the slowest rank's time."""
    send, got = torch.ones(pair * SIZE, dtype=torch.uint8), torch.zeros(pair * SIZE, dtype=torch.uint8)
    splits = [pair] * SIZE if with_splits else None
    took = timed(group, barrier, send, got, splits, WARM_UP)[1:].mean()
    dist.all_reduce(took, dist.ReduceOp.MAX)
    calls = max(FEWEST, min(MOST, int(budget / max(took.item(), 1e-6))))
    slowest = timed(group, barrier, send, got, splits, calls)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.median().item() * 1e6, slowest.quantile(0.99).item() * 1e6


def main():
    smallest, largest, budget = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    with_splits = "SPLITS" in sys.argv[4:]
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(os.environ["EPCCL_STORE"], "torch"), SIZE)
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=SIZE, timeout=timedelta(seconds=120))
    groups = {"gloo": dist.group.WORLD, "epccl": dist.new_group(backend="epccl")}
    pair = smallest
    while pair <= largest:
        for name, group in groups.items():
            right = torch.tensor([int(check(group, pair))])
            dist.all_reduce(right, dist.ReduceOp.MIN)
            # One barrier for both: the one that lets the ranks go more nearly at once.
            median, p99 = measure(group, groups["epccl"], pair, budget, with_splits)
            if RANK == 0:
                print(json.dumps({"backend": name, "size": pair, "us": median, "p99_us": p99, "right": bool(right)}), flush=True)
        pair *= 4
    dist.destroy_process_group(groups["epccl"])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
