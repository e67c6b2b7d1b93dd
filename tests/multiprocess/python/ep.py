"""Dispatch and combine against a NumPy oracle: every row at its place, every sum."""

import contextlib
import gc
import inspect
import math
import resource
import threading
import weakref
from unittest import mock

import epccl
import numpy as np
from epccl import DataType, EpGroup, EpHandle, Layout, Strategy, _library
from epccl.ep import _milliseconds as milliseconds
from harness import expect_error, main, seed, wait_until_asleep

EXPERTS, TOKENS, TOPK, HIDDEN = 10, 23, 3, 130


class Problem:
    """One routing of all ranks, the same on every rank."""

    def __init__(self, comm, salt, tokens=TOKENS, owners=None):
        rng = np.random.default_rng(seed() + salt)
        self.size, self.rank = comm.size, comm.rank
        self.owner = np.array(owners if owners is not None else [e * comm.size // EXPERTS for e in range(EXPERTS)])
        self.topk = []
        for _ in range(comm.size):
            table = np.stack([rng.permutation(EXPERTS)[:TOPK] for _ in range(tokens)] or [np.zeros((0, TOPK))]).astype(np.int64)
            table[rng.random(table.shape) < 0.2] = -1
            self.topk.append(table.reshape(tokens, TOPK))
        # Small whole numbers: sums are exact in every datatype and order.
        self.x = [rng.integers(1, 9, (tokens, HIDDEN)).astype(np.float32) for _ in range(comm.size)]
        self.weights = [rng.integers(1, 5, (tokens, TOPK)).astype(np.float32) for _ in range(comm.size)]

    def rows_by_expert(self, alignment=1, capacity=None):
        """This rank's EXPERT_MAJOR rows: (rows, weights, counts, offsets), and of all ranks the dropped entries."""
        kept, dropped = {}, [np.zeros(table.shape, np.uint8) for table in self.topk]
        for expert in range(EXPERTS):
            entries = [
                (source, token, k)
                for source in range(self.size)
                for token, k in np.argwhere(self.topk[source] == expert)
            ]
            limit = len(entries) if capacity is None else capacity
            for source, token, k in entries[limit:]:
                dropped[source][token, k] = 1
            kept[expert] = entries[:limit]
        rows, weights, counts, offsets = [], [], [], []
        for expert in np.flatnonzero(self.owner == self.rank):
            while len(rows) % alignment:
                rows.append(np.zeros(HIDDEN, np.float32)), weights.append(0)
            offsets.append(len(rows))
            counts.append(len(kept[expert]))
            rows += [self.x[source][token] for source, token, _ in kept[expert]]
            weights += [self.weights[source][token, k] for source, token, k in kept[expert]]
        while len(rows) % alignment:
            rows.append(np.zeros(HIDDEN, np.float32)), weights.append(0)
        return np.array(rows, np.float32).reshape(-1, HIDDEN), np.array(weights, np.float32), counts, offsets, dropped

    def rows_flat(self):
        """This rank's FLAT rows: (source, token), and each row's local experts and weights by place in the top-k."""
        local = {int(e): i for i, e in enumerate(np.flatnonzero(self.owner == self.rank))}
        where, idx, weights = [], [], []
        for source in range(self.size):
            for token, table in enumerate(self.topk[source]):
                places = [local.get(int(e), -1) for e in table]
                if max(places) < 0:
                    continue
                where.append((source, token))
                idx.append(places)
                weights.append([w if p >= 0 else 0 for p, w in zip(places, self.weights[source][token])])
        return where, np.array(idx, np.int32).reshape(-1, TOPK), np.array(weights, np.float32).reshape(-1, TOPK)

    def combined(self, factor):
        """What comes home when expert e multiplied by factor(e) and rows are weighted."""
        table = self.topk[self.rank]
        scale = np.where(table >= 0, self.weights[self.rank] * factor(table), 0).sum(axis=1)
        return (self.x[self.rank] * scale[:, None]).astype(np.float32)


@contextlib.contextmanager
def little_more_memory():
    """Inside, whoever would take it all is told before."""
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + (1 << 30), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def make_group(comm, **options):
    return EpGroup(comm, num_experts=EXPERTS, max_send_tokens_per_rank=TOKENS, max_token_bytes=HIDDEN * 4, **options)


def test_without_a_map_experts_are_in_blocks(comm):
    for experts in (1, comm.size - 1, comm.size, EXPERTS, 37):
        with EpGroup(comm, num_experts=experts, max_send_tokens_per_rank=1, max_token_bytes=4) as group:
            assert group.local_experts == [e for e in range(experts) if e * comm.size // experts == comm.rank]


def test_expert_major_there_and_back_with_every_strategy(comm):
    owners = [(3 * e + 1) % comm.size for e in range(EXPERTS)]
    for salt, strategy in enumerate(Strategy):
        group = make_group(comm, strategy=strategy, expert_to_rank=owners)
        assert group.local_experts == [e for e in range(EXPERTS) if owners[e] == comm.rank]
        handle = group.handle(Layout.EXPERT_MAJOR, alignment=4)
        for again in range(2):
            problem = Problem(comm, 10 * salt + again, owners=owners)
            counters = handle.update(problem.topk[comm.rank])
            rows, weights, counts, offsets, _ = problem.rows_by_expert(alignment=4)
            assert list(counters.expert_counters) == counts and counters.rows == len(rows)
            assert [o for o, n in zip(counters.expert_offsets, counts) if n] == [o for o, n in zip(offsets, counts) if n]
            got_weights = np.full(len(rows), 77, np.float32)
            got = handle.dispatch(problem.x[comm.rank], topk_weights=problem.weights[comm.rank], out_weights=got_weights)
            np.testing.assert_array_equal(got, rows)
            np.testing.assert_array_equal(got_weights, weights)
            for expert, begin, count in zip(group.local_experts, counters.expert_offsets, counts):
                got[begin : begin + count] *= expert + 1
            home = handle.combine(got, weighted=True)
            np.testing.assert_array_equal(home, problem.combined(lambda table: table + 1))
            stats = handle.stats()
            assert strategy in (Strategy.AUTO, stats.strategy)
            assert stats.tokens_local + stats.tokens_node + stats.tokens_network > 0
        handle.destroy()
        group.destroy()


def test_flat_and_rank_major_rows_with_their_experts(comm):
    problem = Problem(comm, 50)
    where, idx, weights = problem.rows_flat()
    with make_group(comm) as group:
        for layout in (Layout.FLAT, Layout.RANK_MAJOR):
            with group.handle(layout) as handle:
                counters = handle.update(problem.topk[comm.rank].astype(np.int32))
                assert list(counters.src_rank_counters) == [sum(s == source for s, _ in where) for source in range(comm.size)]
                n = counters.rows
                assert n == (len(where) if layout is Layout.FLAT else comm.size * TOKENS)
                got_idx, got_weights = np.full((n, TOPK), 55, np.int32), np.full((n, TOPK), 55, np.float32)
                got = handle.dispatch(
                    problem.x[comm.rank],
                    topk_weights=problem.weights[comm.rank],
                    out_weights=got_weights,
                    out_topk_idx=got_idx,
                )
                if layout is Layout.FLAT:
                    places = np.arange(len(where))
                else:
                    seen, places = [0] * comm.size, []
                    for source, _ in where:
                        places.append(source * TOKENS + seen[source])
                        seen[source] += 1
                want = np.array([problem.x[s][t] for s, t in where]).reshape(-1, HIDDEN)
                np.testing.assert_array_equal(got[places], want)
                np.testing.assert_array_equal(got_idx[places], idx)
                np.testing.assert_array_equal(got_weights[places], weights)
                home, home_weights = np.zeros((TOKENS, HIDDEN), np.float32), np.zeros((TOKENS, TOPK), np.float32)
                handle.combine(got, topk_weights=got_weights, out=home, out_weights=home_weights)
                copies = np.array([len({problem.owner[e] for e in row if e >= 0}) for row in problem.topk[comm.rank]])
                np.testing.assert_array_equal(home, problem.x[comm.rank] * copies[:, None])
                used = problem.topk[comm.rank] >= 0
                np.testing.assert_array_equal(home_weights, np.where(used, problem.weights[comm.rank], 0))


def test_a_capacity_drops_and_says_what(comm):
    problem = Problem(comm, 60)
    capacity = max(1, TOKENS * comm.size * TOPK // EXPERTS // 2)
    with make_group(comm) as group, group.handle(Layout.EXPERT_MAJOR, max_tokens_per_expert=capacity) as handle:
        counters = handle.update(problem.topk[comm.rank])
        rows, _, counts, _, dropped = problem.rows_by_expert(capacity=capacity)
        assert list(counters.expert_counters) == counts
        np.testing.assert_array_equal(counters.dropped, dropped[comm.rank])
        assert sum(d.sum() for d in dropped) > 0, "the problem is too small to drop anything"
        np.testing.assert_array_equal(handle.dispatch(problem.x[comm.rank]), rows)


def test_other_datatypes_by_name(comm):
    problem = Problem(comm, 70)
    with make_group(comm) as group, group.handle(Layout.EXPERT_MAJOR) as handle:
        handle.update(problem.topk[comm.rank])
        rows = problem.rows_by_expert()[0]
        got = handle.dispatch(problem.x[comm.rank].astype(np.float16))
        np.testing.assert_array_equal(got, rows.astype(np.float16))
        bits = lambda a: (a.view(np.uint32) >> 16).astype(np.uint16)  # whole numbers this small are exact in bfloat16
        got = handle.dispatch(bits(problem.x[comm.rank]), datatype=DataType.BFLOAT16)
        np.testing.assert_array_equal(got, bits(rows))


def test_fp8_on_the_way_out(comm):
    problem = Problem(comm, 80)
    with make_group(comm) as group, group.handle(Layout.EXPERT_MAJOR) as handle:
        n = handle.update(problem.topk[comm.rank]).rows
        rows = problem.rows_by_expert()[0]
        quantised, scales = np.zeros((n, HIDDEN), np.uint8), np.zeros((n, 2), np.float32)
        handle.dispatch(problem.x[comm.rank], out=quantised, out_datatype=DataType.FLOAT8E4M3, out_scales=scales)
        magnitude = np.concatenate([[m / 8 * 2.0**-6 for m in range(8)]] + [[(1 + m / 8) * 2.0 ** (e - 7) for m in range(8)] for e in range(1, 16)])
        numbers = magnitude[quantised & 127] * np.where(quantised & 128, -1, 1) * np.repeat(scales, 128, axis=1)[:, :HIDDEN]
        np.testing.assert_allclose(numbers, rows, rtol=1 / 16)


def test_started_calls_and_streams(comm):
    problem, rows = Problem(comm, 90), None
    with make_group(comm, timeout=20) as group, group.handle(Layout.EXPERT_MAJOR) as handle:
        handle.update(problem.topk[comm.rank])
        rows = problem.rows_by_expert()[0]
        got = handle.dispatch(problem.x[comm.rank], send_only=True)
        handle.complete(1)
        handle.complete()
        np.testing.assert_array_equal(got, rows)
        assert handle.progress().calls_over == 1
        with epccl.Stream() as stream:
            got, home = np.zeros_like(rows), np.zeros((TOKENS, HIDDEN), np.float32)
            counters = handle.update(problem.topk[comm.rank], stream=stream)
            expect_error(ValueError, "out is needed", lambda: handle.dispatch(problem.x[comm.rank], stream=stream))
            handle.dispatch(problem.x[comm.rank], topk_weights=problem.weights[comm.rank], out=got,
                            out_weights=np.zeros(len(rows), np.float32), stream=stream)
            handle.combine(got, out=home, weighted=True, stream=stream)
            handle.make_wait(stream)
            stream.synchronize()
            assert counters.rows == len(rows)
            np.testing.assert_array_equal(got, rows)
            np.testing.assert_array_equal(home, problem.combined(lambda table: np.ones_like(table)))


def test_complete_keeps_the_buffers_of_what_was_started_meanwhile(comm):
    problem = Problem(comm, 92)
    x, rows = problem.x[comm.rank], problem.rows_by_expert()[0]
    got, word = [np.zeros_like(rows) for _ in range(2)], np.zeros(1, np.uint8)
    with comm.split(0) as other, make_group(comm) as group, group.handle(Layout.EXPERT_MAJOR) as handle:
        handle.update(problem.topk[comm.rank])
        if comm.rank == 0:
            waits, call = threading.Event(), handle._call
            handle._call = lambda name, *arguments: (name == "epcclEpCompleteStage" and waits.set(), call(name, *arguments))
            handle.dispatch(x, out=got[0], send_only=True)
            waiter = threading.Thread(target=handle.complete)
            waiter.start()
            waits.wait()
            wait_until_asleep(waiter)  # in the library
            tokens = x.copy()
            memory = weakref.ref(tokens)
            handle.dispatch(tokens, out=got[1], send_only=True)
            del tokens
            other.broadcast(word)  # only now the first one can be over
            waiter.join()
            assert memory() is not None, "nobody has waited for the second one"
            other.broadcast(word)
        else:
            for out in got:
                other.broadcast(word)
                handle.dispatch(x, out=out, send_only=True)
        handle.complete()
        assert comm.rank != 0 or memory() is None
        for out in got:
            np.testing.assert_array_equal(out, rows)


def test_a_handle_that_is_forgotten_waits_for_the_calls_that_it_has_started(comm):
    problem = Problem(comm, 95)
    with make_group(comm) as group:  # whose end refuses, while it has a handle
        handle = group.handle(Layout.EXPERT_MAJOR)
        handle.update(problem.topk[comm.rank])
        got = handle.dispatch(problem.x[comm.rank].copy(), send_only=True)
        del handle
        np.testing.assert_array_equal(got, problem.rows_by_expert()[0])


def is_freed(kind, pointer):
    return _library.code_of(f"epcclEp{kind}Destroy", pointer) == epccl.Result.INVALID_ARGUMENT


def test_a_group_that_is_forgotten_is_freed_with_its_handles(comm):
    for cycle in (False, True):
        group = make_group(comm)
        handle = group.handle(Layout.FLAT)
        if cycle:
            group.mine, handle.mine = handle, group
        pointers = group._handle, handle._handle
        del group
        gc.collect()
        assert handle.group._handle, "a handle keeps its group"
        del handle
        gc.collect()
        assert is_freed("Handle", pointers[1]) and is_freed("Group", pointers[0])


def test_groups_and_handles_end_with_their_communicator(comm):
    for end in (epccl.Communicator.destroy, epccl.Communicator.abort):
        mine = comm.split(comm.rank)
        groups = [make_group(mine) for _ in range(2)]
        handle = groups[0].handle(Layout.FLAT)
        pointers = [group._handle for group in groups], handle._handle
        handle.update(np.zeros((1, 1), np.int64))
        token = np.ones((1, HIDDEN), np.float32)
        memory = weakref.ref(token)
        handle.dispatch(token, send_only=True)
        del token
        end(mine)
        assert memory() is None, "what was started is over"
        assert is_freed("Handle", pointers[1]) and all(is_freed("Group", each) for each in pointers[0])
        expect_error(epccl.InvalidUsage, "destroyed", lambda: handle.update(np.zeros((1, 1), np.int32)))
        expect_error(epccl.InvalidUsage, "destroyed", lambda: groups[1].handle(Layout.FLAT))
        # As a program may that does not know.
        handle.destroy()
        groups[0].destroy()


def test_a_block_that_raises_says_its_own_error(comm):
    def body():
        with comm.split(comm.rank) as mine, make_group(mine) as group:
            kept.append(group.handle(Layout.FLAT))
            raise KeyError("mine")

    kept = []
    expect_error(KeyError, "mine", body)
    assert kept[0]._handle is None


def test_a_group_hands_all_that_may_be_set_on_to_its_handle(comm):
    def settable(function):
        return {name: given.default for name, given in inspect.signature(function).parameters.items() if given.kind is given.KEYWORD_ONLY}

    assert settable(EpGroup.handle) == settable(EpHandle.__init__)
    with make_group(comm) as group, mock.patch("epccl.ep.EpHandle") as made:
        for name, default in settable(EpGroup.handle).items():
            given = {name: type(default)(3)}
            group.handle(Layout.EXPERT_MAJOR, **given)
            made.assert_called_with(group, Layout.EXPERT_MAJOR, **{**settable(EpGroup.handle), **given})


def test_static_mode(comm):
    problem = Problem(comm, 100)
    with make_group(comm) as group, group.handle(Layout.EXPERT_MAJOR, static_topk=TOPK, max_tokens_per_expert=TOKENS * comm.size) as handle:
        counters = handle.update(problem.topk[comm.rank])
        assert counters.rows == len(group.local_experts) * TOKENS * comm.size
        got = handle.dispatch(problem.x[comm.rank])
        rows, _, counts, offsets, _ = problem.rows_by_expert()
        for begin, count, want in zip(counters.expert_offsets, counts, offsets):
            np.testing.assert_array_equal(got[begin : begin + count], rows[want : want + count])


def test_the_timeout_of_a_group_is_the_communicators_unless_it_is_above_0(_):
    assert [milliseconds(seconds) for seconds in (None, 0, 0.0, -1, -math.inf)] == [0] * 5
    assert [milliseconds(seconds) for seconds in (0.00001, 0.25, 20)] == [1, 250, 20000]
    assert milliseconds(math.inf) == milliseconds(1e9) == 2**32 - 1


def test_what_is_wrong_is_said(comm):
    with make_group(comm) as group:
        handle = group.handle(Layout.FLAT)
        expect_error(epccl.InvalidUsage, "update", lambda: handle.dispatch(np.zeros((2, 8), np.float32)))
        table = Problem(comm, 1).topk[comm.rank]
        if comm.rank == 0:
            table[0, 0] = EXPERTS + 5
        expect_error(epccl.EpcclError, f"{EXPERTS + 5}", lambda: handle.update(table))  # on every rank
        half = np.zeros((2, 8), np.float16)
        wide = lambda **which: handle.dispatch(**{"tokens": half, "out": half.copy(), **which})
        expect_error(ValueError, "tokens: its 16 elements have 32 bytes: as float32 they", lambda: wide(datatype=DataType.FLOAT32))
        expect_error(ValueError, "out: its 16 elements have 32 bytes", lambda: wide(out_datatype=DataType.FLOAT8E4M3))
        with group.handle(Layout.FLAT) as routed:
            routed.update(Problem(comm, 1).topk[comm.rank])
            expect_error(ValueError, "out is needed", lambda: routed.dispatch(half, out_datatype=DataType.FLOAT8E4M3))
            few, out = np.zeros((1, HIDDEN), np.float32), np.zeros((TOKENS * comm.size, HIDDEN), np.float32)
            memory = weakref.ref(few)
            with epccl.Stream() as stream:
                refused = lambda: routed.dispatch(few, out=out, send_only=True, stream=stream)
                expect_error(epccl.InvalidArgument, "send_only with a created stream", refused)
            del few
            assert memory() is None, "a call that was refused keeps nothing"
        expect_error(ValueError, "max_tokens_per_expert is 4294967296", lambda: group.handle(Layout.FLAT, max_tokens_per_expert=2**32))
        expect_error(epccl.InvalidUsage, "", group.destroy)  # its handle is still there
        handle.destroy()
        expect_error(epccl.InvalidUsage, "destroyed", lambda: handle.update(table))
    for timeout in (math.inf, 0, -1):
        make_group(comm, timeout=timeout).destroy()
    expect_error(ValueError, "timeout is not a number", lambda: make_group(comm, timeout=math.nan))
    expect_error(ValueError, "entries", lambda: make_group(comm, expert_to_rank=[0]))
    expect_error(TypeError, "expert_to_rank[9] is 0.9: not an integer", lambda: make_group(comm, expert_to_rank=[0] * 9 + [0.9]))
    expect_error(ValueError, "expert_to_rank[9] is 4294967296", lambda: make_group(comm, expert_to_rank=[0] * 9 + [2**32]))
    expect_error(ValueError, "num_experts is -1", lambda: EpGroup(comm, num_experts=-1, max_send_tokens_per_rank=1, max_token_bytes=4))
    for experts in (0, 2**31):
        few_tokens = {"num_experts": experts, "max_send_tokens_per_rank": 1, "max_token_bytes": 4}
        with little_more_memory():
            expect_error(epccl.InvalidArgument, f"num_experts {experts} is not", lambda: EpGroup(comm, **few_tokens))


def test_which_of_its_calls_are_compared(comm):
    """An update is one in which all ranks wait for all; on one node a dispatch and a combine, too."""
    problem = Problem(comm, 77)
    with make_group(comm) as group, group.handle(Layout.FLAT) as handle:
        handle.update(problem.topk[comm.rank])
        comm.measure_calls(True)
        for _ in range(3):
            handle.update(problem.topk[comm.rank])
            handle.combine(handle.dispatch(problem.x[comm.rank]))
        found = comm.find_stragglers()
        comm.measure_calls(False)
    sent = np.array([comm.statistics()["messagesSent"]], np.uint64)
    comm.allreduce(sent, sent)
    one_node = sent[0] == 0
    assert found.calls == (8 if one_node else 2), found


if __name__ == "__main__":
    main(globals())
