"""Runs one program after the other, and says what became of each: what tests/device/run reports."""

import contextlib
import fnmatch
import json
import os
import re
import select
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import machine
import stacks

SKIPPED = 77
#: For what runs kernels one after the other.
NO_WAITING_KERNELS = {"EPCCL_CUDA_SIGNALS": "driver"}
SECONDS_PER_TEST, SECONDS_PER_BENCHMARK = 600, 360  # a program each
SECONDS_OF_SILENCE = 120  # in which a program of tests hangs,
SECONDS_WHERE_TIME_IS_SHORT = 45  # with --minutes: more than the library's own time-outs
MOST_STARTS = 8  # of a program of tests that crashes or hangs again and again
SECONDS_TO_LIST = 60  # the tests of a program
LEAST_SECONDS = 20  # with less left nothing begins


@dataclass
class Ended:
    """How a program ended."""

    code: int
    output: str
    seconds: float
    is_late: bool = False  # it was ended: its time was over,
    is_silent: bool = False  # or it said nothing for too long


class _EndsNow(BaseException):
    """In the main thread, where a program is waited for."""


class Runner:
    """Runs programs within the time that a machine is there for."""

    def __init__(self, minutes=None):
        self.log = []
        self._waits = False
        self.ends_at = time.monotonic() + 60 * minutes if minutes else float("inf")

    def is_limited(self):
        return self.ends_at != float("inf")

    def patience(self):
        """How long a program of tests may say nothing."""
        return SECONDS_WHERE_TIME_IS_SHORT if self.is_limited() else SECONDS_OF_SILENCE

    def share(self, seconds):
        """Of a program that may take so long: what hangs takes at most half of the time that is left."""
        return min(seconds, max((self.ends_at - time.monotonic()) / 2, LEAST_SECONDS))

    def time_is_over(self, margin=2):
        return time.monotonic() >= self.ends_at - margin

    def end_now(self):
        """In a handler of a signal: the time is over, also of the program that runs."""
        self.ends_at = time.monotonic()
        if self._waits:
            raise _EndsNow

    def run(self, words, seconds, more_environment=None, silence=float("inf")):
        """One that is late, or silent for that long, is ended with all the ranks that it has started: they would spoil what follows."""
        words = [str(word) for word in words]
        try:
            program = subprocess.Popen(words, env={**machine.environment(), **(more_environment or {})}, start_new_session=True,
                                       preexec_fn=machine.end_with_parent, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except OSError as why:
            ended = Ended(127, str(why), 0.0)
        else:
            begin = time.monotonic()
            ended = self._watch(program, begin, max(min(begin + seconds, self.ends_at), begin + 1), silence)
        self.log.append(f"\n== {' '.join(words)}\n{ended.output}")
        return ended

    def _watch(self, program, begin, until, silence):
        said, heard_at, open_, is_silent = bytearray(), begin, True, False
        try:
            self._waits = True
            while open_ and (now := time.monotonic()) < until:
                # Also when that time has passed while this process did not run: something may have been said meanwhile.
                if select.select([program.stdout], [], [], max(min(until, heard_at + silence) - now, 0))[0]:
                    piece = os.read(program.stdout.fileno(), 1 << 16)
                    said += piece
                    heard_at, open_ = time.monotonic(), bool(piece)
                elif time.monotonic() >= heard_at + silence:
                    is_silent = True
                    said += stacks.of_all(program.pid, self.ends_at).encode()
                    break
            if not open_:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program.wait(max(until - time.monotonic(), 1))
            self._waits = False
        except _EndsNow:
            until = self.ends_at
        finally:  # also where this program is ended itself
            self._waits = False
            was_over = program.poll() is not None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            program.stdout.close()
        ended = Ended(program.returncode, said.decode(errors="replace"), round(time.monotonic() - begin, 2))
        if not was_over:
            ended.code, ended.is_late, ended.is_silent = 124, not is_silent, is_silent
            what = "it said nothing any more" if ended.is_silent else "its time was over"
            ended.output += f"\n(ended after {ended.seconds:.0f} s: {what})\n"
        return ended


def missing(program):
    return {"program": program.name, "state": "skipped", "why": "it was not built"}


def end_of(output):
    return output[-2000:]


_CASE = re.compile(r"\[ +(RUN|OK|FAILED|SKIPPED) +\] ([\w/]+\.[\w/]+)")
_STATES = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}


