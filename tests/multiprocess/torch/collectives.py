"""Every collective that moves or adds up, for every dtype, with gloo's answer beside it where gloo has one."""

import threading

import epccl_torch
import torch
import torch.distributed as dist
import torch._C._distributed_c10d as c10d
from harness import RANK, SIZE, expect_error, main, same, values

MOVED = [torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.complex128]
SUMMED = [torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
Op = dist.ReduceOp


def reduced(dtype, shape, op, salt=0):
    """What all ranks' values give, computed here."""
    all_of_them = [values(dtype, shape, source, salt) for source in range(SIZE)]
    result = all_of_them[0].clone()
    for other in all_of_them[1:]:
        if op == Op.SUM or op == Op.AVG:
            result = result + other
        elif op == Op.PRODUCT:
            result = result * other
        elif op == Op.MIN:
            result = torch.minimum(result, other)
        elif op == Op.MAX:
            result = torch.maximum(result, other)
        elif op == Op.BAND:
            result = result & other
        elif op == Op.BOR:
            result = result | other
        elif op == Op.BXOR:
            result = result ^ other
    return result / SIZE if op == Op.AVG else result


def ops_for(dtype):
    return [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX] + ([Op.AVG] if dtype.is_floating_point else [Op.BAND, Op.BOR, Op.BXOR])


def test_all_reduce_of_every_dtype_and_operation(group):
    for dtype in SUMMED:
        for op in ops_for(dtype):
            for shape in ((1,), (3, 7), (5000,)):
                got = values(dtype, shape, RANK)
                dist.all_reduce(got, op, group)
                torch.testing.assert_close(got, reduced(dtype, shape, op), rtol=2e-2 if dtype is torch.bfloat16 else 1e-3, atol=0)


def test_all_reduce_agrees_with_gloo(group):
    for dtype in (torch.int32, torch.float64, torch.float32):
        for op in (Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX):
            got, want = values(dtype, (11, 3), RANK), values(dtype, (11, 3), RANK)
            dist.all_reduce(got, op, group)
            dist.all_reduce(want, op)
            same(got, want, f"{dtype} {op}")


def test_all_reduce_of_flags_strides_and_complex_numbers(group):
    flag = torch.tensor([RANK == 0, True, False])
    anywhere, everywhere = flag.clone(), flag.clone()
    dist.all_reduce(anywhere, Op.SUM, group)
    dist.all_reduce(everywhere, Op.PRODUCT, group)
    assert anywhere.tolist() == [True, True, False] and everywhere.tolist() == [SIZE == 1, True, False]
    strided = values(torch.float32, (6, 4), RANK).t()
    dist.all_reduce(strided, group=group)
    same(strided.contiguous(), reduced(torch.float32, (6, 4), Op.SUM).t().contiguous(), "strided")
    number = torch.full((3,), complex(RANK, 1))
    dist.all_reduce(number, group=group)
    assert number.tolist() == [complex(sum(range(SIZE)), SIZE)] * 3


def test_all_reduce_of_dtypes_that_torch_cannot_add_up(group):
    # What comes is computed in another dtype, from values that both hold exactly.
    for dtype in (torch.uint32, torch.uint64, torch.float8_e4m3fn):
        for op in (Op.SUM, Op.MIN, Op.MAX):
            got = values(torch.int64, (3, 70), RANK).to(dtype)
            dist.all_reduce(got, op, group)
            same(got, reduced(torch.int64, (3, 70), op).to(dtype), f"{dtype} {op}")
    high = torch.tensor([2**31 + RANK]).to(torch.uint32)
    dist.all_reduce(high, Op.MAX, group)
    assert high.to(torch.int64).item() == 2**31 + SIZE - 1, "as unsigned numbers"
    ones = torch.ones(5).to(torch.float8_e5m2)
    dist.all_reduce(ones, Op.MAX, group)
    same(ones, torch.ones(5).to(torch.float8_e5m2), "float8_e5m2")


def test_an_average_of_integers_is_cut_towards_zero(group):
    for sign in (1, -1):
        for dtype in (torch.int8, torch.int32, torch.int64):
            got = sign * values(dtype, (40,), RANK)
            dist.all_reduce(got, Op.AVG, group)
            want = torch.div(sign * reduced(torch.int64, (40,), Op.SUM), SIZE, rounding_mode="trunc").to(dtype)
            same(got, want, f"{dtype}, sign {sign}")


def test_all_reduce_coalesced(group):
    tensors = [values(torch.float32, (n,), RANK, n) for n in (1, 100, 7)]
    with dist._coalescing_manager(group):
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    for n, tensor in zip((1, 100, 7), tensors):
        same(tensor, reduced(torch.float32, (n,), Op.SUM, n), n)


def sparse_of(rank, shape=(6, 4, 3), dtype=torch.float32):
    """Some entries more than once, another number of them on each rank, none on rank 1."""
    count = 0 if rank == 1 else 5 + rank
    rows = [(3 * i + rank) % shape[0] for i in range(count)]
    columns = [(i * i) % shape[1] for i in range(count)]
    entries = values(dtype, (count, shape[2]), rank)
    return torch.sparse_coo_tensor(torch.tensor([rows, columns], dtype=torch.int64).reshape(2, count), entries, shape)


def test_all_reduce_of_sparse_tensors(group):
    for dtype in (torch.float32, torch.float16, torch.int64):
        mine = sparse_of(RANK, dtype=dtype)
        dist.all_reduce(mine, group=group)
        want = sum(sparse_of(rank, dtype=dtype).to_dense() for rank in range(SIZE))
        same(mine.to_dense(), want, dtype)
    work = dist.all_reduce(mine, group=group, async_op=True)
    work.wait()
    same(mine.to_dense(), SIZE * want, "a second time")
    expect_error(RuntimeError, "there is a sum", lambda: dist.all_reduce(mine, dist.ReduceOp.MAX, group=group))
    other = sparse_of(RANK, (6, 4 + RANK % 2, 3))
    expect_error(RuntimeError, "has another shape", lambda: dist.all_reduce(other, group=group))


def test_reduce_changes_the_root_alone(group):
    for root in (0, SIZE - 1):
        for op in (Op.SUM, Op.BOR):
            got = values(torch.int32, (9, 2), RANK)
            dist.reduce(got, root, op, group)
            same(got, reduced(torch.int32, (9, 2), op) if RANK == root else values(torch.int32, (9, 2), RANK), root)


def test_broadcast(group):
    for dtype in MOVED:
        for root in (0, SIZE - 1):
            got = values(dtype, (13,), RANK)
            dist.broadcast(got, root, group)
            same(got, values(dtype, (13,), root), dtype)
    strided = values(torch.int64, (4, 6), RANK).t()
    dist.broadcast(strided, 1, group)
    same(strided.contiguous(), values(torch.int64, (4, 6), 1).t().contiguous(), "strided")


def test_all_gather(group):
    for dtype in MOVED:
        got = [torch.zeros(5, 2, dtype=dtype) for _ in range(SIZE)]
        dist.all_gather(got, values(dtype, (5, 2), RANK), group)
        for source in range(SIZE):
            same(got[source], values(dtype, (5, 2), source), dtype)
        flat = torch.zeros(5 * SIZE, 2, dtype=dtype)
        dist.all_gather_into_tensor(flat, values(dtype, (5, 2), RANK), group)
        same(flat, torch.cat([values(dtype, (5, 2), source) for source in range(SIZE)]), dtype)
    uneven = [torch.zeros(source, dtype=torch.int32) for source in range(SIZE)]
    dist.all_gather(uneven, values(torch.int32, (RANK,), RANK), group)
    for source in range(SIZE):
        same(uneven[source], values(torch.int32, (source,), source), "uneven")


def test_lists_of_one_buffer_that_are_input_and_output_at_once(group):
    ends = torch.arange(SIZE + 1).cumsum(0).tolist()  # rank r has r + 1 elements
    memory = torch.zeros(ends[-1], dtype=torch.int32)
    uneven = [memory[begin:end] for begin, end in zip(ends, ends[1:])]
    uneven[RANK].copy_(values(torch.int32, (RANK + 1,), RANK))
    dist.all_gather(uneven, uneven[RANK], group)
    for source in range(SIZE):
        same(uneven[source], values(torch.int32, (source + 1,), source), f"gathered from {source}")
    blocks = list(torch.cat([values(torch.int32, (3,), RANK, to) for to in range(SIZE)]).split(3))
    dist.all_to_all(blocks, blocks, group=group)
    for source in range(SIZE):
        same(blocks[source], values(torch.int32, (3,), source, RANK), f"exchanged with {source}")


def test_outputs_that_overlap_inputs_elsewhere_than_in_the_rank_s_own_part(group):
    def mine_of(rank):
        return values(torch.int32, (3,), rank, 2)

    everybody = torch.cat([mine_of(rank) for rank in range(SIZE)])
    other, parts = (RANK + 1) % SIZE, [values(torch.int32, (3,), RANK, to) for to in range(SIZE)]
    total = reduced(torch.int32, (3,), Op.SUM, RANK)

    def memory_with(tensor):  # in the part of another rank, and not where that begins
        memory = torch.zeros(3 * SIZE + 1, dtype=torch.int32)
        memory[3 * other + 1 : 3 * other + 4] = tensor
        return memory, memory[: 3 * SIZE], memory[3 * other + 1 : 3 * other + 4]

    memory, whole, part = memory_with(mine_of(RANK))
    dist.all_gather_into_tensor(whole, part, group)
    same(whole, everybody, "all_gather_into_tensor")
    memory, whole, part = memory_with(mine_of(RANK))
    dist.all_gather(list(whole.split(3)), part, group)
    same(whole, everybody, "all_gather")
    for listed in (True, False):
        memory, whole, part = memory_with(mine_of(RANK))
        if listed:
            dist.gather(part, list(whole.split(3)) if RANK == 0 else None, 0, group)
        else:
            dist.gather_single(part, whole if RANK == 0 else None, 0, group)
        if RANK == 0:
            same(whole, everybody, f"gather {listed}")
    memory = torch.cat([*parts, torch.zeros(1, dtype=torch.int32)])
    whole, part = memory[: 3 * SIZE], memory[3 * other + 1 : 3 * other + 4]
    dist.reduce_scatter_tensor(part, whole, group=group)
    same(part, total, "reduce_scatter_tensor")
    memory[: 3 * SIZE] = torch.cat(parts)
    dist.reduce_scatter(part, list(whole.split(3)), group=group)
    same(part, total, "reduce_scatter")
    memory[: 3 * SIZE] = torch.cat(parts)
    dist.scatter(part, list(whole.split(3)) if RANK == 0 else None, 0, group)
    same(part, values(torch.int32, (3,), 0, RANK), "scatter")


def test_all_gather_coalesced(group):
    shapes = (3, 20)
    outs = [torch.zeros(SIZE * n) for n in shapes]
    with dist._coalescing_manager(group):
        for n, out in zip(shapes, outs):
            dist.all_gather_into_tensor(out, values(torch.float32, (n,), RANK), group)
    for n, out in zip(shapes, outs):
        same(out, torch.cat([values(torch.float32, (n,), source) for source in range(SIZE)]), n)


def test_all_gather_coalesced_of_lists(group):
    shapes = ((2, 3), (7,))
    outs = [[torch.zeros(shape) for shape in shapes] for _ in range(SIZE)]
    group.allgather_coalesced(outs, [values(torch.float32, shape, RANK) for shape in shapes]).wait()
    for source in range(SIZE):
        for shape, out in zip(shapes, outs[source]):
            same(out, values(torch.float32, shape, source), f"{shape} of {source}")


def test_asynchronous_calls_complete_in_the_order_of_issue(group):
    gathered, part = torch.zeros(5 * SIZE), torch.zeros(3)
    listed = [torch.zeros(2) for _ in range(SIZE)]
    works = [
        dist.all_gather_into_tensor(gathered, values(torch.float32, (5,), RANK), group, async_op=True),
        dist.all_gather(listed, values(torch.float32, (2,), RANK), group, async_op=True),
        dist.reduce_scatter_tensor(
            part, torch.cat([values(torch.float32, (3,), RANK, to) for to in range(SIZE)]), group=group, async_op=True
        ),
    ]
    works[-1].wait()
    assert all(work.is_completed() for work in works)
    same(gathered, torch.cat([values(torch.float32, (5,), source) for source in range(SIZE)]), "all_gather_into_tensor")
    same(torch.stack(listed), torch.stack([values(torch.float32, (2,), source) for source in range(SIZE)]), "all_gather")
    same(part, reduced(torch.float32, (3,), Op.SUM, RANK), "reduce_scatter_tensor")


def test_sums_of_complex_numbers(group):
    def numbers(source, part):
        return torch.complex(values(torch.float32, (2, 3), source, part), values(torch.float32, (2, 3), source, part + 7))

    for wanted in (0, SIZE - 1):
        total = sum(numbers(source, 0) for source in range(SIZE))
        got = numbers(RANK, 0)
        dist.reduce(got, wanted, group=group)
        same(got, total if RANK == wanted else numbers(RANK, 0), f"reduce to {wanted}")
    part = sum(numbers(source, RANK) for source in range(SIZE))
    got = torch.zeros(2, 3, dtype=torch.complex64)
    dist.reduce_scatter(got, [numbers(RANK, to) for to in range(SIZE)], group=group)
    same(got, part, "reduce_scatter")
    strided = torch.zeros(3, 2, dtype=torch.complex64).t()
    dist.reduce_scatter_tensor(strided, torch.cat([numbers(RANK, to) for to in range(SIZE)]), Op.AVG, group)
    same(strided.contiguous(), part / SIZE, "reduce_scatter_tensor")
    expect_error(RuntimeError, "sums and averages", lambda: dist.reduce(torch.zeros(2).cfloat(), 0, Op.MAX, group))


def test_a_callback_may_issue_calls_and_wait_for_them(group):
    def again(future):
        twice = future.value()[0].clone()
        dist.all_reduce(twice, group=group, async_op=True).get_future().wait()
        dist.all_reduce(twice, group=group)
        return twice

    ours = [values(torch.float32, (4,), RANK, salt) for salt in range(3)]
    futures = [dist.all_reduce(tensor, group=group, async_op=True).get_future().then(again) for tensor in ours]
    for salt, future in enumerate(futures):
        same(future.wait(), SIZE * SIZE * reduced(torch.float32, (4,), Op.SUM, salt), f"call {salt}")


def test_a_callback_may_have_the_last_reference_to_the_group(group):
    store = dist.PrefixStore("last reference", dist.distributed_c10d._get_default_store())
    kept = [epccl_torch._C.create(store, RANK, SIZE, 60.0, [], "last reference")]
    total, forgotten = torch.ones(3), threading.Event()
    options = c10d.AllreduceOptions()
    options.asyncOp = True

    def end(future):
        forgotten.wait()
        kept.clear()

    if RANK == 0:  # comes last, so that the others' calls are not over before they have callbacks
        store.wait([f"rank {other}" for other in range(1, SIZE)])
        kept[0].allreduce([total], options).wait()
    else:
        done = kept[0].allreduce([total], options).get_future().then(end)
        store.set(f"rank {RANK}", "")
        forgotten.set()
        done.wait()
    same(total, torch.full((3,), float(SIZE)), "its call")
    # What comes after it goes on.
    dist.all_reduce(total, group=group, async_op=True).wait()
    same(total, torch.full((3,), float(SIZE * SIZE)), "another group's call")


def test_a_callback_may_destroy_the_group(group):
    last = dist.new_group(backend="epccl")
    total = torch.ones(3)

    def end(future):
        dist.destroy_process_group(last)
        return future.value()[0]

    got = dist.all_reduce(total, group=last, async_op=True).get_future().then(end).wait()
    same(got.cpu(), torch.full((3,), float(SIZE)), "its call")
    again = torch.ones(3)
    dist.all_reduce(again, group=group, async_op=True).wait()
    same(again, torch.full((3,), float(SIZE)), "another group's call")


def test_asynchronous_calls_in_inference_mode(group):
    with torch.inference_mode():
        mine, gathered = values(torch.float32, (3,), RANK), [torch.zeros(3) for _ in range(SIZE)]
        dist.all_gather(gathered, mine, group, async_op=True).wait()
        strided = torch.zeros(3, 2).t()
        strided.copy_(values(torch.float32, (2, 3), RANK))
        dist.all_reduce(strided, group=group, async_op=True).wait()
    same(gathered[1], values(torch.float32, (3,), 1), "gathered")
    same(strided.contiguous(), reduced(torch.float32, (2, 3), Op.SUM), "strided")


def test_gather_and_scatter(group):
    for root in (0, SIZE - 1):
        got = [torch.zeros(4, dtype=torch.int16) for _ in range(SIZE)] if RANK == root else None
        dist.gather(values(torch.int16, (4,), RANK), got, root, group)
        if RANK == root:
            for source in range(SIZE):
                same(got[source], values(torch.int16, (4,), source), "gather")
        parts = [values(torch.float64, (3, 3), root, part).t() for part in range(SIZE)] if RANK == root else None
        mine = torch.zeros(3, 3, dtype=torch.float64)
        dist.scatter(mine, parts, root, group)
        same(mine, values(torch.float64, (3, 3), root, RANK).t().contiguous(), "scatter")


def test_gather_single(group):
    for dtype in MOVED:
        for root in (0, SIZE - 1):
            got = torch.zeros(4 * SIZE, 3, dtype=dtype) if RANK == root else None
            dist.gather_single(values(dtype, (4, 3), RANK), got, root, group)
            if RANK == root:
                same(got, torch.cat([values(dtype, (4, 3), source) for source in range(SIZE)]), f"{dtype} to {root}")
    strided = torch.zeros(3, 2 * SIZE, dtype=torch.int32).t()
    dist.gather_single(values(torch.int32, (3, 2), RANK).t()[:2], strided if RANK == 0 else None, 0, group)
    if RANK == 0:
        want = torch.cat([values(torch.int32, (3, 2), source).t()[:2].flatten() for source in range(SIZE)])
        same(strided.contiguous().flatten(), want, "strided")


def test_reduce_scatter(group):
    for dtype in SUMMED:
        for op in (Op.SUM, Op.MAX):
            got = torch.zeros(6, dtype=dtype)
            dist.reduce_scatter(got, [values(dtype, (6,), RANK, part) for part in range(SIZE)], op, group)
            same(got, reduced(dtype, (6,), op, RANK), f"{dtype} {op}")
            got.zero_()
            dist.reduce_scatter_tensor(got, torch.cat([values(dtype, (6,), RANK, part) for part in range(SIZE)]), op, group)
            same(got, reduced(dtype, (6,), op, RANK), f"{dtype} {op}")
    for op in (Op.SUM, Op.BXOR):  # blocks of different sizes; bits
        got = torch.zeros(RANK + 1, dtype=torch.int32)
        dist.reduce_scatter(got, [values(torch.int32, (part + 1,), RANK, part) for part in range(SIZE)], op, group)
        same(got, reduced(torch.int32, (RANK + 1,), op, RANK), f"uneven {op}")
    for op in (Op.BAND, Op.BOR, Op.BXOR):
        got = torch.zeros(6, dtype=torch.int32)
        whole = torch.cat([values(torch.int32, (6,), RANK, part) for part in range(SIZE)])
        before = whole.clone()
        dist.reduce_scatter_tensor(got, whole, op, group)
        same(got, reduced(torch.int32, (6,), op, RANK), f"tensor {op}")
        same(whole, before, f"the input of {op}")
    ours, outs = [torch.cat([values(torch.float32, (n,), RANK, part) for part in range(SIZE)]) for n in (2, 9)], []
    with dist._coalescing_manager(group):
        for n, tensor in zip((2, 9), ours):
            outs.append(torch.zeros(n))
            dist.reduce_scatter_tensor(outs[-1], tensor, group=group)
    for n, out in zip((2, 9), outs):
        same(out, reduced(torch.float32, (n,), Op.SUM, RANK), n)


def test_objects(group):
    got = [None] * SIZE
    dist.all_gather_object(got, {"rank": RANK, "text": "x" * RANK}, group)
    assert got == [{"rank": rank, "text": "x" * rank} for rank in range(SIZE)]
    things = [("a", RANK), None]
    dist.broadcast_object_list(things, 1, group)
    assert things == [("a", 1), None]
    at_root = [None] * SIZE if RANK == 0 else None
    dist.gather_object(("of", RANK), at_root, 0, group)
    assert RANK != 0 or at_root == [("of", rank) for rank in range(SIZE)]
    mine = [None]
    dist.scatter_object_list(mine, [{"for": rank} for rank in range(SIZE)] if RANK == 1 else None, 1, group)
    assert mine == [{"for": RANK}]


def test_a_pre_multiplied_sum(group):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn):
        half, mine = dist._make_nccl_premul_sum(0.5), values(dtype, (2 * SIZE,), RANK)
        want = (reduced(torch.float32, (2 * SIZE,), Op.SUM) * 0.5).to(dtype)
        got = mine.clone()
        dist.all_reduce(got, half, group)
        same(got, want, f"all_reduce of {dtype}")
        got = mine.clone()
        dist.reduce(got, 1, half, group)
        if RANK == 1:
            same(got, want, f"reduce of {dtype}")
        for scatter, input in ((dist.reduce_scatter_tensor, mine), (dist.reduce_scatter, list(mine.chunk(SIZE)))):
            got = torch.zeros(2, dtype=dtype)
            scatter(got, input, half, group)
            same(got, want.chunk(SIZE)[RANK], f"{scatter.__name__} of {dtype}")


