"""moe: from samples to rows, tables and verdicts."""

from .contestants import PROGRAMS
from .figures import cell, median, medians, percent_cell, rounded, table, time_cell, verdict
from .moe_cases import AUTO_GOAL, OVERLAP_GOALS, RATIO_GOALS, STRATEGIES
from .moe_contestants import MoeSample

_OWN_BFLOAT16 = "own bfloat16 dispatch"  # in place of a peer, where the dispatch is in FP8


def rows_of(case, samples):
    """The rows of compare.json for one case."""
    ours = [s for s in samples if isinstance(s, MoeSample)]
    rows = []
    for strategy in STRATEGIES:
        own = [s for s in ours if s.contestant == strategy and s.fp8 == case.workload.fp8]
        if not own:
            continue
        best, best_us, ratio = _best_peer(case, samples, own)
        rows.append(
            {
                "case": case.name,
                "op": "moe",
                "algo": strategy,
                "bytes_per_pair": None,
                "tokens": case.workload.tokens,
                "us": rounded(_median_of(own, "us"), 2),
                "p99_us": rounded(_median_of(own, "p99_us"), 2),
                "dispatch_us": rounded(_median_of(own, "dispatch_us"), 2),
                "combine_us": rounded(_median_of(own, "combine_us"), 2),
                "layout_us": rounded(_median_of(own, "layout_us"), 2),
                "best_peer": best,
                "best_peer_us": rounded(best_us, 2),
                "ratio": rounded(ratio, 3),
                "hand_made_us": None,
                "wire_fraction": rounded(_median_of(own, "wire_fraction"), 4),
                "network_bytes_as_routed": all(s.network_bytes == s.expected_network_bytes for s in own),
                "wrong": sum(s.wrong for s in own),
            }
        )
        if case.workload.overlap:
            rows[-1] |= _overlap_of([s.overlap for s in own])
            if sockets := [s.sockets for s in own if s.sockets]:
                rows[-1]["sockets"] = _overlap_of(sockets)
    return rows


_OVERLAP_TIMES = ("communication_us", "compute_us", "overlapped_us", "exposed_us")
_OVERLAP_FRACTIONS = ("exposed_fraction", "dilation", "background_fraction", "fraction_of_ideal")


def _overlap_of(overlaps):
    digits = dict.fromkeys(_OVERLAP_TIMES, 2) | dict.fromkeys(_OVERLAP_FRACTIONS, 4)
    return {name: rounded(median([each[name] for each in overlaps]), digits[name]) for name in digits}


def _median_of(samples, field):
    return median([getattr(s, field) for s in samples])


def _best_peer(case, samples, own):
    """(name, its time, how many times ours that is); for FP8 the dispatch of the same strategy in bfloat16."""
    if case.workload.fp8:
        same = [s for s in _in_bfloat16(samples) if s.contestant == own[0].contestant and not s.wrong]
        best, best_us, us = _OWN_BFLOAT16, _median_of(same, "dispatch_us"), _median_of(own, "dispatch_us")
    else:
        peers = medians(samples, PROGRAMS)
        best = min(peers, key=peers.get, default=None)
        best_us, us = peers.get(best), _median_of(own, "us")
    return (best, best_us, best_us / us) if best_us and us else (None, None, None)


def _in_bfloat16(samples):
    return [s for s in samples if isinstance(s, MoeSample) and not s.fp8]


def result_table(rows):
    times = ["us", "p99_us", "dispatch_us", "combine_us", "layout_us"]
    titles = ["algo", *(name.replace("_", " ") for name in times)]
    titles += ["best peer", "its us", "ratio", "% wire", "wrong"]
    lines = [
        [
            row["algo"],
            *(time_cell(row[name]) for name in times),
            row["best_peer"] or "-",
            time_cell(row["best_peer_us"]),
            cell(row["ratio"], 2),
            percent_cell(row["wire_fraction"]),
            str(row["wrong"]),
        ]
        for row in rows
    ]
    return table(titles, lines)


