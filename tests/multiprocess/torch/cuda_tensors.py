"""CUDA tensors: every test of collectives.py, exchange.py and refusals.py on a GPU's memory, and what streams add.

The GPU is a double (gpu_double), or with TEST_GPU=real a GPU that all ranks share (gpu_real).
"""

import functools
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import collectives
import exchange
import refusals
from brought_to_gpu import OnGpu, gpu
from harness import RANK, SIZE, expect_error, main, same, values

NEXT, BEFORE = (RANK + 1) % SIZE, (RANK - 1) % SIZE
LARGE = 100_000


# They need errors at once, or the thread that makes a call, or look where a result lies: below is what holds here.
NOT_HERE = {
    "test_a_callback_may_issue_calls_and_wait_for_them",  # is about the thread of the host's calls
    "test_asynchronous_calls_in_inference_mode",  # likewise
    "test_one_rank_s_tracing_changes_no_call",  # is about what there is without GPUs
    "test_sums_of_complex_numbers",  # not tried here
    "test_outputs_that_overlap_inputs_elsewhere_than_in_the_rank_s_own_part",  # what is brought there overlaps no more
    "test_outputs_of_which_several_elements_are_one_in_memory",  # likewise, and brought back it would not fit
    "test_all_gather_coalesced_of_lists", "test_asynchronous_calls_overlap_and_keep_order", "test_a_batch_of_sends_and_receives",
    "test_ranks_that_disagree_are_named", "test_ranks_whose_dtypes_differ_are_told_which", "test_split_sizes_of_some_ranks_are_told_at_once",
    "test_all_reduce_of_sparse_tensors", "test_conjugated_and_negated_views_are_what_they_hold",
}  # fmt: skip


def tests_of(module):
    module.dist = OnGpu()
    here = {name: test for name, test in vars(module).items() if name.startswith("test_") and name not in NOT_HERE}
    return {f"test_cuda_{module.__name__}: {name}": test for name, test in here.items()}


# ---- streams


def gate_of(rank):
    """What this rank's current stream gets from now on waits until the gate is opened, if it is that rank."""
    return gpu.Gate() if RANK == rank else None


def open_gate(gate):
    dist.barrier()  # of gloo: all ranks have come here
    if gate:
        gate.open()


def on_gpu_later(tensor):
    """A tensor that the current stream fills when it comes to that. From the GPU: for memory that is not pinned the host would wait."""
    there, made = gpu.to_gpu(tensor), gpu.to_gpu(torch.empty_like(tensor))
    return made, lambda: made.copy_(there)


def meet_there(group):
    """The group's first call on the GPU, before a gate is closed: it allocates and loads kernels, for which a driver may wait for all streams."""
    dist.all_reduce(gpu.to_gpu(torch.zeros(1)), group=group)
    gpu.synchronize()


class Stream:
    def __init__(self, number=None):
        self.number = gpu.new_stream() if number is None else number

    def __enter__(self):
        self.before = gpu.use_stream(self.number)
        return self

    def __exit__(self, *_):
        gpu.use_stream(self.before)


SUM_OF_ALL = functools.partial(collectives.reduced, torch.float32, (LARGE,), dist.ReduceOp.SUM)


def test_calls_come_after_what_the_stream_has_and_the_host_waits_for_nothing(group):
    meet_there(group)
    for asynchronous in (True, False):
        with Stream() as stream:
            tensor, fill = on_gpu_later(values(torch.float32, (LARGE,), RANK))
            gate = gate_of(SIZE - 1)
            fill()
            work = dist.all_reduce(tensor, group=group, async_op=asynchronous)
            if asynchronous:
                assert not work.is_completed()
                expect_error(dist.DistBackendError, "is not complete", lambda: work.wait(timedelta(milliseconds=50)))
                work.wait()
            assert not gpu.idle(stream.number), "the stream waits, not the host"
            open_gate(gate)
            same(tensor.cpu(), SUM_OF_ALL(), "all_reduce")
            if asynchronous:
                assert work.is_completed() and work.is_success()


def test_an_asynchronous_call_runs_beside_the_stream(group):
    meet_there(group)
    with Stream() as stream:
        tensor = gpu.to_gpu(values(torch.float32, (LARGE,), RANK))
        work = dist.all_reduce(tensor, group=group, async_op=True)
        gate = gpu.Gate()  # the program goes on with something long
        work.wait(timedelta(seconds=60))
        assert work.is_completed() and not gpu.idle(stream.number)
        gate.open()
        same(tensor.cpu(), SUM_OF_ALL(), "all_reduce")


