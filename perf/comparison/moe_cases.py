"""What the suite moe compares: a machine with a workload, and the goals that the project has set itself."""

import dataclasses

from . import cases

STRATEGIES = ("flat", "gather", "dedup", "auto")


@dataclasses.dataclass(frozen=True)
class Workload:
    """One layer's tokens and their routing; all in bfloat16, unless dispatched in FP8."""

    tokens: int = 512  # per rank
    hidden: int = 2048
    experts: int = 256
    topk: int = 8
    routing: str = "uniform"  # epccl-perf's --routing
    fp8: bool = False
    overlap: bool = False  # beneath matrix products; nothing to compare with

    @property
    def row_bytes(self):
        return 2 * self.hidden


WORKLOADS = {
    "uniform": Workload(),
    "group-limited": Workload(routing="groups:2/4"),
    "fp8": Workload(fp8=True),
    "decode": Workload(tokens=16),
    "overlap": Workload(overlap=True),
}


@dataclasses.dataclass(frozen=True)
class MoeCase:
    """MACHINE/WORKLOAD."""

    name: str
    machine: cases.Case
    workload: Workload

    @property
    def strategies(self):
        """Those worth measuring: what is hidden depends on the library's background, not on who relays."""
        return ("auto",) if self.workload.overlap else STRATEGIES

    @property
    def copies(self):
        """What the peers send one copy of a token for: dispatchers between nodes send one per "expert"."""
        return "rank" if self.machine.local else "expert"


DEFAULT_CASES = (
    "4x2@1gbit/uniform",
    "4x2@1gbit/group-limited",
    "4x2@1gbit/fp8",
    "4x8@4gbit/decode",
    "local@8/uniform",
    "local@8:unregistered/uniform",
    "2x1@200mbit/overlap",
    "2x1@1gbit/overlap",
)


def parse_case(name):
    machine, _, workload = name.partition("/")
    if workload not in WORKLOADS:
        raise ValueError(
            f"'{name}' is not a case of moe: write NODESxRANKS@RATE, local@RANKS or local@RANKS:unregistered, then /{', /'.join(WORKLOADS)}"
        )
    return MoeCase(name, cases.parse_case(machine), WORKLOADS[workload])


# Least ratio of strategy auto. In fp8 it is that of the dispatches, elsewhere that of dispatch and combine together.
RATIO_GOALS = {
    "4x2@1gbit/uniform": 2.0,
    "4x2@1gbit/group-limited": 3.0,
    "4x2@1gbit/fp8": 1.8,
    "4x8@4gbit/decode": 2.5,
    "local@8/uniform": 1.2,
    "local@8:unregistered/uniform": 1.0,
}
# Most of the communication's time that may stay exposed, and most that it may slow the compute down, of auto.
OVERLAP_GOALS = {"2x1@200mbit/overlap": {"exposed_fraction": 0.02, "dilation": 0.03}}
# In every case: most that auto may take, over the best of the strategies that can be forced.
AUTO_GOAL = 1.05
