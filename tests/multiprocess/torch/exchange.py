"""all_to_all_single, all_to_all, sends, receives and barriers, with gloo's answer or one's own beside them."""

import random
import time
from collections import Counter
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from harness import RANK, SIZE, TIMEOUT, expect_error, main, same, values
from torch._subclasses.fake_tensor import FakeTensorMode

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip
GLOO = [torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64]


def test_all_to_all_single_of_every_dtype(group):
    for dtype in DTYPES:
        for rows in (SIZE, 3 * SIZE):
            send = values(dtype, (rows, 5), RANK)
            got, want = torch.zeros_like(send), torch.zeros_like(send)
            dist.all_to_all_single(got, send, group=group)
            parts = [values(dtype, (rows, 5), source).chunk(SIZE)[RANK] for source in range(SIZE)]
            same(got, torch.cat([p.view(torch.uint8) if p.element_size() == 1 else p for p in parts]).view(dtype), dtype)
            if dtype in GLOO:
                dist.all_to_all_single(want, send)
                same(got, want, f"gloo {dtype}")


def test_all_to_all_single_with_splits(group):
    generator = torch.Generator().manual_seed(5)
    for trial in range(6):
        counts = torch.randint(0, 9, (SIZE, SIZE), generator=generator)
        if trial == 0:
            counts.zero_()
        into, out = counts[RANK].tolist(), counts[:, RANK].tolist()
        send = values(torch.float32, (sum(into), 3), RANK, trial)
        got, want = torch.full((sum(out), 3), -1.0), torch.full((sum(out), 3), -1.0)
        dist.all_to_all_single(got, send, out, into, group=group)
        dist.all_to_all_single(want, send, out, into)
        same(got, want, f"trial {trial}")


def test_tensors_that_are_not_contiguous(group):
    send = values(torch.float32, (6, SIZE), RANK).t()
    got, want = torch.zeros(7, SIZE).t()[:, :6], torch.zeros(SIZE, 6)
    dist.all_to_all_single(got, send, group=group)
    dist.all_to_all_single(want, send.contiguous())
    same(got, want, "strided")


def test_output_that_is_the_input(group):
    both = values(torch.int64, (SIZE, 2), RANK)
    want = torch.zeros_like(both)
    dist.all_to_all_single(want, both.clone())
    dist.all_to_all_single(both, both, group=group)
    same(both, want, "in place")


def test_all_to_all_of_lists(group):
    shapes = [[((s * 3 + d) % 4, 2) for d in range(SIZE)] for s in range(SIZE)]
    send = [values(torch.float64, shapes[RANK][d], RANK, d) for d in range(SIZE)]
    got = [torch.zeros(shapes[s][RANK], dtype=torch.float64) for s in range(SIZE)]
    dist.all_to_all(got, send, group=group)
    for source in range(SIZE):
        same(got[source], values(torch.float64, shapes[source][RANK], source, RANK), f"from {source}")


def test_asynchronous_calls_overlap_and_keep_order(group):
    sends = [values(torch.int32, (SIZE, 1000), RANK, salt) for salt in range(10)]
    gots = [torch.zeros_like(send) for send in sends]
    works = [dist.all_to_all_single(got, send, group=group, async_op=True) for got, send in zip(gots, sends)]
    last = torch.zeros_like(sends[0])
    dist.all_to_all_single(last, sends[0], group=group)  # a synchronous one waits for its turn
    assert all(work.is_completed() for work in works)
    for salt, (work, got) in enumerate(zip(works, gots)):
        assert work.wait()
        same(got, torch.stack([values(torch.int32, (SIZE, 1000), s, salt)[RANK] for s in range(SIZE)]), salt)
    seen = []
    future = dist.all_to_all_single(last, sends[1], group=group, async_op=True).get_future()
    future.then(lambda done: seen.append(done.value()[0].data_ptr())).wait()
    assert seen == [last.data_ptr()]


def test_sends_and_receives_of_both_directions_at_once(group):
    for count in (1, 300_000):  # the larger one fits into no buffer between
        works, gots = [], []
        for peer in range(SIZE):
            if peer != RANK:
                works.append(dist.isend(values(torch.float32, (count,), RANK, peer), peer, group=group))
        for peer in range(SIZE):
            if peer != RANK:
                gots.append((peer, torch.zeros(count)))
                works.append(dist.irecv(gots[-1][1], peer, group=group))
        for work in works:
            work.wait()
        for peer, got in gots:
            same(got, values(torch.float32, (count,), peer, RANK), f"from {peer}")