def test_a_call_that_waits_holds_back_none_of_the_program_s_streams(group):
    """With FAKE_CUDA_CHANNELS=1 those of one priority share a hardware queue, as with CUDA_DEVICE_MAX_CONNECTIONS=1."""
    tensor, copied = (gpu.to_gpu(values(torch.float32, (LARGE,), RANK)) for _ in range(2))
    short = dist.new_group(backend="epccl", timeout=timedelta(seconds=10))
    dist.all_reduce(copied, group=short)
    gpu.synchronize()
    with Stream():
        if RANK == 0:
            work = dist.all_reduce(tensor, group=short, async_op=True)
            copied.copy_(copied)
            gpu.synchronize()
            assert not work.is_completed(), "the copy came behind the call"
        dist.barrier()
        if RANK != 0:
            work = dist.all_reduce(tensor, group=short, async_op=True)
        work.wait(timedelta(seconds=60))
        same(tensor.cpu(), SUM_OF_ALL(), "all_reduce")
    dist.destroy_process_group(short)


def test_with_epccl_torch_blocking_a_call_is_over_when_it_returns(group):
    tensor = gpu.to_gpu(values(torch.float32, (LARGE,), RANK))
    if RANK != 0:
        time.sleep(0.2)
    work = dist.all_reduce(tensor, group=group, async_op=True)
    assert work.is_completed() or os.environ.get("EPCCL_TORCH_BLOCKING") != "1"
    work.wait()
    same(tensor.cpu(), SUM_OF_ALL(), "all_reduce")


def test_another_stream_than_that_of_the_call_may_wait_for_it(group):
    meet_there(group)
    with Stream():
        tensor, fill = on_gpu_later(values(torch.float32, (LARGE,), RANK))
        copied = gpu.to_gpu(torch.zeros(LARGE))
        gate = gate_of(0)
        fill()
        work = dist.all_reduce(tensor, group=group, async_op=True)
    with Stream():
        work.wait()
        copied.copy_(tensor)
        open_gate(gate)
        same(copied.cpu(), SUM_OF_ALL(), "all_reduce")


def test_memory_of_a_call_is_not_used_again_before_it_is_over(group):
    meet_there(group)
    for awaited in (False, True):
        with Stream() as stream:
            gathered = gpu.to_gpu(torch.zeros(SIZE * LARGE))
            late, fill = on_gpu_later(values(torch.float32, (LARGE,), RANK))
            gpu.synchronize()
            gate = gpu.Gate() if RANK == 0 else None
            fill()  # rank 0 comes later, so the others' calls are under way for a while
            work = dist.all_gather_into_tensor(gathered, late, group, async_op=True)
            result = work.result() if awaited else None
            if awaited:
                with Stream():  # not the stream that will use the memory again
                    work.wait()
            del late, fill, work
            others = [gpu.to_gpu(torch.full((LARGE,), -1.0)) for _ in range(2)] if RANK != 0 else []
            open_gate(gate)
            # The handle is gone; what comes after the call on its stream is waited for.
            dist.all_reduce(gpu.to_gpu(torch.ones(1)), group=group, async_op=True).wait(timedelta(seconds=60))
            want = torch.cat([values(torch.float32, (LARGE,), source) for source in range(SIZE)])
            same(gathered.cpu(), want, f"all_gather_into_tensor, awaited: {awaited}")
            del others, result, stream


def test_a_future_s_callback_comes_after_the_call(group):
    meet_there(group)
    with Stream():
        tensor, fill = on_gpu_later(values(torch.float32, (LARGE,), RANK))
        copied = gpu.to_gpu(torch.zeros(LARGE))
        gate = gate_of(1)
        fill()

        def then(future):
            copied.copy_(future.value()[0], non_blocking=True)
            return copied

        done = dist.all_reduce(tensor, group=group, async_op=True).get_future().then(then)
        open_gate(gate)
        same(done.wait().cpu(), SUM_OF_ALL(), "the callback's copy")


def test_all_gather_coalesced_of_lists(group):
    shapes = ((2, 3), (7,))
    outs = [[gpu.to_gpu(torch.zeros(shape)) for shape in shapes] for _ in range(SIZE)]
    group.allgather_coalesced(outs, [gpu.to_gpu(values(torch.float32, shape, RANK)) for shape in shapes]).wait()
    for source in range(SIZE):
        for shape, out in zip(shapes, outs[source]):
            same(out.cpu(), values(torch.float32, shape, source), f"{shape} of {source}")


# ---- messages


