"""Groups of some of the ranks, silent ranks, and the end of a group."""

import time
import types
import warnings
from datetime import timedelta

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
from harness import RANK, SIZE, TIMEOUT, expect_error, join, main, same, values
from torch.distributed.device_mesh import init_device_mesh

SUCCESS, TIMED_OUT, COMM_ERROR = range(3)  # c10d::WorkResult, of which Python has no names


def test_groups_of_some_ranks(_):
    evens, odds = list(range(0, SIZE, 2)), list(range(1, SIZE, 2))
    groups = [dist.new_group(members, backend="epccl") for members in (evens, odds, [SIZE - 1, 0])]
    for members, group in zip((evens, odds, [0, SIZE - 1]), groups):
        if RANK not in members:
            continue
        mine = members.index(RANK)
        send = values(torch.float32, (len(members), 4), RANK)
        got = torch.zeros_like(send)
        dist.all_to_all_single(got, send, group=group)
        same(got, torch.stack([values(torch.float32, (len(members), 4), r)[mine] for r in members]), members)
        if len(members) > 1 and mine < 2:  # peers are named by their global rank
            partner = members[1 - mine]
            got = torch.zeros(3)
            request = dist.irecv(got, partner, group=group)
            dist.send(values(torch.float32, (3,), RANK), partner, group=group)
            request.wait()
            same(got, values(torch.float32, (3,), partner), "message")


def test_a_group_is_split(group):
    halves = [list(range(0, SIZE, 2)), list(range(1, SIZE, 2))[::-1]]
    half = dist.split_group(parent_pg=group, split_ranks=halves)
    members = halves[RANK % 2]
    assert dist.get_world_size(half) == len(members) and dist.get_rank(half) == members.index(RANK)
    got = torch.tensor([float(RANK + 1)])
    dist.all_reduce(got, group=half)
    assert got.item() == sum(member + 1 for member in members)
    # Again of its first ranks; the others are in none.
    first = dist.split_group(parent_pg=group, split_ranks=[[1, 0]])
    if RANK > 1:
        assert first is None or first == dist.GroupMember.NON_GROUP_MEMBER, first
    else:
        got = torch.full((2,), RANK)
        dist.broadcast(got, src=1, group=first)
        assert got.tolist() == [1, 1] and dist.get_rank(first) == 1 - RANK
    dist.barrier(group=group)


def test_groups_are_merged(group):
    half = dist.split_group(parent_pg=group, split_ranks=[list(range(0, SIZE, 2)), list(range(1, SIZE, 2))])
    store = dist.PrefixStore("merged", dist.distributed_c10d._get_default_store())
    # PyTorch gives the ranks of the new group, in the order in which they come.
    whole = half.merge_remote_group(store, SIZE, TIMEOUT, "whole")
    assert whole.size() == SIZE
    everyone = [torch.zeros(2, dtype=torch.int64) for _ in range(SIZE)]
    whole.allgather([everyone], [torch.tensor([whole.rank(), RANK])]).wait()
    places, ranks = torch.stack(everyone).T.tolist()
    assert places == list(range(SIZE)) and sorted(ranks) == list(range(SIZE)), everyone
    whole.shutdown()


def test_calls_on_two_groups_do_not_wait_for_each_other(group):
    other = dist.new_group(backend="epccl")
    send = values(torch.int32, (SIZE, 10), RANK)
    first, second = torch.zeros_like(send), torch.zeros_like(send)
    order = [(group, first), (other, second)]
    works = [dist.all_to_all_single(got, send, group=g, async_op=True) for g, got in (order if RANK % 2 else order[::-1])]
    for work in works:
        work.wait()
    same(first, second, "two groups")


def test_a_silent_rank_is_named_within_the_timeout(_):
    group = dist.new_group(backend="epccl", timeout=timedelta(seconds=10))
    send = torch.zeros(SIZE)
    dist.barrier()
    begin = time.monotonic()
    if RANK != SIZE - 1:
        failure = expect_error(
            dist.DistBackendError, f"rank {SIZE - 1}", lambda: dist.all_to_all_single(torch.zeros(SIZE), send, group=group)
        )
        assert "all_to_all_single" in str(failure) and time.monotonic() - begin < 30, failure
    dist.barrier()
    # What failed once stays failed, at once.
    dist.set_timeout(timedelta(seconds=60), group)
    if RANK == 0:
        begin = time.monotonic()
        expect_error(dist.DistBackendError, "", lambda: dist.barrier(group=group))
        assert time.monotonic() - begin < 20


