"""PyTorch's backend nccl with libepccl-nccl in NVIDIA's place: CUDA tensors of ranks that share one GPU. Run with LD_PRELOAD set to it.

What is an all-to-all, or a message, is EPCCL's; the rest is passed on to NVIDIA's library. That refuses ranks which share a GPU, unless it takes them
to be on different hosts: then they reach each other by sockets.
"""

import os
import time

os.environ["TEST_BACKEND"] = "nccl"

import torch
import torch.distributed as dist

from harness import RANK, SIZE, join

ROUNDS = 5


def rows(source, target, count, salt):
    """What `source` has for `target`: unlike anything else."""
    return torch.arange(count, device="cuda", dtype=torch.int64) * 1009 + source * 101 + target * 11 + salt


def exchange(counts, salt, group=None, asynchronous=False):
    """`counts[s][t]` rows from s to t; checks each."""
    mine, theirs = counts[RANK], [counts[source][RANK] for source in range(SIZE)]
    sent = torch.cat([rows(RANK, target, mine[target], salt) for target in range(SIZE)])
    got = torch.full((sum(theirs),), -1, dtype=torch.int64, device="cuda")
    work = dist.all_to_all_single(got, sent, theirs, mine, group=group, async_op=asynchronous)
    if asynchronous:
        work.wait()
    want = torch.cat([rows(source, RANK, theirs[source], salt) for source in range(SIZE)])
    assert torch.equal(got, want), f"rank {RANK}: {counts}, salt {salt}"


def uneven(scale, salt):
    return [[(source * 7 + target * 3 + salt) % 5 * scale for target in range(SIZE)] for source in range(SIZE)]


def test_all_to_all_of_equal_parts():
    for count in (1, 128, 4096, 1 << 18):
        for salt in range(ROUNDS):
            exchange([[count] * SIZE] * SIZE, salt)


def test_all_to_all_of_uneven_parts_with_empty_ones():
    for scale in (1, 1000, 100_000):
        for salt in range(ROUNDS):
            exchange(uneven(scale, salt), salt, asynchronous=salt % 2 == 1)


def test_streams_keep_their_order():
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for salt in range(ROUNDS):
            exchange(uneven(5000, salt), salt)
    side.synchronize()


def test_messages():
    following, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for count in (1, 1000, 1 << 20):
        sent, got = rows(RANK, following, count, 1), torch.zeros(count, dtype=torch.int64, device="cuda")
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, following), dist.P2POp(dist.irecv, got, before)]):
            work.wait()
        assert torch.equal(got, rows(before, RANK, count, 1)), f"rank {RANK}: ring of {count}"


def test_what_is_passed_on_between_what_is_not():
    for salt in range(ROUNDS):
        total = torch.full((1000,), float(RANK + 1), device="cuda")
        dist.all_reduce(total)
        exchange(uneven(300, salt), salt)
        everybody = torch.zeros(SIZE, device="cuda")
        dist.all_gather_into_tensor(everybody, total[:1] * (RANK + 1))
        sum_of_all = SIZE * (SIZE + 1) / 2
        assert torch.equal(total, torch.full_like(total, sum_of_all)), f"rank {RANK}: a sum"
        assert everybody.tolist() == [sum_of_all * (rank + 1) for rank in range(SIZE)], f"rank {RANK}: a gather"
        dist.barrier()


def main():
    assert hasattr(__import__("ctypes").CDLL(None), "epccl_nccl_shim"), "NVIDIA's library is in front"
    torch.cuda.set_device(0)
    join("nccl")
    tests = [test for name, test in globals().items() if name.startswith("test_")]
    for test in tests:
        begin = time.monotonic()
        test()
        torch.cuda.synchronize()
        if RANK == 0:
            print(f"passed: {test.__name__}, {time.monotonic() - begin:.2f} s", flush=True)
    dist.destroy_process_group()
    if RANK == 0:
        print(f"{len(tests)} passed on {SIZE} ranks, PyTorch {torch.__version__}", flush=True)


if __name__ == "__main__":
    main()