def test_a_batch_is_one_call_whose_sends_and_receives_begin_together(group):
    meet_there(group)
    for count in (3, LARGE):
        gots = {peer: gpu.to_gpu(torch.zeros(count, 2)) for peer in (NEXT, BEFORE)}
        first, strided = values(torch.float32, (count, 2), RANK, 1), values(torch.float32, (2, count), RANK, 2).t()
        operations = [
            dist.P2POp(dist.isend, gpu.to_gpu(first), NEXT, group),
            dist.P2POp(dist.isend, gpu.to_gpu(strided), BEFORE, group),
            dist.P2POp(dist.irecv, gots[BEFORE], BEFORE, group),
        ]
        if NEXT != BEFORE:
            operations.append(dist.P2POp(dist.irecv, gots[NEXT], NEXT, group))
        gate = gate_of(0)
        works = dist.batch_isend_irecv(operations)
        assert len(works) == 1
        works[0].wait()
        open_gate(gate)
        gpu.synchronize()  # others get in meanwhile, which a copy to the host's memory would keep out: this call needs its thread
        same(gots[BEFORE].cpu(), values(torch.float32, (count, 2), BEFORE, 1), "from the one before")
        same(gots[NEXT].cpu(), values(torch.float32, (2, count), NEXT, 2).t().contiguous(), "from the next")


def test_a_batch_may_have_messages_of_host_memory_and_to_oneself(group):
    got, own, on_host = gpu.to_gpu(torch.zeros(9)), gpu.to_gpu(torch.zeros(5)), torch.zeros(4)
    works = dist.batch_isend_irecv([
        dist.P2POp(dist.irecv, own, RANK, group),
        dist.P2POp(dist.isend, gpu.to_gpu(values(torch.float32, (5,), RANK, 1)), RANK, group),
        dist.P2POp(dist.isend, gpu.to_gpu(values(torch.float32, (9,), RANK)), NEXT, group),
        dist.P2POp(dist.isend, values(torch.float32, (4,), RANK), NEXT, group),
        dist.P2POp(dist.irecv, on_host, BEFORE, group),
        dist.P2POp(dist.irecv, got, BEFORE, group),
    ])  # fmt: skip
    for work in works:
        work.wait()
    same(got.cpu(), values(torch.float32, (9,), BEFORE), "GPU")
    same(own.cpu(), values(torch.float32, (5,), RANK, 1), "to oneself")
    same(on_host, values(torch.float32, (4,), BEFORE), "host")


def test_calls_of_a_batch_are_one_piece_of_work(group):
    first, second = (gpu.to_gpu(values(torch.float32, (LARGE,), RANK)) for _ in range(2))
    with dist._coalescing_manager(group, torch.device("cuda:0"), async_ops=True) as gathered:
        dist.all_reduce(first, group=group)
        dist.all_reduce(second, group=group)
    gathered.wait()
    for tensor in (first, second):
        same(tensor.cpu(), SUM_OF_ALL(), "all_reduce")


def test_a_batch_of_several_calls_has_one_future_and_one_timeout(group):
    """Calls that PyTorch does not make one, of both devices."""
    there, here = gpu.to_gpu(values(torch.float32, (LARGE,), RANK)), values(torch.float32, (LARGE,), RANK)
    short = dist.new_group(backend="epccl", timeout=timedelta(seconds=60))
    dist.all_reduce(gpu.to_gpu(torch.ones(1)), group=short)
    backend = short._get_backend(torch.device("cuda", 0))
    with Stream():
        copied = gpu.to_gpu(torch.zeros(LARGE))
        gate = gate_of(0)
        backend._start_coalescing()
        parts = [dist.broadcast(tensor, 0, short, async_op=True) for tensor in (there, here)]
        asked = parts[0].get_future().then(lambda _: parts[0].is_completed())  # when it is launched
        work = backend._end_coalescing()
        asked.wait()
        future = work.get_future().then(lambda done: [copied.copy_(done.value()[0], non_blocking=True), *done.value()])
        open_gate(gate)
        result = future.wait()
        assert [each.device.type for each in result] == ["cuda", "cuda", "cpu"]
        work.wait()
        for tensor in (there, copied, here):
            same(tensor.cpu(), values(torch.float32, (LARGE,), 0), "broadcast")
    if RANK == 0:
        backend._start_coalescing()
        for _ in range(20):
            dist.irecv(torch.zeros(1), 1, short)
        work = backend._end_coalescing()
    dist.barrier()
    if RANK == 1:
        for _ in range(20):  # each comes within a second of the one before
            time.sleep(0.7)
            dist.send(torch.zeros(1), 0, short)
    elif RANK == 0:
        began = time.monotonic()
        expect_error(dist.DistBackendError, "is not complete after 1000 ms", lambda: work.wait(timedelta(seconds=1)))
        assert time.monotonic() - began < 10
        work.wait()
    dist.barrier()
    dist.destroy_process_group(short)