def test_tags_are_matched_in_any_order(group):
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    sends = [dist.isend(values(torch.int64, (50,), RANK, tag), right, group=group, tag=tag) for tag in (1, 2, 3)]
    third, strided = torch.zeros(50, dtype=torch.int64), torch.zeros(50, 2, dtype=torch.int64)[:, 0]
    dist.recv(third, left, group=group, tag=3)
    later = dist.irecv(strided, left, group=group, tag=2)
    first = torch.zeros(50, dtype=torch.int64)
    dist.recv(first, left, group=group, tag=1)
    later.wait()
    for tag, got in ((1, first), (2, strided), (3, third)):
        same(got, values(torch.int64, (50,), left, tag), f"tag {tag}")
    for work in sends:
        work.wait()
    # A receive that was posted first may be served last.
    two, one = torch.zeros(1), torch.zeros(1)
    wait_two = dist.irecv(two, left, group=group, tag=2)
    wait_one = dist.irecv(one, left, group=group, tag=1)
    dist.send(torch.ones(1), right, group=group, tag=1)
    wait_one.wait()
    dist.send(2 * torch.ones(1), right, group=group, tag=2)
    wait_two.wait()
    assert (one.item(), two.item()) == (1, 2)


def test_messages_to_oneself_in_whatever_order(group):
    one, two = torch.zeros(5), torch.zeros(5, 2)[:, 0]
    early = dist.irecv(one, RANK, group=group, tag=1)
    sent = values(torch.float32, (5,), RANK)
    dist.isend(sent, RANK, group=group, tag=2).wait()
    sent.zero_()  # it is free
    dist.irecv(two, RANK, group=group, tag=2).wait()
    same(two, values(torch.float32, (5,), RANK), "received after it was sent")
    assert not early.is_completed()
    dist.isend(values(torch.float32, (5,), RANK, 1), RANK, group=group, tag=1).wait()
    early.wait()
    same(one, values(torch.float32, (5,), RANK, 1), "received before it was sent")
    first, second, empty = torch.zeros(1), torch.zeros(1), torch.zeros(0)
    for number in (1, 2):
        dist.isend(torch.full((1,), float(number)), RANK, group=group)
    dist.isend(empty, RANK, group=group)
    from_any = dist.irecv(first, group=group)  # PyTorch itself refuses what waits for a message of one's own: recv
    from_any.wait()
    assert from_any._source_rank() == RANK
    dist.irecv(second, RANK, group=group).wait()
    dist.irecv(empty, RANK, group=group).wait()
    assert (first.item(), second.item()) == (1, 2)
    dist.isend(torch.zeros(3), RANK, group=group)
    wrong = dist.irecv(torch.zeros(4), RANK, group=group)
    expect_error(dist.DistBackendError, "12 bytes came, 16 were expected", wrong.wait)