def overlap_table(rows):
    titles = ["algo", *(name.removesuffix("_us") + " us" for name in _OVERLAP_TIMES)]
    titles += ["exposed %", "dilation %", "cpu %", "% of ideal", "wrong"]
    lines = []
    for row in rows:
        lines.append(_overlap_line(row["algo"], row, str(row["wrong"])))
        if "sockets" in row:
            lines.append(_overlap_line("bare sockets", row["sockets"], "-"))
    return table(titles, lines) + (
        "\nMatrix products on the calling thread, 1.2 times as long as the calls alone, which go on beneath them.\n"
        "exposed: the time of both, less that of the compute alone; in % of the calls alone, as cpu: core time of the\n"
        "library's background. bare sockets: as many bytes by one TCP socket, in the same iterations; what the kernel\n"
        "takes from the products by itself.\n"
    )


def _overlap_line(name, times, wrong):
    return [
        name,
        *(time_cell(times[each]) for each in _OVERLAP_TIMES),
        *(cell(100 * times[each], 2) for each in _OVERLAP_FRACTIONS),
        wrong,
    ]


def other_table(case, samples):
    """What the rows are compared with."""
    if case.workload.fp8:
        return _bfloat16_table(_in_bfloat16(samples))
    lines = [
        [peer, time_cell(us), time_cell(_median_of([s for s in samples if s.contestant == peer], "p99_us"))]
        for peer, us in medians(samples, PROGRAMS).items()
    ]
    if not lines:
        return "No peers.\n"
    return table(["peer", "us", "p99 us"], lines) + (
        f"\nPeers: alltoallv there and back, one copy of a token per {case.copies}. They do not pay for packing and\n"
        "exchanging counts, which is done beforehand, nor for adding up what comes back.\n"
    )


def _bfloat16_table(samples):
    lines = [
        [strategy, *(time_cell(_median_of(own, field)) for field in ("us", "dispatch_us", "combine_us"))]
        for strategy in STRATEGIES
        if (own := [s for s in samples if s.contestant == strategy])
    ]
    return table(["our own in bfloat16", "us", "dispatch us", "combine us"], lines)


def verdicts(rows):
    return byte_verdicts(rows) + goal_verdicts(rows)


def byte_verdicts(rows):
    """A line for each case: do the network's bytes, as the library counts them, follow from the routing in every run?"""
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        others = [row["algo"] for row in rows if row["case"] == case and not row["network_bytes_as_routed"]]
        but = f", not so with {', '.join(others)}" if others else ""
        lines.append(verdict(not others, f"{case}: network bytes are those of the routing{but}"))
    return lines


def goal_verdicts(rows):
    """A line per goal for which there are rows."""
    lines = []
    for row in [row for row in rows if row["algo"] == "auto"]:
        bound = RATIO_GOALS.get(row["case"])
        if bound and row["ratio"]:
            than = "our own bfloat16 dispatch" if row["best_peer"] == _OWN_BFLOAT16 else "the best peer"
            text = f"{row['case']} auto: {row['ratio']:.2f} times {than} (goal >= {bound:g})"
            lines.append(verdict(row["ratio"] >= bound, text))
        for name, most in OVERLAP_GOALS.get(row["case"], {}).items():
            what = {"exposed_fraction": "of the communication exposed", "dilation": "of dilation"}[name]
            text = f"{row['case']} auto: {100 * row[name]:.2f} % {what} (goal <= {100 * most:g} %)"
            # Nothing is faster for what goes on beside it: so far below 0 the noise is larger than what is measured.
            noisy = row[name] < -most
            lines.append(verdict(row[name] <= most and not noisy, text + ("; lost in noise" if noisy else "")))
        forced = [r for r in rows if r["case"] == row["case"] and r["algo"] != "auto"]
        right = [r for r in forced if not r["wrong"]]
        if right and len(forced) == len(STRATEGIES) - 1:
            best = min(right, key=lambda r: r["us"])
            loss = row["us"] / best["us"]
            text = f"{row['case']} auto: {loss:.3f} of the best forced strategy's time ({best['algo']}) "
            lines.append(verdict(loss <= AUTO_GOAL, f"{text}(goal <= {AUTO_GOAL:g})"))
    return lines