def test_a_receive_that_another_stream_waits_for_comes_after_what_the_first_one_had(group):
    old, new = values(torch.float32, (LARGE,), 0, 1), values(torch.float32, (LARGE,), 0, 2)
    if RANK == 0:
        dist.send(gpu.to_gpu(new), 1, group)
    elif RANK == 1:
        with Stream():
            got, read = gpu.to_gpu(old), gpu.to_gpu(torch.zeros(LARGE))
            gate = gpu.Gate()
            read.copy_(got, non_blocking=True)
            work = dist.irecv(got, 0, group)
        with Stream():
            work.wait()
            time.sleep(0.2)  # nothing but the first stream holds the second one back
            gate.open()
            gpu.synchronize()
            same(got.cpu(), new, "what came")
            same(read.cpu(), old, "what was there before")


def test_a_message_is_waited_for_however_the_work_is_asked(group):
    backend = group._get_backend(torch.device("cuda", 0))
    for number, ask in enumerate(("wait", "synchronize", "block_current_stream")):
        if not hasattr(dist.Work, ask):
            continue
        if RANK == 0:
            time.sleep(0.2)
            dist.send(gpu.to_gpu(values(torch.float32, (9,), 0, number)), 1, group)
        elif RANK == 1:
            got = gpu.to_gpu(torch.zeros(9))
            backend._start_coalescing()
            dist.irecv(got, group=group)
            getattr(backend._end_coalescing(), ask)()
            same(got.cpu(), values(torch.float32, (9,), 0, number), ask)


def test_a_group_takes_nothing_of_the_gpu_before_its_first_call_there(group):
    gpu.to_gpu(torch.ones(1))  # this thread has a GPU
    before = gpu.live("streams"), gpu.live("pinned")
    unused = dist.new_group(backend="epccl")
    dist.all_reduce(torch.ones(1), group=unused)
    assert (gpu.live("streams"), gpu.live("pinned")) == before
    dist.destroy_process_group(unused)


def test_a_group_bound_to_a_gpu_has_met_there_before_a_batch_of_some_ranks(group):
    bound = dist.new_group(backend="epccl", timeout=timedelta(seconds=10))
    bound._get_backend(torch.device("cuda", 0)).eager_connect_single_device(torch.device("cuda", 0))  # as init_process_group(device_id=...)
    if RANK < 2:
        got = gpu.to_gpu(torch.zeros(9))
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, gpu.to_gpu(values(torch.float32, (9,), RANK)), 1 - RANK, bound),
            dist.P2POp(dist.irecv, got, 1 - RANK, bound),
        ])  # fmt: skip
        works[0].wait()
        same(got.cpu(), values(torch.float32, (9,), 1 - RANK), "from the other")
    dist.barrier()
    dist.destroy_process_group(bound)


def test_a_batch_ends_with_a_call_that_was_refused(group):
    given, got = gpu.to_gpu(values(torch.float32, (9,), RANK)), gpu.to_gpu(torch.zeros(9))
    refused = [dist.P2POp(dist.isend, given, NEXT, group), dist.P2POp(dist.isend, given, NEXT, group)]
    refused[1].group_peer = SIZE
    expect_error(RuntimeError, f"rank {SIZE} is not in 0..{SIZE - 1}", lambda: dist.batch_isend_irecv(refused))
    # What comes next is no part of it.
    sent = dist.isend(given, NEXT, group)
    dist.recv(got, BEFORE, group)
    sent.wait()
    same(got.cpu(), values(torch.float32, (9,), BEFORE), "recv")


def test_messages_behind_a_call_keep_nobody_out_of_the_driver(group):
    """With FAKE_CUDA_CONTEXT_LOCK a copy of memory that is not pinned does, also the thread of the call that it waits for."""
    tensor, other = (gpu.to_gpu(values(torch.float32, (LARGE,), RANK)) for _ in range(2))
    group = dist.new_group(backend="epccl", timeout=timedelta(seconds=60))
    dist.all_reduce(other, group=group)
    gpu.synchronize()
    if RANK == 0:
        dist.all_reduce(tensor, group=group)
        dist.send(tensor, 1, group=group)
    else:
        time.sleep(0.2)  # rank 0 waits in its call by then
        dist.all_reduce(tensor, group=group)
    if RANK == 1:
        dist.recv(other, 0, group=group)
    gpu.synchronize()
    dist.barrier()
    for each in (tensor, other)[: 1 + (RANK == 1)]:
        same(each.cpu(), SUM_OF_ALL(), "all_reduce, and what was sent of it")
    dist.destroy_process_group(group)