def read_cases(output):
    """Of what a program of GoogleTest said: the state of each test, and which one it was in at its end."""
    states, running = {}, None
    for word, name in _CASE.findall(output):
        if word == "RUN":
            running = name
        else:
            states[name] = _STATES[word]
            running = None if running == name else running
    return states, running


def _names_of(runner, program, which):
    """Of the tests that a filter of GoogleTest names, as the program lists them."""
    ended = runner.run([program, "--gtest_color=no", "--gtest_list_tests", *which], runner.share(SECONDS_TO_LIST))
    names, suite = [], ""
    for line in ended.output.split("\n"):
        word = line.split("#")[0].strip()
        if line.startswith("  ") and word:
            names.append(suite + word)
        elif word.endswith("."):
            suite = word
    return names


@dataclass(frozen=True)
class Shard:
    """Of the tests that one of `names` matches (patterns with `*`) every `count`-th from the `index`-th on: what several runs divide among
    themselves."""

    index: int = 0
    count: int = 1
    names: tuple = ("*",)

    def is_all(self):
        return self.count == 1 and self.names == ("*",)

    def of(self, tests):
        return [test for test in tests if any(fnmatch.fnmatchcase(test, name) for name in self.names)][self.index::self.count]


def run_test(runner, program, more_environment=None, only="", without="", shard=Shard()):
    """A test that crashes or hangs has failed, and the program goes on behind it: there may be no second time on such a machine.
    `only`, `without`: patterns of GoogleTest, with colons between them; of these tests those of the shard."""
    if not program.exists():
        return missing(program)
    if not shard.is_all():
        which = [f"--gtest_filter={only}{'-' if without else ''}{without}"] if only or without else []
        names = shard.of(_names_of(runner, program, which))
        if not names:
            return {"program": program.name, "state": "skipped", "why": "none of its tests is of this part"}
        only, without = ":".join(names), ""
    cases, seconds, output, why = {}, 0.0, "", ""
    for _ in range(MOST_STARTS):
        share = runner.share(SECONDS_PER_TEST - seconds)
        but = ":".join(filter(None, [without, *cases]))
        which = [f"--gtest_filter={only}{'-' if but else ''}{but}"] if only or but else []
        ended = runner.run([program, "--gtest_color=no", *which], share, more_environment, silence=runner.patience())
        seconds, output = seconds + ended.seconds, output + ended.output
        found, running = read_cases(ended.output)
        cases |= found
        if ended.is_late:
            why = f"its time was over in {running}"
        if ended.is_late or running is None:
            break
        cases[running] = "hung" if ended.is_silent else f"crashed ({ended.code})"
    else:
        why = f"the rest was not run: {MOST_STARTS} tests crashed or hung"
    failures = {name: state for name, state in cases.items() if state not in ("passed", "skipped")}
    counts = {state: list(cases.values()).count(state) for state in ("passed", "skipped")}
    is_cut_short = ended.is_late and runner.is_limited() and not failures
    state = "cut short" if is_cut_short else "failed" if failures or ended.code != 0 else "passed" if counts["passed"] else "skipped"
    report = {"program": program.name, "state": state, "exit_code": ended.code, "seconds": round(seconds, 2), **counts,
              "failed": len(failures), "failures": failures, "end_of_output": end_of(output) if state == "failed" else ""}
    return {**report, "why": why} if why else report


def joined(first, second):
    """Of one program's tests in two runs."""
    states = [part["state"] for part in (first, second)]
    order = ("failed", "cut short", "passed", "skipped")
    report = {**second, **first, "state": min(states, key=order.index), "seconds": round(first.get("seconds", 0) + second.get("seconds", 0), 2)}
    for count in ("passed", "skipped", "failed"):
        report[count] = first.get(count, 0) + second.get(count, 0)
    report["failures"] = {**first.get("failures", {}), **second.get("failures", {})}
    report["end_of_output"] = "\n".join(filter(None, (part.get("end_of_output") for part in (first, second))))
    return report


