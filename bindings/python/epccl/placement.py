"""Which rank holds which experts: placements, and the weights on their way. The page docs/expert-placement.md says how it goes together."""

from __future__ import annotations

import ctypes
import dataclasses
import enum
from typing import Collection, Sequence, SupportsFloat, SupportsIndex

from . import _structs as c
from ._library import call
from .buffers import Array, Buffer, View, is_tensor
from .communicator import Communicator
from .ep import _Tensors
from .groups import keep_in_use
from .streams import Stream, pointer

_NO_LIMIT = 2**32 - 1
_BUFFERS, _PIECE = 3, 1 << 20  # of each slot that gets an expert


class SlotChoice(enum.IntEnum):
    """Which copy of an expert a token goes to."""

    EVEN = 0  #: all copies in turn: what placements are made for
    NEAR = 1  #: those on the own rank, else those on the own node, else all, in turn


@dataclasses.dataclass(frozen=True)
class PlacementRules:
    """What is placed: ``num_experts`` experts in ``slots_per_rank`` slots on each rank, of which slot s of rank r is number
    r * slots_per_rank + s."""

    num_experts: int
    num_ranks: int
    slots_per_rank: int
    rank_to_node: Sequence[SupportsIndex] | None = None  #: a number for each rank, equal on one node; None: all are
    num_expert_groups: int = 1  #: copies of the experts of one group (neighbours) are on one node
    tolerance: float = 0.02  #: nothing changes where the fullest rank has at most 1 + tolerance times the mean

    @property
    def num_slots(self) -> int:
        return self.num_ranks * self.slots_per_rank

    def _config(self, max_moves: int | None) -> c.EpPlacementConfig:
        config = c.EpPlacementConfig(
            num_experts=self.num_experts,
            num_ranks=self.num_ranks,
            slots_per_rank=self.slots_per_rank,
            num_expert_groups=self.num_expert_groups,
            max_moves=_NO_LIMIT if max_moves is None else max_moves,
            tolerance=self.tolerance,
        )
        if self.rank_to_node is not None:
            nodes = c.integers("rank_to_node", self.rank_to_node)
            if len(nodes) != self.num_ranks:
                raise ValueError(f"rank_to_node has {len(nodes)} entries: {self.num_ranks} are needed, one a rank")
            config.rank_to_node = c.number_array("rank_to_node", nodes, ctypes.c_int)
        return config

    def _slots(self, what: str, placement: Collection[SupportsIndex]) -> ctypes.Array[ctypes.c_int]:
        slots = c.integers(what, placement)
        if len(slots) != self.num_slots:
            raise ValueError(f"{what} has {len(slots)} entries: {self.num_slots} are needed, one a slot")
        return c.number_array(what, slots, ctypes.c_int)


@dataclasses.dataclass(frozen=True)
class Placement:
    """What :func:`place_experts` has found."""

    slots: list[int]  #: the expert in each slot, -1 for none
    balance_before: float  #: load of the fullest rank over the mean; 0: nothing was there before
    balance_after: float
    moves: int  #: slots whose expert was not on their rank before
    moves_network: int  #: of these, those whose expert was not on their node


def place_experts(
    rules: PlacementRules,
    load: Collection[SupportsFloat],
    before: Collection[SupportsIndex] | None = None,
    *,
    max_moves: int | None = None,
) -> Placement:
    """Finds a placement for loads as they are; the same everywhere for the same arguments.

    load: of each expert, in any unit.
    before: the placement now (``Placement.slots``), from which it goes in steps that are worth what they move; None: there is none.
    max_moves: most copies that ranks get and did not have; those without which an expert would be nowhere come on top.
    """
    loads = [float(it) for it in load]
    if len(loads) != rules.num_experts:
        raise ValueError(f"load has {len(loads)} entries: {rules.num_experts} are needed, one an expert")
    config, info = rules._config(max_moves), c.EpPlacementInfo()
    was = None if before is None else rules._slots("before", before)
    after = (ctypes.c_int * max(0, rules.num_slots))()
    call("epcclEpPlaceExperts", ctypes.byref(config), (ctypes.c_double * len(loads))(*loads), was, after, ctypes.byref(info))
    return Placement(list(after), info.balance_before, info.balance_after, info.moves, info.moves_network)


def pick_slots(
    rules: PlacementRules,
    placement: Collection[SupportsIndex],
    rank: int,
    topk_idx: Buffer,
    *,
    choice: SlotChoice = SlotChoice.EVEN,
    out: Buffer | None = None,
) -> Array:
    """Which copies the tokens of ``rank`` go to: ``topk_idx`` [T,K], int32 or int64, of experts, or -1 for unused. Returns ``out``, the same
    of slots; None: a new array like ``topk_idx``."""
    if out is None:
        if is_tensor(topk_idx):
            out = topk_idx.new_empty(topk_idx.shape)
        else:
            import numpy

            out = numpy.empty_like(topk_idx)
    config, tensors = rules._config(None), _Tensors()
    experts, slots = tensors.make("topk_idx", topk_idx, False), tensors.make("out", out, True)
    call("epcclEpPickSlots", ctypes.byref(config), rules._slots("placement", placement), rank, SlotChoice(choice), experts, slots)
    return out


def migrate_experts(
    comm: Communicator,
    slots_per_rank: int,
    before: Collection[SupportsIndex],
    after: Collection[SupportsIndex],
    weights: Sequence[Buffer],
    *,
    scratch: Buffer | None = None,
    stream: Stream | None = None,
) -> None:
    """Brings weights to where ``after`` has their experts. Collective, with the same placements and sizes on every rank.

    weights: of this rank, each [slots_per_rank, ...]. Slots whose expert no rank had stay as they are.
    scratch: memory to pass, at least 192 bytes for each slot of this rank that gets an expert; None: up to 3 MiB for each are allocated.

    Host memory. What is wrong with the arguments of one rank in themselves (lengths, shapes) raises there, and the others wait for its call.
    """
    was, will_be = c.integers("before", before), c.integers("after", after)
    for name, placement in ("before", was), ("after", will_be):
        if len(placement) != comm.size * slots_per_rank:
            raise ValueError(f"{name} has {len(placement)} entries: {comm.size * slots_per_rank} are needed, one a slot")
    views = [View(f"weights[{at}]", tensor, True) for at, tensor in enumerate(weights)]
    for at, view in enumerate(views):
        if not view.shape or view.shape[0] != slots_per_rank:
            raise ValueError(f"weights[{at}] is of shape {list(view.shape)}: its first dimension has to be {slots_per_rank}")
    sizes = [view.nbytes // slots_per_rank for view in views]
    if scratch is None:
        first = comm.rank * slots_per_rank
        come = sum(was[slot] != will_be[slot] for slot in range(first, first + slots_per_rank))
        scratch = bytearray(come * _BUFFERS * min(max(sizes, default=0), _PIECE))
    room = View("scratch", scratch, True)
    handle = comm._pointer()
    call(
        "epcclEpMigrateExperts",
        handle,
        slots_per_rank,
        c.number_array("before", was, ctypes.c_int),
        c.number_array("after", will_be, ctypes.c_int),
        (ctypes.c_void_p * len(views))(*(view.address for view in views)),
        (ctypes.c_size_t * len(views))(*sizes),
        len(views),
        room.address,
        room.nbytes,
        pointer(stream),
        comm=handle,
    )
    keep_in_use([*views, room, comm], stream)
