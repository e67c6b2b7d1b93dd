"""Machines, and for alltoall and alltoallv what is compared on them: sizes, and the project's goals."""

import dataclasses
import re

from emulated_cluster import network

KIB, MIB = 1 << 10, 1 << 20
ALGORITHMS = ("flat", "two_stage", "auto")


@dataclasses.dataclass(frozen=True)
class Case:
    """NODESxRANKS@RATE on the emulated cluster, or local@RANKS, local@RANKS:unregistered on this machine."""

    name: str
    nodes: int
    ranks_per_node: int
    rate: str | None = None  # None: this machine, no cluster
    registered: bool = True  # EPCCL's buffers; peers have no such thing

    @property
    def ranks(self):
        return self.nodes * self.ranks_per_node

    @property
    def local(self):
        return self.rate is None

    @property
    def algorithms(self):
        """Those worth measuring: inside one node all are the same exchange."""
        return ("auto",) if self.local else ALGORITHMS


def parse_case(name):
    cluster = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)@([^\s:]+)", name)
    if cluster:
        try:
            network.check_nodes(int(cluster[1]))
            network.check_rate(cluster[3])
        except ValueError as error:
            raise ValueError(f"'{name}' is not a case: {error}") from None
        return Case(name, int(cluster[1]), int(cluster[2]), cluster[3], registered=False)
    local = re.fullmatch(r"local@([1-9]\d*)(:unregistered)?", name)
    if local:
        return Case(name, 1, int(local[1]), registered=local[2] is None)
    raise ValueError(
        f"'{name}' is not a case: write NODESxRANKS@RATE (4x8@4gbit), local@RANKS or local@RANKS:unregistered"
    )


# Smallest and largest size, bytes per rank pair, of the cases that have goals.
DEFAULT_SIZES = {
    "4x8@4gbit": (64, 16 * KIB),
    "2x4@4gbit": (64, 4 * KIB),
    "2x4@1gbit": (16 * KIB, 4 * MIB),
    "4x2@1gbit": (16 * KIB, 4 * MIB),
    "local@8": (KIB, 4 * MIB),
    "local@8:unregistered": (KIB, 4 * MIB),
}
_OTHER_SIZES = (KIB, MIB)


def sizes_of(case, smallest=None, largest=None, default=None):
    """In steps of four, as every contestant makes them."""
    default = default or DEFAULT_SIZES.get(case.name, _OTHER_SIZES)
    size = default[0] if smallest is None else smallest
    last = default[1] if largest is None else largest
    if size < 1:
        raise ValueError(f"{case.name}: the smallest size, {size}, is less than a byte")
    if size > last:
        raise ValueError(f"{case.name}: the smallest size, {size}, is larger than the largest, {last}")
    sizes = []
    while size <= last:
        sizes.append(size)
        size *= 4
    return sizes


@dataclasses.dataclass(frozen=True)
class Goal:
    """At least (p99: at most) `bound`, of `measure`, for one case and algorithm.

    measure  "ratio"      best peer's time over ours
             "hand_made"  the hand-made two-stage exchange's time over ours
             "wire"       share of the wire's payload rate
             "p99"        99th percentile over median; here the bound is an upper one
    over     "mean" the geometric mean of all sizes, "each" every size, or one size in bytes per pair
    """

    case: str
    algorithm: str
    measure: str
    over: str | int
    bound: float
    operation: str = "alltoall"

    def value_of(self, row):
        if self.measure == "ratio":
            return row["ratio"]
        if self.measure == "hand_made":
            return row["hand_made_us"] and row["us"] and row["hand_made_us"] / row["us"]
        if self.measure == "wire":
            return row["wire_fraction"]
        return row["p99_us"] and row["us"] and row["p99_us"] / row["us"]

    @property
    def upper(self):
        return self.measure == "p99"


GOALS = (
    Goal("4x8@4gbit", "two_stage", "ratio", "mean", 2.5),
    Goal("4x8@4gbit", "two_stage", "ratio", 16 * KIB, 1.8),
    Goal("4x8@4gbit", "two_stage", "hand_made", "mean", 1.5),
    Goal("2x4@4gbit", "auto", "ratio", "mean", 2.5),
    Goal("2x4@4gbit", "auto", "hand_made", "mean", 1.2),
    Goal("2x4@1gbit", "flat", "wire", "each", 0.97),
    Goal("2x4@1gbit", "two_stage", "wire", "each", 0.97),
    Goal("4x2@1gbit", "flat", "wire", "each", 0.97),
    Goal("4x2@1gbit", "two_stage", "wire", "each", 0.97),
    Goal("local@8", "auto", "ratio", "mean", 1.2),
    Goal("local@8", "auto", "ratio", "each", 1.0),
    Goal("local@8:unregistered", "auto", "ratio", "each", 0.95),
    Goal("local@8", "auto", "p99", "each", 5.0),
    Goal("local@8:unregistered", "auto", "p99", "each", 5.0),
)