def test_the_factor_of_a_premultiplied_sum_may_be_a_gpu_s(group):
    meet_there(group)
    factor, fill = on_gpu_later(torch.tensor([0.5], dtype=torch.float64))
    for asynchronous in (False, True):
        tensor = gpu.to_gpu(values(torch.float32, (LARGE,), RANK))
        with Stream() as stream:
            gate = gpu.Gate()
            fill()
            operation = dist._make_nccl_premul_sum(factor)
            work = dist.all_reduce(tensor, operation, group, async_op=asynchronous)
            assert not gpu.idle(stream.number), "the stream waits, not the host"
            gate.open()
            if asynchronous:
                work.wait()
            same(tensor.cpu(), SUM_OF_ALL() * 0.5, "all_reduce")


# ---- groups, barriers and errors


def test_a_barrier_waits_for_the_stream(group):
    meet_there(group)
    dist.all_reduce(gpu.to_gpu(torch.ones(3)), group=group)  # the group knows the GPU
    for asynchronous in (True, False):
        with Stream() as stream:
            gate = gpu.Gate() if asynchronous else None
            work = dist.barrier(group, async_op=asynchronous, device_ids=[0])
            if asynchronous:
                assert not work.is_completed()
                gate.open()
                work.wait()
            assert gpu.idle(stream.number)


def test_a_group_with_another_backend_for_host_memory(group):
    mixed = dist.new_group(backend="cpu:gloo,cuda:epccl")
    for tensor in (torch.ones(5), gpu.to_gpu(torch.ones(5))):
        dist.all_reduce(tensor, group=mixed)
        same(tensor.cpu(), torch.full((5,), float(SIZE)), tensor.device)
    dist.barrier(mixed)
    dist.destroy_process_group(mixed)


def test_tensors_of_several_devices_in_a_call_are_refused(group):
    there, here = gpu.to_gpu(torch.zeros(SIZE)), torch.zeros(SIZE)
    expect_error(RuntimeError, "on one device", lambda: dist.all_to_all_single(there, here, group=group))
    expect_error(RuntimeError, "on one device", lambda: dist.all_gather_into_tensor(gpu.to_gpu(torch.zeros(SIZE * SIZE)), here, group))


def test_ranks_that_disagree_are_named_by_who_asks(group):
    rows = 2 * SIZE if RANK == 1 else SIZE
    tensors = [gpu.to_gpu(torch.zeros(rows)) for _ in range(2)]

    def call():
        dist.all_to_all_single(*tensors, group=group, async_op=True).wait(timedelta(seconds=60))

    try:
        work = dist.all_to_all_single(*tensors, group=group, async_op=True)
    except dist.DistBackendError as known:  # to a rank that comes late
        failure = known
    else:
        if os.environ.get("EPCCL_CUDA_FIRST_CALLS") != "0":  # the call has been waited for: who waits for its future alone hears, too
            expect_error(RuntimeError, "rank 1", work.get_future().wait)
        failure = expect_error(dist.DistBackendError, "rank 1", lambda: work.wait(timedelta(seconds=60)))
    assert "all_to_all_single" in str(failure) and "rank 1" in str(failure)
    expect_error(dist.DistBackendError, "", call)  # a group that failed stays failed


def test_a_silent_rank_ends_a_call_after_the_timeout(group):
    tensor = gpu.to_gpu(torch.ones(LARGE))
    dist.all_reduce(tensor, group=group)
    gpu.synchronize()
    dist.barrier()
    if RANK == 0:
        dist.set_timeout(timedelta(seconds=2), group)
        work = dist.all_reduce(tensor, group=group, async_op=True)
        expect_error(dist.DistBackendError, "rank ", lambda: work.wait(timedelta(seconds=60)))
        assert not work.is_success() and work.exception()
        gpu.synchronize()  # streams go on
        # DistributedDataParallel waits for futures alone: a call that could not reduce must not begin.
        expect_error(dist.DistBackendError, "rank ", lambda: dist.all_reduce(tensor, group=group, async_op=True))
    dist.barrier()


if __name__ == "__main__":
    shared = {**tests_of(collectives), **tests_of(exchange), **tests_of(refusals)}
    tests = {**shared, **{n: t for n, t in globals().items() if n.startswith("test_")}}
    only = sys.argv[1:]
    main({name: test for name, test in tests.items() if not only or any(word in name for word in only)})
    assert only or gpu.lists_of_copies(), "copy engines have made no call"
