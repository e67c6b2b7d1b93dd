"""Placements of experts, and weights that follow them."""

import epccl
import numpy as np
from epccl import PlacementRules, SlotChoice
from harness import expect_error, main, seed

SLOTS, EXPERTS = 3, 9


def rules_of(comm, **more):
    return PlacementRules(EXPERTS, comm.size, SLOTS, **more)


def test_loads_are_spread(comm):
    rules = rules_of(comm, tolerance=0)
    load = np.full(EXPERTS, 10, np.float32)
    load[4] = 90
    first = epccl.place_experts(rules, load)
    assert set(first.slots) - {-1} == set(range(EXPERTS)) and len(first.slots) == comm.size * SLOTS
    assert first.balance_before == 0 and 1 <= first.balance_after < 1.2, first
    assert first.slots.count(4) > 1, "of the busiest one there are copies"
    again = epccl.place_experts(rules, load, first.slots)
    assert again.slots == first.slots and again.moves == 0
    load[[4, 7]] = load[[7, 4]]
    other = epccl.place_experts(rules, load, np.array(first.slots))
    assert other.balance_after < other.balance_before and 0 < other.moves <= 6, other
    assert epccl.place_experts(rules, load, first.slots, max_moves=1).moves <= 1


def test_groups_stay_on_a_node(comm):
    nodes = [rank * 2 // comm.size for rank in range(comm.size)]
    rules = PlacementRules(8, comm.size, 3, nodes, num_expert_groups=4)
    slots = np.array(epccl.place_experts(rules, range(1, 9)).slots)
    for group in range(4):
        homes = {nodes[slot // 3] for slot in np.flatnonzero((slots // 2 == group) & (slots >= 0))}
        assert len(homes) == 1, (group, slots)


def test_weights_follow(comm):
    rules, rng = rules_of(comm), np.random.default_rng(seed())
    before = epccl.place_experts(rules, rng.random(EXPERTS)).slots
    own = slice(comm.rank * SLOTS, (comm.rank + 1) * SLOTS)

    def filled(slots):
        experts = np.array(slots[own])
        wide = np.repeat(experts[:, None].astype(np.float32), 700, axis=1)
        return [wide, experts.astype(np.int64)]

    weights, scratch = filled(before), np.empty(3000, np.uint8)
    for room in None, scratch, bytearray(SLOTS * 192):
        load = rng.random(EXPERTS) ** 3
        after = epccl.place_experts(rules, load, before).slots
        after[:2] = after[1::-1]  # in any case something moves
        epccl.migrate_experts(comm, SLOTS, before, after, weights, scratch=room)
        for mine, wanted in zip(weights, filled(after)):
            held = np.array(after[own]) >= 0
            assert np.array_equal(mine[held], wanted[held]), (before, after)
        before = after
    with epccl.Stream() as stream:
        epccl.migrate_experts(comm, SLOTS, before, before[::-1], weights, stream=stream)
        stream.synchronize()
    mirrored = np.array(before[::-1][own])
    assert np.array_equal(weights[1][mirrored >= 0], mirrored[mirrored >= 0])


def test_tables_name_slots(comm):
    rules = PlacementRules(3, 2, 2, rank_to_node=[0, 1])
    placement = [0, 1, 2, 0]
    table = np.array([[0, -1], [0, 2]], np.int32)
    assert epccl.pick_slots(rules, placement, 0, table).tolist() == [[0, -1], [3, 2]]
    assert epccl.pick_slots(rules, placement, 1, table, choice=SlotChoice.NEAR).tolist() == [[3, -1], [3, 2]]
    assert epccl.pick_slots(rules, placement, 1, table, out=table) is table and table.tolist() == [[3, -1], [0, 2]]


def test_what_cannot_be_is_refused(comm):
    rules = rules_of(comm)
    expect_error(ValueError, "load has 1 entries: 9 are needed", lambda: epccl.place_experts(rules, [1]))
    expect_error(ValueError, f"before has 2 entries: {comm.size * SLOTS}", lambda: epccl.place_experts(rules, [1] * 9, [0, 1]))
    expect_error(epccl.InvalidArgument, "load of expert 2 is -1", lambda: epccl.place_experts(rules, [1, 1, -1] * 3))
    expect_error(TypeError, r"before[1]", lambda: epccl.place_experts(rules, [1] * 9, [0, 1.5] + [0] * (comm.size * SLOTS - 2)))
    expect_error(ValueError, "max_moves is -1", lambda: epccl.place_experts(rules, [1] * 9, max_moves=-1))
    expect_error(
        ValueError,
        "rank_to_node has 1 entries",
        lambda: epccl.place_experts(rules_of(comm, rank_to_node=[0]), [1] * 9),
    )
    slots = [0] * (comm.size * SLOTS)
    expect_error(
        ValueError, "weights[0] is of shape [2, 2]", lambda: epccl.migrate_experts(comm, SLOTS, slots, slots, [np.zeros((2, 2))])
    )
    expect_error(ValueError, "after has 1 entries", lambda: epccl.migrate_experts(comm, SLOTS, slots, [0], [np.zeros((SLOTS, 2))]))
    expect_error(ValueError, "not a valid SlotChoice", lambda: epccl.pick_slots(rules, slots, 0, np.zeros((1, 1), int), choice=7))
    expect_error(
        epccl.InvalidArgument, "expert 1, of which no slot has a copy", lambda: epccl.pick_slots(rules, slots, 0, np.ones((1, 1), int))
    )


if __name__ == "__main__":
    main(globals())
