"""What a routing of tokens may be, and what is told of it and of its calls."""

from __future__ import annotations

import dataclasses
import enum

from .buffers import Array


class Strategy(enum.IntEnum):
    """How tokens cross the network."""

    AUTO = 0  #: by a cost model, alike on every rank
    FLAT = 1  #: one copy for each destination rank
    GATHER = 2  #: every token to every node
    DEDUP = 3  #: one copy for each destination node


class Layout(enum.IntEnum):
    """What a rank's N received rows are."""

    EXPERT_MAJOR = 1  #: one row for each (token, expert), by expert
    RANK_MAJOR = 2  #: as FLAT, but each source's rows begin at a fixed place
    FLAT = 3  #: one row for each token with an expert here, by source rank


@dataclasses.dataclass
class Counters:
    """What a routing means for this rank; NumPy arrays of int64 (``dropped``: uint8), or tensors of PyTorch where the table of the
    routing is one. Valid once the update is complete."""

    expert_counters: Array  #: [local experts]: entries for each expert; with a capacity, those kept
    expert_offsets: Array  #: [local experts]: EXPERT_MAJOR: its first row
    src_rank_counters: Array  #: [ranks]: tokens from each source with an expert here
    recv_total_counter: Array  #: [1]: N
    dropped_counters: Array  #: [local experts]: entries beyond the capacity
    dropped: Array  #: [T,K], at the source: 1 where the entry was dropped

    @property
    def rows(self) -> int:
        """N, the rows that a dispatch writes, padding included."""
        return int(self.recv_total_counter[0])


@dataclasses.dataclass(frozen=True)
class Stats:
    """What this rank hands on in one dispatch, by where it goes."""

    strategy: Strategy
    tokens_local: int
    tokens_node: int
    tokens_network: int
    dispatch_bytes_local: int
    dispatch_bytes_node: int
    dispatch_bytes_network: int
    combine_bytes_network: int


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a handle's started calls are, on this rank."""

    calls_started: int
    calls_past_stage1: int
    calls_over: int
    stage1_bytes_done: int
    stage1_bytes: int
    stage2_bytes_done: int
    stage2_bytes: int