def backend_of(group):
    return group._get_backend(torch.device("cpu"))


def test_the_kind_of_a_failure_is_told(_):
    silent = dist.new_group(backend="epccl", timeout=timedelta(seconds=2))
    aborted = dist.new_group(backend="epccl", timeout=TIMEOUT)
    for group in (silent, aborted):
        assert backend_of(group).get_error() == c10d.ErrorType.SUCCESS
        assert dist.all_reduce(torch.zeros(1), group=group, async_op=True).get_future_result().wait() == SUCCESS
    dist.barrier()
    for group, result, error in ((silent, TIMED_OUT, c10d.ErrorType.TIMEOUT), (aborted, COMM_ERROR, c10d.ErrorType.COMM_ERROR)):
        if RANK == 0:  # the others make no such call
            work = dist.all_reduce(torch.zeros(1), group=group, async_op=True)
            outcome = work.get_future_result()
            if group is aborted:
                backend_of(group).abort()
            assert outcome.wait() == result, outcome.value()
            expect_error(dist.DistBackendError, "", work.wait)
            assert work.get_future_result().wait() == result
        if RANK == 0 and group is silent:  # the others neither send nor take messages
            for message in (dist.irecv(torch.zeros(1), group=group), dist.isend(torch.zeros(1), 1, group=group)):
                expect_error(dist.DistBackendError, "", message.wait)
                assert message.get_future_result().wait() == TIMED_OUT
        dist.barrier()
        begin = time.monotonic()
        while (told := backend_of(group).get_error()) != error:
            assert time.monotonic() - begin < 20, told
            time.sleep(0.01)


def test_a_call_tells_how_long_it_waits(_):
    group = dist.new_group(backend="epccl", timeout=timedelta(seconds=50))
    wait = {"async_op": True, "group": group}
    assert dist.all_reduce(torch.zeros(1), **wait).timeout == timedelta(seconds=50)
    backend_of(group)._set_default_timeout(timedelta(seconds=40))
    assert backend_of(group).options._timeout == timedelta(seconds=40)
    to, source = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    works = [dist.all_reduce(torch.zeros(1), **wait), dist.isend(torch.zeros(1), to, group), dist.irecv(torch.zeros(1), source, group)]
    for work in works:
        work.wait()
        assert work.timeout == timedelta(seconds=40), work.timeout
        assert work.get_future_result().wait() == SUCCESS
    expect_error(RuntimeError, "0 ms", lambda: backend_of(group)._set_default_timeout(timedelta(0)))


def test_options_of_no_use_are_refused(_):
    options = c10d.Backend.Options
    ten = timedelta(seconds=10)
    for given, kind, said in (
        ({"fast": True}, TypeError, "pg_options is {'fast': True}: this backend has no options"),
        (options("gloo"), TypeError, "pg_options are those of the backend gloo"),
        (options("epccl", ten), ValueError, "pg_options has a timeout of 0:00:10, the group's is 0:01:00: give it as timeout="),
    ):
        expect_error(kind, said, lambda: dist.new_group(backend="epccl", timeout=TIMEOUT, pg_options=given))
    group = dist.new_group(backend="epccl", timeout=ten, pg_options=options("epccl", ten))
    dist.barrier(group=group)
    half = dist.split_group(group, [list(range(SIZE))], timeout=ten, pg_options=options("epccl", ten))
    mesh = init_device_mesh("cpu", (SIZE,), backend_override={0: ("epccl", options("epccl", ten))})
    for made in (half, mesh.get_group()):
        assert backend_of(made).options._timeout == ten
        dist.barrier(group=made)
    # What is another backend's goes to all of a group, and is for that one.
    create = dist.Backend._plugins["EPCCL"].creator_fn.__globals__["_check_options"]
    both = types.SimpleNamespace(process_group=types.SimpleNamespace(name=lambda: "nccl"), timeout=ten)
    create(both, options("nccl"))
    expect_error(TypeError, "backend gloo", lambda: create(both, options("gloo")))