def conjugated(source, salt=0):
    """A view of other memory than it holds."""
    real, imaginary = (values(torch.float32, (SIZE,), source, salt + more) for more in (0, 7))
    return torch.complex(real, -imaginary).conj()


def negated(source, salt=0):
    view = conjugated(source, salt).imag
    assert view.is_neg() and not view.requires_grad
    return view


def test_conjugated_and_negated_views_are_what_they_hold(group):
    """PyTorch resolves them before it calls a backend, but not in lists of lists, nor where a program calls the backend itself."""
    backend, right, left = group._get_backend(torch.device("cpu")), (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for view in (negated, conjugated):

        def plain(*of):
            return view(*of).resolve_conj().resolve_neg()

        def check(got, want, what):
            for each, wanted in zip(got, want, strict=True):
                same(each.resolve_conj().resolve_neg(), wanted, f"{what}, {view.__name__}")

        every = [plain(source) for source in range(SIZE)]
        got = view(RANK)
        backend.broadcast(got, SIZE - 1).wait()
        check([got], every[-1:], "broadcast")
        got = view(RANK, 2)
        backend.alltoall_base(got, view(RANK), [], []).wait()
        check([got], [torch.stack([one[RANK] for one in every])], "all_to_all_single")
        got = [view(RANK, 1) for _ in range(SIZE)]
        group.allgather([got], [view(RANK)]).wait()
        check(got, every, "all_gather")
        flat = torch.zeros(SIZE * SIZE, dtype=every[0].dtype)
        backend._allgather_base(flat, view(RANK)).wait()
        check([flat], [torch.cat(every)], "all_gather_into_tensor")
        got = plain(RANK, 1)
        group.scatter([got], [[view(RANK, to) for to in range(SIZE)]] if RANK == 0 else [], c10d.ScatterOptions()).wait()
        check([got], [plain(0, RANK)], "scatter")
        got = [view(RANK, 1) for _ in range(SIZE)]
        group.gather([got] if RANK == 0 else [], [view(RANK)], c10d.GatherOptions()).wait()
        if RANK == 0:
            check(got, every, "gather")
        got = view(RANK, 1)
        sent = backend.send([view(RANK)], right, 5)
        backend.recv([got], left, 5).wait()
        sent.wait()
        check([got], [plain(left)], "recv")
    total = sum(negated(source).resolve_neg() for source in range(SIZE))
    several, part = [negated(RANK), conjugated(RANK, 1).real], negated(RANK, 1)[:1]
    backend.allreduce_coalesced(several, c10d.AllreduceCoalescedOptions()).wait()
    same(several[0].resolve_neg(), total, "all_reduce of several")
    backend._reduce_scatter_base(part, negated(RANK)).wait()
    same(part.resolve_neg(), total[RANK : RANK + 1], "reduce_scatter_tensor")
    part = torch.zeros(1)
    dist.reduce_scatter(part, list(negated(RANK).split(1)), group=group)
    same(part, total[RANK : RANK + 1], "reduce_scatter")
    expect_error(RuntimeError, "call resolve_conj", lambda: backend.allreduce([conjugated(RANK)]))


if __name__ == "__main__":
    main(globals())
