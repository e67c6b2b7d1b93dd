"""From samples to rows, tables and verdicts."""

import math
import statistics
import subprocess

from .cases import ALGORITHMS, DEFAULT_SIZES, GOALS
from .contestants import PROGRAMS, ROOT


def commit():
    def git(*arguments):
        return subprocess.run(
            ["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False
        ).stdout.strip()

    name = git("rev-parse", "--short=12", "HEAD")
    return (name or "unknown") + ("-modified" if git("status", "--porcelain", "--untracked-files=no") else "")


def _median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def _rounded(value, digits):
    return None if value is None else round(value, digits)


def medians(samples, contestants):
    """{contestant: median of its runs' medians}, of those that always gave right data."""
    result = {}
    for contestant in contestants:
        own = [sample for sample in samples if sample.contestant == contestant]
        if own and not any(sample.wrong for sample in own):
            result[contestant] = statistics.median(sample.us for sample in own)
    return result


def rows_of(case, samples):
    """The rows of compare.json for one case."""
    rows = []
    keys = sorted({(s.operation, s.bytes_per_pair) for s in samples if s.contestant in ALGORITHMS})
    for algorithm in ALGORITHMS:
        for operation, size in keys:
            here = [s for s in samples if s.bytes_per_pair == size]
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
                    "us": _rounded(us, 2),
                    "p99_us": _rounded(_median([sample.p99_us for sample in ours]), 2),
                    "best_peer": best,
                    "best_peer_us": _rounded(peers.get(best), 2),
                    "ratio": _rounded(peers[best] / us, 3) if best and us else None,
                    "hand_made_us": (
                        _rounded(min(hand_made.values(), default=None), 2)
                        if operation == "alltoall"
                        else None
                    ),
                    "wire_fraction": _rounded(_median([sample.wire_fraction for sample in ours]), 4),
                    "wrong": sum(sample.wrong for sample in ours),
                }
            )
    return rows


def size_text(size):
    for unit in ("", "K"):
        if size < 1024:
            return f"{size:g}{unit}"
        size /= 1024
    return f"{size:g}M"


def _cell(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def _time(value):
    return _cell(value, 1 if value is not None and value < 1000 else 0)


def _table(titles, lines):
    """Markdown that is also readable as it is."""
    lines = [titles, *lines]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]

    def text(line):
        return "| " + " | ".join(f"{cell:>{width}}" for cell, width in zip(line, widths)) + " |"

    rule = "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|"
    return "\n".join([text(titles), rule, *map(text, lines[1:])]) + "\n"


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
        wire = None if row["wire_fraction"] is None else 100 * row["wire_fraction"]
        lines.append(
            [
                row["op"],
                size_text(row["bytes_per_pair"]),
                row["algo"],
                _time(row["us"]),
                _time(row["p99_us"]),
                row["best_peer"] or "-",
                _time(row["best_peer_us"]),
                _cell(row["ratio"], 2),
                _time(row["hand_made_us"]),
                _cell(wire, 1),
                str(row["wrong"]),
            ]
        )
    return _table(titles, lines)


def peer_table(samples):
    """Every peer's medians, in microseconds."""
    sizes = sorted({sample.bytes_per_pair for sample in samples})
    lines = []
    for operation in dict.fromkeys(sample.operation for sample in samples):
        for peer in PROGRAMS:
            own = [s for s in samples if s.operation == operation and s.contestant == peer]
            if own:
                cells = [
                    medians([s for s in own if s.bytes_per_pair == size], [peer]).get(peer) for size in sizes
                ]
                lines.append([operation, peer, *map(_time, cells)])
    return _table(["op", "peer (us)", *map(size_text, sizes)], lines) if lines else "No peers.\n"


def _geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


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
                _geometric_mean([value for value, _ in values]),
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
            f"{'reached    ' if reached else 'NOT reached'}  {goal.case} {goal.algorithm}: {value:.2f} "
            f"{_MEASURES[goal.measure]}, {where} (goal {sign} {goal.bound:g})"
        )
    wrong = sum(row["wrong"] for row in rows)
    lines.append(f"wrong data: {wrong} elements" if wrong else "no wrong data")
    return "\n".join(lines) + "\n"
