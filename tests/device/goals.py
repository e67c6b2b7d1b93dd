"""What a GPU's figures are held against: each goal, what was measured for it, and whether it was reached."""

KERNELS = (
    "permute (spread, top-8)",
    "unpermute (sum)",
    "weighted combine",
    "FP8 quantise",
)


def judge(benchmarks):
    """Of the reports of tests/device/run: [{case, goal, measured, reached}]. What was not measured has `reached` None. What ranks that are
    processes reach is told with how the GPU serves them: "time-sliced" (one after the other) or "MPS". A case that failed says why."""
    highest = ceiling(part.get("results") for part in benchmarks)
    found = [_told("the ceiling: the fastest large copy inside the GPU, bytes/s", highest)]
    by_mps = [part for part in benchmarks if part.get("processes") == "MPS"]
    others = [part for part in benchmarks if part.get("processes") != "MPS"]
    kernels = next((part["results"] for part in benchmarks if part["program"] == "bench_kernels" and part.get("results")), {})
    found += _judge_kernels(kernels, highest)
    for parts, how in ((others, "time-sliced"), (by_mps, "MPS")):
        if how == "time-sliced" or any(part.get("results") for part in parts):
            found += _judge_ranks(parts, how, highest)
    return found


def _judge_kernels(kernels, highest):
    scale = _scale(kernels, highest)
    for name in KERNELS:
        kernel = kernels.get(name, {})
        of_copy = kernel.get("of_copy")
        yield _at_least(f"{name}, of the copy's bandwidth", 0.85, None if of_copy is None else of_copy * scale, kernel.get("failed"))


def _judge_ranks(benchmarks, how, highest):
    """Of programs that were served alike."""
    results = {part["program"].removesuffix(", MPS"): part.get("results") for part in benchmarks}
    perf = {
        program.removeprefix("epccl-perf "): result["results"]
        for program, result in results.items()
        if program.startswith("epccl-perf ") and result
    }
    found = []
    for program in ("bench_copies", "bench_collectives"):
        scale = _scale(results.get(program), highest)
        for case in (results.get(program) or {}).get("cases", []):
            name = f"{case['case']} ({how})" if "as processes" in case["case"] else case["case"]
            if "goal" in case:
                measured = case.get("fraction_of_ceiling", case.get("fraction_of_floor"))
                found.append(_at_least(name, case["goal"], None if measured is None else measured * scale, case.get("failed")))
                if "in_a_row_fraction_of_floor" in case:
                    found.append(_at_least(f"{name}, calls in a row", case["goal"], case["in_a_row_fraction_of_floor"] * scale))
            for part in ("p50", "p99"):
                if f"{part}_microseconds" in case:
                    found.append(_told(f"{name}: {part}, us", case[f"{part}_microseconds"]))
            if "made_by" in case:
                found.append(_told(f"{name}: by {case['made_by']}", case["bytes_per_second"]))
    for row in perf.get("moe-deepseek-v3", []):
        name = f"dispatch + combine, deepseek-v3, {row['tokens']} tokens a rank ({how})"
        found.append(_at_least(f"{name}, of the floor", 0.75, floor_fraction(row, highest)))
        found += _split(name, row.get("split"))
    found.append(_at_least(f"static dispatch + combine, 128 tokens ({how}): graph over eager", 1.5, _graph_gain(perf)))
    for name in ("alltoall", "allgather", "reduce_scatter"):
        rows = [row for row in perf.get(f"{name}-overlap", []) if "overlap" in row]
        dilation = {row.get("copy_engine", "auto"): row["overlap"]["dilation"] for row in rows}
        for engine in dilation.keys() - {"never"}:
            found.append(_at_most(f"{name} ({engine}, {how}): dilation of products", 0.03, dilation[engine]))
        found.append(_at_most(f"{name} ({how}): dilation by copy engines over that by compute cores", 0.5, _of_cores(dilation)))
    return found


def ceiling(results):
    """Of all programs of a run that have measured it (copy_ceiling.hpp), the highest: what nothing can exceed. None: none has."""
    measured = [result["copy_ceiling_bytes_per_second"] for result in results if result and "copy_ceiling_bytes_per_second" in result]
    return max(measured, default=None)


def _scale(result, highest):
    """What makes a program's fractions of its own ceiling those of the run's."""
    own = (result or {}).get("copy_ceiling_bytes_per_second")
    return own / highest if own and highest else 1.0


def floor_fraction(row, ceiling):
    """Bytes that a dispatch and a combine have to read and write at least, at the rate of a copy, which reads and writes each byte, over
    the time that they take. `row` of epccl-perf moe; bytes of all ranks, since they share the GPU."""
    if not ceiling or row["type"] != "bfloat16":
        return None
    tokens = row["total_tokens"] * row["hidden"] * 2
    rows = row["dispatch_node_bytes"] + row["dispatch_local_bytes"] + row["network_bytes"]
    return (tokens + rows) / ceiling / ((row["dispatch_us"] + row["combine_us"]) * 1e-6)


def table(goals):
    """Lines for people."""
    words = {True: "reached", False: "NOT REACHED", None: "not measured"}
    return [
        f"{words[goal['reached']]:<13}{goal['case']}: goal {goal['goal']}, measured "
        + ("-" if goal["measured"] is None else f"{goal['measured']:.3g}")
        + (f" (failed: {goal['failed']})" if goal.get("failed") else "")
        for goal in goals
    ]


def _at_least(case, goal, measured, failed=None):
    """`failed`: why it was not measured, where that is known."""
    reached = None if measured is None else measured >= goal
    found = {"case": case, "goal": f">= {goal:.3g}", "measured": measured, "reached": reached}
    return {**found, "failed": failed} if failed else found


def _at_most(case, goal, measured):
    reached = None if measured is None else measured <= goal
    return {"case": case, "goal": f"<= {goal}", "measured": measured, "reached": reached}


def _told(case, measured):
    """What only has to be known."""
    return {"case": case, "goal": "told", "measured": measured, "reached": None if measured is None else True}


def _of_cores(dilation):
    """What products lose beneath engines, as a part of what they lose beneath cores."""
    engines, cores = dilation.get("always"), dilation.get("never")
    return engines / cores if engines is not None and cores is not None and cores > 0 else None


def _split(name, split):
    """A line for the time and each of its parts."""
    parts = ("time", "kernel", "copy", "signal", "host")
    measured = {part: split[f"{part}_us"] if split else None for part in parts}
    return [_told(f"{name}: {part}, us", us) for part, us in measured.items()]


def _graph_gain(perf):
    """Over eager calls that are queued as a graph's are: one behind the other, with one wait for all."""
    eager, graph = perf.get("moe-static"), perf.get("moe-static-graph")
    in_a_row = eager[0].get("in_a_row_us") if eager else None
    return in_a_row / graph[0]["us"] if in_a_row and graph else None
