"""An MoE layer whose busiest experts get copies: epccl-run -n 4 python3 balanced_moe.py"""

import epccl
import numpy as np

EXPERTS, SLOTS, TOKENS, TOPK, HIDDEN = 12, 4, 500, 2, 16  # 4 ranks with 4 slots: 4 copies more than experts

with epccl.Communicator.from_launcher() as comm:
    rules = epccl.PlacementRules(EXPERTS, comm.size, SLOTS)
    mine = slice(comm.rank * SLOTS, (comm.rank + 1) * SLOTS)
    placement = epccl.place_experts(rules, np.ones(EXPERTS)).slots  # nothing is known of the loads yet
    weights = np.array([[expert + 1] for expert in placement[mine]], np.float32)  # expert e multiplies with e + 1

    # The group knows slots only, and lives as long as the model.
    group = epccl.EpGroup(
        comm, num_experts=rules.num_slots, max_send_tokens_per_rank=TOKENS, max_token_bytes=4 * HIDDEN
    )
    handle = group.handle(epccl.Layout.EXPERT_MAJOR)

    rng = np.random.default_rng(comm.rank)
    busy = np.arange(1, EXPERTS + 1) ** -1.0
    load = np.zeros(EXPERTS)
    for step in range(9):
        if step == 6:
            busy = busy[::-1]  # another text: other experts have most to do
        drawn = -np.log(rng.random((TOKENS, EXPERTS))) / busy
        topk = np.ascontiguousarray(np.argsort(drawn)[:, :TOPK])  # the router: those of the busy more often

        x = rng.random((TOKENS, HIDDEN), np.float32)
        counters = handle.update(epccl.pick_slots(rules, placement, comm.rank, topk))
        rows = handle.dispatch(x)
        for slot, (first, count) in enumerate(zip(counters.expert_offsets, counters.expert_counters)):
            rows[first : first + count] *= weights[slot]
        y = handle.combine(rows)
        assert np.allclose(y, (topk + 1).sum(axis=1, keepdims=True) * x, rtol=1e-4)

        load = 0.3 * load + np.bincount(topk.ravel(), minlength=EXPERTS)  # what counts is lately
        everybodys, most = np.empty(EXPERTS), np.empty(1, np.int64)
        comm.allreduce(np.array([counters.rows]), most, op=epccl.RedOp.MAX)
        text = f"step {step}: fullest rank {most[0] / (TOKENS * TOPK):.2f} of the mean"
        if step % 3 == 2:
            comm.allreduce(load, everybodys)  # the same numbers for all ranks: the same placement
            better = epccl.place_experts(rules, everybodys, placement)
            epccl.migrate_experts(comm, SLOTS, placement, better.slots, [weights])
            placement = better.slots
            text += f"; {better.moves} copies moved, then {better.balance_after:.2f} is expected"
        if comm.rank == 0:
            print(text)
