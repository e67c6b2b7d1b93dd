"""Collectives that cannot be: an error at once that says what is wrong, and the group is as before."""

import torch
import torch.distributed as dist
from harness import RANK, SIZE, expect_error, main

Op = dist.ReduceOp


def test_what_is_wrong_is_said(group):
    expect_error(RuntimeError, "no reduction of", lambda: dist.all_reduce(torch.zeros(2, dtype=torch.int16), group=group))
    for_integers = dist._make_nccl_premul_sum(2.0)
    expect_error(RuntimeError, "pre-multiplied sum of", lambda: dist.all_reduce(torch.zeros(2).int(), for_integers, group))
    expect_error(RuntimeError, "bits of Float is not supported", lambda: dist.all_reduce(torch.zeros(2), Op.BXOR, group))
    expect_error(RuntimeError, "average of bool is not supported", lambda: dist.all_reduce(torch.zeros(2).bool(), Op.AVG, group))
    expect_error(RuntimeError, "outputs for", lambda: dist.all_gather([torch.zeros(2)], torch.zeros(2), group))
    expect_error(RuntimeError, "", lambda: dist.all_gather_into_tensor(torch.zeros(SIZE + 1), torch.zeros(1), group))
    if RANK == 0:
        expect_error(RuntimeError, "output of 3", lambda: dist.gather_single(torch.zeros(1), torch.zeros(3), 0, group))
    expect_error(RuntimeError, "elements", lambda: dist.reduce_scatter(torch.zeros(2), [torch.zeros(3)] * SIZE, group=group))
    dist.barrier(group=group)


def test_outputs_of_which_several_elements_are_one_in_memory(group):
    one_in_memory, to_each = torch.zeros(1).expand(SIZE), [torch.zeros(1).expand(2)] * SIZE
    for write in (
        lambda: dist.all_reduce(one_in_memory, group=group),
        lambda: dist.broadcast(one_in_memory, 0, group=group),
        lambda: dist.all_gather_into_tensor(one_in_memory, torch.zeros(1), group),
        lambda: dist.all_gather(to_each, torch.zeros(2), group),
        lambda: dist.all_to_all_single(one_in_memory, torch.zeros(SIZE), group=group),
        lambda: dist.recv(one_in_memory, (RANK + 1) % SIZE, group=group),
    ):
        expect_error(RuntimeError, "one in memory", write)
    dist.all_to_all_single(torch.zeros(SIZE), one_in_memory, group=group)  # which is only read


if __name__ == "__main__":
    main(globals())
