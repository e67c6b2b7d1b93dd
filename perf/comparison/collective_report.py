"""All collectives: what is compared, and from samples to rows, tables and verdicts."""

import statistics

from .cases import KIB, MIB
from .contestants import PROGRAMS
from .figures import cell, geometric_mean, median, medians, percent_cell, rounded, size_text, table, time_cell, verdict

OPERATIONS = ("allgather", "reduce_scatter", "allreduce", "broadcast", "reduce", "gather", "scatter", "alltoall")
DEFAULT_CASES = ("local@8", "2x4@1gbit")
SIZES = (KIB, 16 * MIB)  # smallest and largest, bytes of the whole buffer
GOAL = 1.0  # geometric mean over sizes of the best peer's time over ours, for each operation and case


def rows_of(case, samples):
    """The rows of compare.json for one case."""
    rows = []
    ours = [s for s in samples if s.contestant not in PROGRAMS]
    for operation, algorithm, size in sorted({(s.operation, s.contestant, s.size) for s in ours}):
        here = [s for s in samples if s.operation == operation and s.size == size]
        own = [s for s in here if s.contestant == algorithm]
        peers = medians(here, PROGRAMS)
        best = min(peers, key=peers.get, default=None)
        us = statistics.median(s.us for s in own)
        rows.append(
            {
                "case": case.name,
                "op": operation,
                "algo": algorithm,
                "bytes": size,
                "us": rounded(us, 2),
                "p99_us": rounded(median([s.p99_us for s in own]), 2),
                "best_peer": best,
                "best_peer_us": rounded(peers.get(best), 2),
                "ratio": rounded(peers[best] / us, 3) if best and us else None,
                "wire_fraction": rounded(median([s.wire_fraction for s in own]), 4),
                "wrong": sum(s.wrong for s in own),
            }
        )
    return rows


def result_table(rows):
    titles = ["op", "bytes", "algo", "us", "p99 us", "best peer", "its us", "ratio", "% wire", "wrong"]
    lines = [
        [
            row["op"],
            size_text(row["bytes"]),
            row["algo"],
            time_cell(row["us"]),
            time_cell(row["p99_us"]),
            row["best_peer"] or "-",
            time_cell(row["best_peer_us"]),
            cell(row["ratio"], 2),
            percent_cell(row["wire_fraction"]),
            str(row["wrong"]),
        ]
        for row in sorted(rows, key=lambda row: (OPERATIONS.index(row["op"]), row["bytes"], row["algo"]))
    ]
    return table(titles, lines)


def mean_table(rows):
    """Geometric means, a line for each operation."""
    lines = []
    for operation, algorithm, ratios in _ratios(rows):
        means = [operation, algorithm, str(len(ratios)), cell(geometric_mean(ratios), 2), cell(min(ratios), 2)]
        lines.append(means)
    return table(["op", "algo", "sizes", "geometric mean", "worst"], lines) if lines else "No peers.\n"


def _ratios(rows):
    """(operation, algorithm, ratios of its sizes)"""
    for operation in OPERATIONS:
        for algorithm in sorted({row["algo"] for row in rows}):
            here = [row for row in rows if (row["op"], row["algo"]) == (operation, algorithm)]
            ratios = [row["ratio"] for row in here if row["ratio"]]
            if ratios:
                yield operation, algorithm, ratios


def verdicts(rows):
    """A line for each case and operation that was measured with peers."""
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        for operation, algorithm, ratios in _ratios([row for row in rows if row["case"] == case]):
            if algorithm != "auto":
                continue
            mean = geometric_mean(ratios)
            text = f"{case} {operation}: {mean:.2f} times the best peer, geometric mean of {len(ratios)} sizes"
            lines.append(verdict(mean >= GOAL, f"{text} (goal >= {GOAL:g})"))
    return lines
