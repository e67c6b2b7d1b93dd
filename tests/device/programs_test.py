"""How tests/device/run deals with programs that crash, hang, or cannot start."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import machine
import mps
import programs
import stacks

# A program of GoogleTest with these tests, as far as its filter lets them: what `run` knows of one is what it says.
GTEST = r"""#!/bin/bash
filter=
for word; do [[ $word != --gtest_filter=-* ]] || filter=:${word#--gtest_filter=-}:; done
code=0
says() { printf '[ %8s ] %s\n' "$@"; }
for test in good/Ranks.Move/0 bad/Ranks.Move/1 away/Ranks.Move/2 HARM/Ranks.Move/3 last/Ranks.Move/4; do
    how=${test%%/*} name=${test#*/}
    [[ $filter != *:$name:* ]] || continue
    says RUN "$name"
    case $how in
    good | last) says OK "$name (1 ms)" ;;
    bad) says FAILED "$name, where GetParam() = 1 (1 ms)"; code=1 ;;
    away) says SKIPPED "$name (0 ms)" ;;
    crash) kill -SEGV $$ ;;
    hang) sleep 1000 ;;
    esac
done
[[ $code = 0 ]] || printf '[  FAILED  ] 1 test, listed below:\n[  FAILED  ] Ranks.Move/1, where GetParam() = 1\n'
exit $code
"""


class Programs(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)

    def program(self, text, name="program"):
        made = self.folder / name
        made.write_text(text)
        made.chmod(0o755)
        return made

    def put_tool(self, name, script):
        """Where programs are looked for, while the test runs."""
        tools = self.folder / "bin"
        if not tools.exists():
            tools.mkdir()
            before = os.environ["PATH"]
            self.addCleanup(os.environ.__setitem__, "PATH", before)
            os.environ["PATH"] = f"{tools}:{before}"
        self.program(f"#!/bin/bash\n{script}\n", f"bin/{name}")

    def wait_for(self, fact):
        until = time.monotonic() + 60
        while not fact():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)

    def wait_until_over(self, pid):
        """What was killed takes a moment to end, and may be there until somebody asks how it did."""
        state = Path(f"/proc/{pid}/stat")

        def is_over():
            try:
                return state.read_text().split(") ")[1][0] in "ZX"
            except OSError:
                return True

        until = time.monotonic() + 10
        while not is_over() and time.monotonic() < until:
            time.sleep(0.05)
        self.assertTrue(is_over())

    def report_of(self, harm, minutes=None):
        return programs.run_test(programs.Runner(minutes), self.program(GTEST.replace("HARM", harm)))

    def test_what_is_behind_a_crash_is_run_all_the_same(self):
        report = self.report_of("crash")
        self.assertEqual(report["state"], "failed")
        self.assertEqual(report["failures"], {"Ranks.Move/1": "failed", "Ranks.Move/3": "crashed (-11)"})
        self.assertEqual((report["passed"], report["skipped"], report["failed"]), (2, 1, 2))

    def test_a_test_that_hangs_is_named_and_ended(self):
        silence, programs.SECONDS_OF_SILENCE = programs.SECONDS_OF_SILENCE, 15
        self.addCleanup(setattr, programs, "SECONDS_OF_SILENCE", silence)
        report = self.report_of("hang")
        self.assertEqual(report["failures"], {"Ranks.Move/1": "failed", "Ranks.Move/3": "hung"})
        self.assertEqual(report["passed"], 2)

    def test_a_program_that_ends_well_has_passed(self):
        report = self.report_of("good")
        self.assertEqual((report["state"], report["passed"]), ("failed", 3))
        passing = self.program("#!/bin/bash\necho '[       OK ] A.B (1 ms)'\n")
        self.assertEqual(programs.run_test(programs.Runner(), passing)["state"], "passed")
        self.assertEqual(programs.run_test(programs.Runner(), self.program("#!/bin/bash\n"))["state"], "skipped")
        self.assertEqual(programs.run_test(programs.Runner(), self.folder / "none")["why"], "it was not built")

    def test_a_program_is_run_with_kernels_that_are_loaded_late_too(self):
        lazy = {"CUDA_MODULE_LOADING": "LAZY"}
        says = "#!/bin/bash\necho \"[ RUN      ] It.${CUDA_MODULE_LOADING}_is_set\"; echo \"[       OK ] It.${CUDA_MODULE_LOADING}_is_set (0 ms)\"\n"
        for wish, expected in ((lazy, "LAZY"), (None, "EAGER")):
            runner = programs.Runner()
            with mock.patch.dict(os.environ):
                os.environ.pop("CUDA_MODULE_LOADING", None)
                report = programs.run_test(runner, self.program(says), wish)
            self.assertEqual(report["passed"], 1)
            self.assertIn(f"It.{expected}_is_set", runner.log[0])

    def test_runs_that_divide_the_tests_among_themselves_leave_none_out(self):
        lists = """#!/bin/bash