def test_the_timeout_of_a_group_can_be_changed(_):
    group = dist.new_group(backend="epccl", timeout=timedelta(hours=1))
    # Rank 1 has a channel to rank 0 from here on, and calls have been made: the new timeout is theirs, too.
    if RANK < 2:
        dist.recv(torch.zeros(1), 1, group) if RANK == 0 else dist.send(torch.zeros(1), 0, group)
    dist.barrier(group=group)
    expect_error(RuntimeError, "0 ms", lambda: dist.set_timeout(timedelta(0), group))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        dist.set_timeout(timedelta(seconds=2), group)
    assert not said, [str(one.message) for one in said]
    if RANK == 0:  # alone: nothing that others must do in time
        expect_error(dist.DistBackendError, "timeout", lambda: dist.recv(torch.zeros(1), 1, group, tag=5))
        expect_error(dist.DistBackendError, "within 2000 ms", lambda: dist.recv(torch.zeros(1), group=group, tag=6))
    dist.set_timeout(timedelta(seconds=10), group)
    dist.barrier()
    send = torch.zeros(SIZE)
    if RANK != SIZE - 1:
        expect_error(
            dist.DistBackendError, f"rank {SIZE - 1}", lambda: dist.all_to_all_single(torch.zeros(SIZE), send, group=group)
        )
    dist.barrier()


def test_a_wait_has_its_own_timeout(group):
    if RANK == 0:
        dist.recv(torch.zeros(1), 1)  # over gloo, when rank 1 has seen that the call is not complete
    send, got = values(torch.float32, (SIZE,), RANK), torch.zeros(SIZE)
    work = dist.all_to_all_single(got, send, group=group, async_op=True)
    if RANK == 1:
        expect_error(dist.DistBackendError, "not complete after 200 ms", lambda: work.wait(timedelta(milliseconds=200)))
        assert not work.is_completed()
        dist.send(torch.zeros(1), 0)
    work.wait()  # it went on
    same(got, torch.stack([values(torch.float32, (SIZE,), s)[RANK] for s in range(SIZE)]), "late")


def test_a_barrier_has_its_own_timeout(_):
    group = dist.new_group(backend="epccl", timeout=timedelta(hours=1))
    dist.barrier(group=group, timeout=timedelta(seconds=60))
    dist.barrier(group=group)
    if RANK != SIZE - 1:
        expect_error(
            dist.DistBackendError, f"rank {SIZE - 1}", lambda: dist.barrier(group=group, timeout=timedelta(seconds=10))
        )
    dist.barrier()


def test_a_group_ends_with_messages_that_nobody_took(_):
    group = dist.new_group(backend="epccl")
    pending = dist.isend(torch.zeros(4), (RANK + 1) % SIZE, group=group, tag=7)
    dist.barrier()
    dist.destroy_process_group(group)
    expect_error(dist.DistBackendError, "", pending.wait)


def test_a_message_outlives_its_sender(_):
    group = dist.new_group(backend="epccl")
    if RANK == 0:
        dist.send(values(torch.float32, (9,), 0), 1, group=group)
        dist.destroy_process_group(group)
    elif RANK == 1:
        time.sleep(0.5)
        got = torch.zeros(9)
        dist.recv(got, 0, group=group)
        same(got, values(torch.float32, (9,), 0), "from a rank that left")


def test_abort(_):
    group = dist.new_group(backend="epccl")
    dist.barrier()
    if RANK == 0:
        time.sleep(0.3)
        group._get_backend(torch.device("cpu")).abort()
        expect_error(dist.DistBackendError, "aborted", lambda: dist.barrier(group=group))
    else:
        expect_error(dist.DistBackendError, "rank 0", lambda: dist.barrier(group=group))


def groups_where_the_default_group_is_bound_to_a_device():
    join("epccl", name="bound", device_id=torch.device("cpu:0"))
    for members in ([0, 1], [SIZE - 1, 1], list(range(SIZE))):
        group = dist.new_group(members)
        if RANK in members:
            got = torch.tensor([float(RANK)])
            dist.all_reduce(got, group=group)
            assert got.item() == sum(members), (members, got)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(globals())
    groups_where_the_default_group_is_bound_to_a_device()