def run_sanitizer(runner, program, tests):
    name = f"compute-sanitizer {program.name}"
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(sanitizer).exists():
        return {"program": name, "state": "skipped", "why": "not installed"}
    if not program.exists():
        return {**missing(program), "program": name}
    # Ranks are processes that the program forks.
    ended = runner.run([sanitizer, "--tool", "memcheck", "--target-processes", "all", "--error-exitcode", "9", program,
                        f"--gtest_filter={tests}"], SECONDS_PER_TEST, NO_WAITING_KERNELS, silence=runner.patience())
    if "Device not supported" in ended.output or "not supported on" in ended.output:
        return {"program": name, "state": "skipped", "why": "it does not support this machine"}
    if ended.code == 0 and "ERROR SUMMARY: 0 errors" not in ended.output:
        return {"program": name, "state": "skipped", "why": "it saw nothing of the GPU's work"}
    why = {"why": f"it hung in {read_cases(ended.output)[1]}"} if ended.is_silent else {}
    return {**why, "program": name, "state": "passed" if ended.code == 0 else "failed", "exit_code": ended.code,
            "seconds": ended.seconds, "end_of_output": end_of(ended.output) if ended.code else ""}


def _take_results(file, report, output):
    """What a program has written into its file; the end of its output, where it failed or wrote none."""
    with contextlib.suppress(OSError, ValueError):  # it may have been ended while it wrote
        report["results"] = json.loads(file.read_text())
    file.unlink(missing_ok=True)
    if report["state"] == "failed" or "results" not in report:
        report["end_of_output"] = end_of(output)
    return report


def _run_and_describe(runner, words, results, more_environment):
    """With what explains figures that are low: the GPU's clocks before it and after, and how many connections a process had."""
    results.unlink(missing_ok=True)  # those of a run that was ended
    before = machine.sm_clocks()
    ended = runner.run(words, SECONDS_PER_BENCHMARK, more_environment)
    connections = {**machine.environment(), **(more_environment or {})}["CUDA_DEVICE_MAX_CONNECTIONS"]
    return ended, {"sm_clocks": [before, machine.sm_clocks()], "connections": connections}


def run_benchmark(runner, program, arguments, out, more_environment=None):
    if not program.exists():
        return missing(program)
    results = out / f"{program.name}.json"
    ended, described = _run_and_describe(runner, [program, results, *arguments], results, more_environment)
    state = "measured" if ended.code == 0 else "skipped" if ended.code == SKIPPED else "failed"
    report = {"program": program.name, "exit_code": ended.code, "seconds": ended.seconds, "state": state, **described}
    return _take_results(results, report, ended.output)


def run_probe(runner, program, out):
    """Facts of the driver: those that are as nobody would wish are named in the report's summary."""
    report = run_benchmark(runner, program, [], out)
    facts = (report.get("results") or {}).get("calls", [])[1:] + (report.get("results") or {}).get("channels", [])
    report["says"] = [fact["says"] for fact in facts if _is_notable(fact)]
    return report


def _is_notable(fact):
    harms = ("waits", "never_returns", "other_threads_wait", "other_streams_stand_still", "no_answer")
    return any(fact.get(harm) for harm in harms) or any(fact.get("stuck", {}).values())


def run_collective(runner, folder, name, ranks, arguments, out, more_environment=None):
    """Of epccl-perf, which checks its results itself."""
    results = out / f"perf-{name}.json"
    calls = [] if "-n" in arguments else ["-n", "30"]
    words = [folder / "epccl-run", "-n", ranks, folder / "epccl-perf", *arguments, *calls, "--device", "cuda", "--ranks-per-gpu", ranks,
             "-J", results]
    ended, described = _run_and_describe(runner, words, results, more_environment)
    report = {"program": f"epccl-perf {name}", "exit_code": ended.code, "seconds": ended.seconds,
              "state": "measured" if ended.code == 0 else "failed", **described}
    if "matrix products need cuBLAS" in ended.output:
        report |= {"state": "skipped", "why": "no cuBLAS"}
    return _take_results(results, report, ended.output)


def run_first_kernel(runner, program):
    """Whether a kernel of this build runs here at all."""
    if not program.exists():
        return {**missing(program), "program": "one kernel"}
    ended = runner.run([program, "--gtest_filter=GraphHostCalls.AreCountedAndNamedWhenTheyCome"], 90, {"EPCCL_DEBUG": "INFO"})
    said = [line for line in ended.output.split("\n") if "EPCCL" in line or "epccl" in line or "GPU" in line]
    ran = ended.code == 0 and "[  PASSED  ] 1 test" in ended.output
    return {"program": "one kernel", "state": "passed" if ran else "failed", "seconds": ended.seconds, "says": said[:12]}
