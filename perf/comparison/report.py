"""alltoall and alltoallv: from samples to rows, tables and verdicts."""

import statistics

from .cases import ALGORITHMS, DEFAULT_SIZES, GOALS
from .contestants import PROGRAMS
from .figures import cell, geometric_mean, median, medians, percent_cell, rounded, size_text, table, time_cell, verdict


def rows_of(case, samples):
    """The rows of compare.json for one case."""
    rows = []
    keys = sorted({(s.operation, s.size) for s in samples if s.contestant in ALGORITHMS})
    for algorithm in ALGORITHMS:
        for operation, size in keys:
            here = [s for s in samples if s.size == size]
            ours = [s for s in here if s.contestant == algorithm and s.operation == operation]
            if not ours:
                continue
            peers = medians([s for s in here if s.operation == operation], PROGRAMS)
            hand_made = medians([s for s in here if s.operation == "twostage"], PROGRAMS)
            best = min(peers, key=peers.get, default=None)
            us = statistics.median(sample.us for sample in ours)
            rows.append(
                {
                    "case": case.name,
                    "op": operation,
                    "algo": algorithm,
                    "bytes_per_pair": size,
                    "us": rounded(us, 2),
                    "p99_us": rounded(median([sample.p99_us for sample in ours]), 2),
                    "best_peer": best,
                    "best_peer_us": rounded(peers.get(best), 2),
                    "ratio": rounded(peers[best] / us, 3) if best and us else None,
                    "hand_made_us": (
                        rounded(min(hand_made.values(), default=None), 2)
                        if operation == "alltoall"
                        else None
                    ),
                    "wire_fraction": rounded(median([sample.wire_fraction for sample in ours]), 4),
                    "wrong": sum(sample.wrong for sample in ours),
                }
            )
    return rows


def result_table(rows):
    titles = [
        "op",
        "bytes/pair",
        "algo",
        "us",
        "p99 us",
        "best peer",
        "its us",
        "ratio",
        "hand-made us",
        "% wire",
        "wrong",
    ]
    lines = []
    for row in sorted(
        rows, key=lambda row: (row["op"], row["bytes_per_pair"], ALGORITHMS.index(row["algo"]))
    ):
        lines.append(
            [
                row["op"],
                size_text(row["bytes_per_pair"]),
                row["algo"],
                time_cell(row["us"]),
                time_cell(row["p99_us"]),
                row["best_peer"] or "-",
                time_cell(row["best_peer_us"]),
                cell(row["ratio"], 2),
                time_cell(row["hand_made_us"]),
                percent_cell(row["wire_fraction"]),
                str(row["wrong"]),
            ]
        )
    return table(titles, lines)


def peer_table(samples):
    """Every peer's medians, in microseconds."""
    sizes = sorted({sample.size for sample in samples})
    lines = []
    for operation in dict.fromkeys(sample.operation for sample in samples):
        for peer in PROGRAMS:
            own = [s for s in samples if s.operation == operation and s.contestant == peer]
            if own:
                cells = [medians([s for s in own if s.size == size], [peer]).get(peer) for size in sizes]
                lines.append([operation, peer, *map(time_cell, cells)])
    return table(["op", "peer (us)", *map(size_text, sizes)], lines) if lines else "No peers.\n"


_MEASURES = {
    "ratio": "times the best peer",
    "hand_made": "times the hand-made two-stage exchange",
    "wire": "of the wire's payload rate",
    "p99": "p99 over median",
}


def verdicts(rows):
    """A line per goal for which there are rows."""
    lines = []
    for goal in GOALS:
        if isinstance(goal.over, int):
            smallest = largest = goal.over
        else:
            smallest, largest = DEFAULT_SIZES[goal.case]
        key = (goal.case, goal.operation, goal.algorithm)
        chosen = [row for row in rows if (row["case"], row["op"], row["algo"]) == key]
        chosen = [row for row in chosen if smallest <= row["bytes_per_pair"] <= largest]
        values = [(goal.value_of(row), row["bytes_per_pair"]) for row in chosen if goal.value_of(row)]
        if not values:
            continue
        if goal.over == "mean":
            value, where = (
                geometric_mean([value for value, _ in values]),
                f"geometric mean of {len(values)} sizes",
            )
        else:
            value, size = (max if goal.upper else min)(values)
            where = f"at {size_text(size)}" + (
                f", the worst of {len(values)} sizes" if goal.over == "each" else ""
            )
        reached = value <= goal.bound if goal.upper else value >= goal.bound
        sign = "<=" if goal.upper else ">="
        lines.append(
            verdict(
                reached,
                f"{goal.case} {goal.algorithm}: {value:.2f} {_MEASURES[goal.measure]}, {where} "
                f"(goal {sign} {goal.bound:g})",
            )
        )
    return lines