def test_a_batch_of_sends_and_receives(group):
    """A rank's own among them, and receives before the sends."""
    gots = [torch.zeros(4, dtype=torch.bfloat16) for _ in range(SIZE)]
    operations = [dist.P2POp(dist.irecv, got, source, group) for source, got in enumerate(gots)]
    operations += [dist.P2POp(dist.isend, values(torch.bfloat16, (4,), RANK, to), to, group) for to in range(SIZE)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for source, got in enumerate(gots):
        same(got, values(torch.bfloat16, (4,), source, RANK), f"from {source}")


def test_a_receive_from_oneself_ends_after_the_timeout(group):
    brief = dist.new_group(backend="epccl", timeout=TIMEOUT)
    dist.barrier(brief)
    dist.set_timeout(timedelta(seconds=2), brief)
    expect_error(dist.DistBackendError, f"rank {RANK}, tag 4: timeout", dist.irecv(torch.zeros(1), RANK, group=brief, tag=4).wait)
    dist.barrier()


def test_a_group_of_one_rank_has_messages_to_oneself(group):
    alone = [dist.new_group([rank], backend="epccl", timeout=TIMEOUT) for rank in range(SIZE)][RANK]
    got = torch.zeros(2)
    dist.isend(torch.ones(2), RANK, group=alone)
    dist.irecv(got, group=alone).wait()
    assert got.sum() == 2


def test_a_message_of_another_size_is_an_error_that_says_so(group):
    if RANK == 0:
        dist.send(torch.zeros(3), 1, group=group)
    elif RANK == 1:
        expect_error(dist.DistBackendError, "12 bytes came, 16 were expected", lambda: dist.recv(torch.zeros(4), 0, group=group))
    dist.barrier()


def numbered(source, tag, number):
    """A message that says whose it is, and the how many-th of its tag; those of tag 2 fit into no buffer between."""
    return torch.tensor([source, tag, number], dtype=torch.float64).repeat(50_000 if tag == 2 else 1)


def from_any(group, tag):
    """A receive from any rank: where the message came from, and its number."""
    got = torch.zeros_like(numbered(0, tag, 0))
    source = dist.recv(got, group=group, tag=tag)
    same(got, numbered(source, tag, got[2].item()), f"tag {tag} from {source}")
    return source, int(got[2].item())


def test_receives_from_any_rank_beside_those_from_one(group):
    generator = random.Random(7)  # alike on every rank
    for _ in range(4):
        tags = (1, 2, 3)
        sent = {(s, d, t): generator.randint(0, 4) for s in range(SIZE) for d in range(SIZE) for t in tags if s != d}
        named = {key: generator.randint(0, count) for key, count in sent.items()}
        mine = random.Random(generator.random() + RANK)
        order = [(d, t) for (s, d, t), count in sent.items() if s == RANK for _ in range(count)]
        mine.shuffle(order)
        sends, begun = [], Counter()
        for d, t in order:
            sends.append(dist.isend(numbered(RANK, t, begun[d, t]), d, group=group, tag=t))
            begun[d, t] += 1
            if mine.random() < 0.1:
                time.sleep(0.002)
        # Those that name their rank are posted first, so they have its first messages.
        receives = []
        for s in range(SIZE):
            for t in tags:
                for number in range(named.get((s, RANK, t), 0)):
                    got = torch.zeros_like(numbered(s, t, 0))
                    receives.append((dist.irecv(got, s, group=group, tag=t), got, numbered(s, t, number)))
        left = [t for (s, d, t), count in sent.items() if d == RANK for _ in range(count - named[s, d, t])]
        mine.shuffle(left)
        next_of = Counter({(s, t): named[s, RANK, t] for s in range(SIZE) for t in tags if s != RANK})
        for t in left:
            source, number = from_any(group, t)
            assert number == next_of[source, t], f"tag {t}: number {number} of rank {source} before {next_of[source, t]}"
            next_of[source, t] += 1
        assert all(count == sent[s, RANK, t] for (s, t), count in next_of.items()), (next_of, sent)
        for work, got, want in receives:
            work.wait()
            same(got, want, "from a rank that was named")
        for work in sends:
            work.wait()
        dist.barrier()  # what is sent next is not for receives of this round


def test_a_receive_from_any_rank_is_first_where_it_was_posted_first(group):
    if RANK == 0:
        gots = [torch.zeros(3, dtype=torch.float64) for _ in range(3)]
        works = [dist.irecv(gots[0], group=group), dist.irecv(gots[1], 1, group=group), dist.irecv(gots[2], group=group)]
        dist.barrier()
        for number, (work, got) in enumerate(zip(works, gots)):
            work.wait()
            same(got, numbered(1, 0, number), f"receive {number}")
        assert [works[0]._source_rank(), works[2]._source_rank()] == [1, 1]
    else:
        dist.barrier()
        for number in range(3) if RANK == 1 else ():
            dist.send(numbered(1, 0, number), 0, group=group)


def test_a_receive_from_any_rank_of_a_group_says_its_global_rank(group):
    ranks = list(range(1, SIZE))
    some = dist.new_group(ranks, backend="epccl", timeout=TIMEOUT)
    if RANK == SIZE - 1:
        assert sorted(dist.recv(torch.zeros(1), group=some) for _ in ranks[:-1]) == ranks[:-1]
    elif RANK in ranks:
        dist.send(torch.ones(1), SIZE - 1, group=some)


def test_a_message_of_another_size_ends_a_receive_from_any_rank_alone(group):
    if RANK == 0:
        dist.send(torch.zeros(3), 1, group=group)
        dist.send(torch.ones(4), 1, group=group)
    elif RANK == 1:
        got = torch.zeros(4)
        expect_error(dist.DistBackendError, "12 bytes came, 16 were expected", lambda: dist.recv(got, group=group))
        assert dist.recv(got, group=group) == 0 and got.sum() == 4


def test_a_receive_from_any_rank_ends_after_the_timeout(group):
    brief = dist.new_group(backend="epccl", timeout=TIMEOUT)
    dist.barrier()
    if RANK == 0:
        # Rank 1 has a channel here from now on, which waits for as long as it takes.
        assert dist.recv(torch.zeros(1), group=brief, tag=1) == 1
        dist.set_timeout(timedelta(seconds=3), brief)
        anyone, one = dist.irecv(torch.zeros(1), group=brief, tag=2), None
        time.sleep(0.3)
        one = dist.irecv(torch.zeros(1), 1, group=brief, tag=3)
        expect_error(dist.DistBackendError, "any rank, tag 2: timeout", anyone.wait)
        expect_error(dist.DistBackendError, "rank 1, tag 3: timeout", one.wait)
        dist.set_timeout(TIMEOUT, brief)
    elif RANK == 1:
        dist.send(torch.zeros(1), 0, group=brief, tag=1)
    dist.barrier()
    # Only the channel of rank 1 was given up.
    if RANK == 0:
        assert dist.recv(torch.zeros(1), group=brief, tag=2) == 2
    elif RANK == 2:
        dist.send(torch.zeros(1), 0, group=brief, tag=2)
    dist.barrier()


def test_a_receive_that_is_waited_for_in_vain_goes_on(group):
    got = torch.zeros(1)
    if RANK == 0:
        work = dist.irecv(got, 1, group=group)
        expect_error(dist.DistBackendError, "epccl: recv (number", lambda: work.wait(timedelta(milliseconds=50)))
    dist.barrier()
    if RANK == 1:
        dist.send(torch.ones(1), 0, group=group)
    elif RANK == 0:
        work.wait()
        assert got == 1


def test_a_receive_that_waits_when_its_group_is_destroyed_fails(group):
    short = dist.new_group(backend="epccl", timeout=TIMEOUT)
    anyone = dist.irecv(torch.zeros(1), group=short)
    dist.barrier()
    dist.destroy_process_group(short)
    expect_error(dist.DistBackendError, "destroyed", anyone.wait)


def test_barriers(group):
    dist.barrier(group=group)
    if RANK == 1:
        time.sleep(0.4)
    came = torch.tensor([time.monotonic()], dtype=torch.float64)
    dist.barrier(group=group)
    left = time.monotonic()
    dist.broadcast(came, src=1)
    assert left >= came.item(), "a rank left the barrier before the last one came"
    dist.monitored_barrier(group)
    dist.monitored_barrier(group, timedelta(seconds=20), wait_all_ranks=True)


def test_one_rank_s_tracing_changes_no_call(group):
    """It registers a stand-in for GPUs, which has one."""
    if RANK == 1:
        with FakeTensorMode():
            torch.ones(2)
    dist.barrier(group, device_ids=[0] if torch.cuda.device_count() == 0 else None)
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    sent, got = torch.tensor([RANK]), torch.tensor([-1])
    batch = [dist.P2POp(dist.isend, sent, right, group), dist.P2POp(dist.irecv, got, left, group)]
    works = dist.batch_isend_irecv(batch)
    assert len(works) == (2 if torch.cuda.device_count() == 0 else 1), works
    for work in works:
        work.wait()
    assert got.item() == left


def test_a_monitored_barrier_names_all_who_are_missing(group):
    dist.barrier()
    if RANK in (0, 1):
        missing = ", ".join(str(rank) for rank in range(2, SIZE))
        said = f"Ranks {missing} failed to pass monitoredBarrier in 10000 ms" if SIZE > 3 else f"Rank {missing} failed"
        expect_error(RuntimeError, said, lambda: dist.monitored_barrier(group, timedelta(seconds=10), wait_all_ranks=True))
    dist.barrier()
    dist.barrier(group=group)  # the group is as good as before


def test_monitored_barriers_leave_nothing_in_the_store(group):
    store, counts, last = dist.distributed_c10d._get_default_store(), [], SIZE - 1
    for late in (True, False, False, False):
        call = partial(dist.monitored_barrier, group, timedelta(seconds=10 if late else 20))
        dist.barrier()
        if not late:
            call()
        elif RANK == last:
            dist.barrier()  # the others have given it up by then
            expect_error(RuntimeError, f"Rank {last} failed", call)
        else:
            expect_error(RuntimeError, f"Rank {last} failed", call)
            dist.barrier()
        dist.barrier()
        counts.append(store.num_keys())
        dist.barrier()
    assert counts == counts[:1] * 4, counts


def test_timeouts_that_a_clock_does_not_hold_are_long(group):
    ever = timedelta(days=300 * 365)
    patient = dist.new_group(backend="epccl", timeout=ever)
    for one in (group, patient):
        dist.barrier()
        if RANK == 1:
            time.sleep(0.3)
        tensor = torch.ones(3)
        work = dist.all_reduce(tensor, group=one, async_op=True)
        work.wait(ever)
        same(tensor, torch.full((3,), float(SIZE)), "all_reduce")
        dist.monitored_barrier(one, ever)
        got = torch.zeros(1)
        if RANK == 0:
            dist.recv(got, group=one)
        elif RANK == 1:
            time.sleep(0.3)
            dist.send(got, 0, group=one)
        dist.set_timeout(ever, one)
        dist.barrier(one)
    dist.destroy_process_group(patient)


def test_what_is_wrong_is_said(group):
    ok = torch.zeros(SIZE)
    expect_error(RuntimeError, "multiple of", lambda: dist.all_to_all_single(torch.zeros(SIZE + 1), torch.zeros(SIZE + 1), group=group))
    expect_error(RuntimeError, "add up to", lambda: dist.all_to_all_single(ok, ok, [1] * SIZE, [2] * SIZE, group=group))
    expect_error(RuntimeError, "split sizes", lambda: dist.all_to_all_single(ok, ok, [1] * SIZE, [SIZE], group=group))
    expect_error((RuntimeError, ValueError), "", lambda: dist.send(ok, RANK, group=group))
    scalar = torch.tensor(1.0)
    expect_error(RuntimeError, "no dimension 0", lambda: dist.all_to_all_single(torch.tensor(0.0), scalar, group=group))
    dist.barrier(group=group)


def test_what_there_is_not_is_refused(group):
    backend = group._get_backend(torch.device("cpu"))
    absent = ["suspend", "resume", "memory_stats", "get_reconfigure_handle", "_wait_for_pending_works"]
    absent += ["_enable_collectives_timing", "_start_time_estimate", "_end_time_estimate"]
    calls = [lambda name=name: getattr(backend, name)() for name in absent]
    calls += [lambda: backend.mem_allocator, lambda: backend.allocate_tensor(8, dtype=torch.float32, device=torch.device("cpu"))]
    calls += [backend.new_window, lambda: backend.register_abort_hook(0, print), lambda: backend._register_on_completion_hook(print)]
    for call in calls:
        said = str(expect_error(RuntimeError, "epccl", call))
        assert "Backend epccl " in said or "epccl backend" in said, said
    dist.all_reduce(torch.ones(1), group=group)  # none of these broke it


def test_split_sizes_of_some_ranks_are_told_at_once(group):
    splits = () if RANK == 0 else ([2] * SIZE, [2] * SIZE)
    began = time.monotonic()
    sent, got = torch.ones(2 * SIZE), torch.zeros(2 * SIZE)
    call = partial(dist.all_to_all_single, got, sent, *splits, group=group)
    failure = expect_error(dist.DistBackendError, "calls alltoallv", call)
    assert "rank 0 calls alltoall " in str(failure) and time.monotonic() - began < 30
    assert f"all_to_all_single {'with' if splits else 'without'} split sizes: " in str(failure), failure


def test_ranks_that_disagree_are_named(group):
    rows = 2 * SIZE if RANK == 1 else SIZE
    failure = expect_error(
        dist.DistBackendError, "rank 1", lambda: dist.all_to_all_single(torch.zeros(rows), torch.zeros(rows), group=group)
    )
    assert "all_to_all_single" in str(failure)


def test_ranks_whose_dtypes_differ_are_told_which(group):
    dtype = torch.int32 if RANK == 1 else torch.float32
    failure = expect_error(
        dist.DistBackendError, "rank 1", lambda: dist.all_to_all_single(torch.zeros(SIZE, dtype=dtype), torch.zeros(SIZE, dtype=dtype), group=group)
    )
    assert "int32" in str(failure) and "float32" in str(failure), failure


if __name__ == "__main__":
    main(globals())