names='A.1 A.2 B/Of.3/0 B/Of.3/1 B/Of.Dies/0' filter=
for word; do case $word in --gtest_list_tests) list=1 ;; --gtest_filter=*) filter=${word#--gtest_filter=} ;; esac; done
if [[ ${list-} ]]; then
    printf 'Running main()\\nA.\\n  1\\n  2\\nB/Of.\\n  3/0  # GetParam() = 4\\n  3/1  # GetParam() = 8\\n'
    [[ $filter = *-*Dies* ]] || printf '  Dies/0  # GetParam() = 4\\n'
    exit
fi
for name in ${filter//:/ }; do printf '[ RUN      ] %s\\n[       OK ] %s (1 ms)\\n' "$name" "$name"; done
"""
        program = self.program(lists)

        def passed(without, shard):
            runner = programs.Runner()
            report = programs.run_test(runner, program, without=without, shard=shard)
            return report["state"], programs.read_cases(runner.log[-1])[0].keys()

        all_of_them = [passed("", programs.Shard(index, 2)) for index in range(2)]
        self.assertEqual(all_of_them, [("passed", {"A.1", "B/Of.3/0", "B/Of.Dies/0"}), ("passed", {"A.2", "B/Of.3/1"})])
        self.assertEqual(passed("*Dies*", programs.Shard(0, 2)), ("passed", {"A.1", "B/Of.3/0"}))
        self.assertEqual(passed("", programs.Shard(7, 8))[0], "skipped")
        self.assertEqual(passed("*Dies*", programs.Shard(0, 1, ("A.2", "B/Of.*"))), ("passed", {"A.2", "B/Of.3/0", "B/Of.3/1"}))
        self.assertEqual(passed("", programs.Shard(0, 1, ("C.*",)))[0], "skipped")

    def test_a_program_that_cannot_start_has_failed(self):
        report = programs.run_test(programs.Runner(), self.program("#!/bin/bash\necho 'version not found' >&2; exit 127\n"))
        self.assertEqual((report["state"], report["failures"]), ("failed", {}))
        self.assertIn("version not found", report["end_of_output"])

    def test_what_the_end_of_the_time_cuts_short_has_not_failed(self):
        slow = "#!/bin/bash\necho '[ RUN      ] A.B'; sleep 1000\n"
        runner = programs.Runner(minutes=1)
        runner.ends_at = time.monotonic() + 15
        report = programs.run_test(runner, self.program(slow))
        self.assertEqual((report["state"], report["why"]), ("cut short", "its time was over in A.B"))

    def test_all_that_a_late_program_has_started_ends_with_it(self):
        started = self.folder / "pid"
        program = self.program(f"#!/bin/bash\nsleep 1000 & echo $! >{started}; echo started; wait\n")
        ended = programs.Runner().run([program], 600, silence=15)
        self.assertTrue(ended.is_silent)
        self.assertEqual(ended.code, 124)
        self.wait_until_over(int(started.read_text()))

    def test_a_signal_ends_the_program_that_runs_and_keeps_what_it_has_measured(self):
        begun, out = self.folder / "begun", self.folder
        program = self.program(f'#!/bin/bash\necho \'{{"cases": [1]}}\' >$1; touch {begun}; sleep 1000\n')
        runner = programs.Runner()
        before = signal.signal(signal.SIGTERM, lambda *_: runner.end_now())
        self.addCleanup(signal.signal, signal.SIGTERM, before)

        def end_when_begun():
            self.wait_for(begun.exists)
            os.kill(os.getpid(), signal.SIGTERM)

        sender = threading.Thread(target=end_when_begun)
        sender.start()
        report = programs.run_benchmark(runner, program, [], out)
        sender.join()
        self.assertEqual((report["state"], report["exit_code"], report["results"]), ("failed", 124, {"cases": [1]}))
        self.assertTrue(runner.time_is_over())

    def test_a_program_ends_with_whoever_runs_it(self):
        started = self.folder / "pid"
        program = self.program(f"#!/bin/bash\necho $$ >{started}; echo started; sleep 1000\n")
        run = f"import programs; programs.Runner().run([{str(program)!r}], 600)"
        runs = subprocess.Popen([sys.executable, "-c", run], cwd=Path(__file__).parent)
        self.wait_for(lambda: started.exists() and started.read_text().strip())
        runs.kill()
        runs.wait()
        self.wait_until_over(int(started.read_text()))

    def test_results_of_an_earlier_run_are_not_this_one_s(self):
        (self.folder / "program.json").write_text('{"cases": [1]}')
        report = programs.run_benchmark(programs.Runner(), self.program("#!/bin/bash\nexit 1\n"), [], self.folder)
        self.assertEqual((report["state"], "results" in report), ("failed", False))

    def test_a_sanitizer_that_saw_nothing_has_not_passed(self):
        tested = self.program("")

        def said(text, code=0):
            self.put_tool("compute-sanitizer", f"echo '{text}'; exit {code}")
            return programs.run_sanitizer(programs.Runner(), tested, "*")["state"]

        self.assertEqual(said("========= ERROR SUMMARY: 0 errors"), "passed")
        self.assertEqual(said("========= ERROR SUMMARY: 2 errors", 9), "failed")
        self.assertEqual(said("========= Target application terminated before first instrumented API call"), "skipped")

    def test_a_sanitizer_that_says_nothing_any_more_is_ended_and_the_test_named(self):
        silence, programs.SECONDS_OF_SILENCE = programs.SECONDS_OF_SILENCE, 15
        self.addCleanup(setattr, programs, "SECONDS_OF_SILENCE", silence)
        self.put_tool("compute-sanitizer", "echo '[ RUN      ] Ranks.Move'; sleep 1000")
        report = programs.run_sanitizer(programs.Runner(), self.program(""), "*")
        self.assertEqual((report["state"], report["why"]), ("failed", "it hung in Ranks.Move"))

    def test_facts_of_the_driver_that_do_harm_are_named(self):
        control = {"says": "control", "waits": True}
        harmless = {"says": "a", "waits": False, "other_threads_wait": False}
        facts = [{"says": "b", "waits": True}, {"says": "c", "no_answer": "it died"}]
        channels = [{"says": "d", "stuck": {"kernels": 0}}, {"says": "e", "stuck": {"kernels": 0, "posts": 2}}]
        results = json.dumps({"calls": [control, harmless, *facts], "channels": channels})
        report = programs.run_probe(programs.Runner(), self.program(f"#!/bin/bash\necho '{results}' >$1\n"), self.folder)
        self.assertEqual((report["state"], report["says"]), ("measured", ["b", "c", "e"]))
        report = programs.run_probe(programs.Runner(), self.program("#!/bin/bash\nexit 1\n"), self.folder)
        self.assertEqual((report["state"], report["says"]), ("failed", []))

    def test_a_benchmark_has_the_clocks_of_before_and_after(self):
        program = self.program(f"#!/bin/bash\necho 1980 MHz >{self.folder}/clock; echo '{{}}' >$1\n")
        (self.folder / "clock").write_text("345 MHz")
        self.put_tool("nvidia-smi", f"cat {self.folder}/clock")
        report = programs.run_benchmark(programs.Runner(), program, [], self.folder)
        self.assertEqual(report["sm_clocks"], ["345 MHz", "1980 MHz"])

    def test_a_benchmark_says_how_many_connections_it_had(self):
        program = self.program("#!/bin/bash\necho \"{\\\"had\\\": $CUDA_DEVICE_MAX_CONNECTIONS}\" >$1\n")
        report = programs.run_benchmark(programs.Runner(), program, [], self.folder, {"CUDA_DEVICE_MAX_CONNECTIONS": "8"})
        self.assertEqual((report["results"], report["connections"]), ({"had": 8}, "8"))

    def test_half_of_a_file_of_results_is_none(self):
        program = self.program('#!/bin/bash\necho \'{"cases": [\' >"$1"; echo measuring; exit 1\n')
        report = programs.run_benchmark(programs.Runner(), program, [], self.folder)
        self.assertEqual(report["state"], "failed")
        self.assertNotIn("results", report)
        self.assertIn("measuring", report["end_of_output"])
        program = self.program('#!/bin/bash\necho \'{"cases": []}\' >"$1"\n')
        self.assertEqual(programs.run_benchmark(programs.Runner(), program, [], self.folder)["results"], {"cases": []})


class Stacks(unittest.TestCase):
    def test_are_of_what_was_started_in_groups_of_its_own_too(self):
        started = subprocess.Popen(["bash", "-c", "setsid sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(started.stdout.close)
        self.addCleanup(started.wait)
        self.addCleanup(started.kill)
        rank = int(started.stdout.readline())
        self.addCleanup(os.kill, rank, signal.SIGKILL)
        self.assertEqual(sorted(stacks.started_by(started.pid)), sorted([started.pid, rank]))


# As NVIDIA's: a daemon in the foreground, or, without arguments, what asks it.
MPS_CONTROL = r"""
pid=$CUDA_MPS_PIPE_DIRECTORY/pid
if [[ ${1-} = -f ]]; then
    echo $$ >"$pid"; echo "serves from $CUDA_MPS_LOG_DIRECTORY"; START
    touch "$CUDA_MPS_PIPE_DIRECTORY/control"; trap QUIT TERM; while true; do sleep 0.1; done
fi
[[ $(cat) != quit ]] || kill "$(cat "$pid")"
"""


class Mps(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.bin = Path(made.name)
        path = mock.patch.dict(os.environ, PATH=f"{self.bin}:{os.environ['PATH']}")
        for patch in (mock.patch.object(mps, "SECONDS_TO_END", 2), mock.patch.object(mps, "SECONDS_TO_START", 20), path):
            patch.start()
            self.addCleanup(patch.stop)

    def install(self, start="", quit="'exit 0'"):
        control = self.bin / mps.CONTROL
        control.write_text("#!/bin/bash\n" + MPS_CONTROL.replace("START", start).replace("QUIT", quit))
        control.chmod(0o755)

    def started(self, serves=True):
        with mock.patch.object(machine, "is_served_by_mps", lambda environment: serves and set(environment)):
            return mps.start()

    def expect_a_server_that_ends(self):
        server, why = self.started()
        self.assertEqual(why, "")
        # 32 each would be more than a server has for all of its clients.
        self.assertEqual(server.environment["CUDA_DEVICE_MAX_CONNECTIONS"], "8")
        pipe = Path(server.environment["CUDA_MPS_PIPE_DIRECTORY"])
        daemon = int((pipe / "pid").read_text())
        server.stop()
        self.assertFalse(Path(f"/proc/{daemon}").exists())
        self.assertFalse(pipe.exists())

    def test_a_daemon_has_folders_of_its_own_and_ends(self):
        self.install()
        self.expect_a_server_that_ends()

    def test_a_daemon_that_does_not_end_is_ended(self):
        self.install(quit="'true'")
        self.expect_a_server_that_ends()

    def test_what_is_missing_is_said(self):
        with mock.patch.dict(os.environ, PATH=str(self.bin)):
            self.assertEqual(self.started(), (None, f"{mps.CONTROL} is not installed"))
        self.install(start="echo no permission; exit 1")
        self.assertIn("no permission", self.started()[1])
        self.install()
        server, why = self.started(serves=False)
        self.assertIsNone(server)
        self.assertIn("it does not serve a program: serves from /tmp/mps", why)


class KeptOpen(unittest.TestCase):
    def test_a_driver_that_does_not_open_is_no_reason_to_stop(self):
        with machine.kept_open() as is_open:
            self.assertIs(is_open, bool(machine.find_gpus_apart()[0]))


class Libraries(unittest.TestCase):
    """Where an archive's programs find theirs."""

    def chosen(self, says):
        """`says`: what the loader says of each program, given the folders that it looks into."""
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        folder = Path(made.name)
        (folder / "bin").mkdir()
        for program in says:
            (folder / "bin" / program).touch()
        with mock.patch.object(machine, "loader_says", lambda program, path: says[program.name](path)):
            folders, lacking = machine.choose_libraries(folder)
        return [Path(each).name for each in folders], lacking

    def test_the_systems_compiler_libraries_are_preferred(self):
        self.assertEqual(self.chosen({"run": lambda path: "libstdc++.so.6 => /lib/libstdc++.so.6"}), (["lib"], ""))

    def test_the_archives_are_taken_where_any_program_wants_newer_ones(self):
        wants = {"old": lambda path: "", "new": lambda path: "" if "/runtime" in path else "version `GLIBCXX_3.4.30' not found"}
        self.assertEqual(self.chosen(wants), (["lib", "runtime"], ""))

    def test_what_is_lacking_all_the_same_is_named(self):
        self.assertEqual(self.chosen({"new": lambda path: "version `GLIBC_2.99' not found"})[1], "new: version `GLIBC_2.99' not found")

    def test_the_drivers_library_may_be_missing(self):
        self.assertEqual(self.chosen({"run": lambda path: "libcuda.so.1 => not found"}), (["lib"], ""))


if __name__ == "__main__":
    unittest.main()
