"""CUDA tensors through PyTorch, whose ranks are processes that share the GPU: programs of tests/multiprocess/torch."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
import programs

TESTS = machine.ROOT / "tests" / "multiprocess" / "torch"
RANKS = 4
SECONDS_TO_BUILD = 240
#: What fails there is seen once.
WORDS = {"EPCCL_DEBUG": "WARN", "NCCL_DEBUG": "WARN"}
#: (program, environment, whether libepccl-nccl stands in front of NVIDIA's library)
PROGRAMS = [("cuda_tensors", {"TEST_GPU": "real"}, False), ("moe", {"TEST_DEVICE": "cuda"}, False), ("ddp", {"TEST_DEVICE": "cuda"}, False),
            ("nccl_backend", {}, True), ("moe", {"TEST_DEVICE": "cuda", "TEST_BACKEND": "nccl"}, True)]


def name_of(program, variables, _):
    return f"torch {program}" + (f", {variables['TEST_BACKEND']}" if "TEST_BACKEND" in variables else "")


class Torch:
    """A Python with PyTorch, and the backend built for it. In an archive it is built here: begin() does that beside what runs meanwhile."""

    def __init__(self, folder):
        self._folder = folder  # of the build, or the archive's
        self._package = folder / "bindings" / "torch"
        self._python, self.why, self._built, self._says, self._has_failed = None, "", None, None, False

    def begin(self):
        if not machine.PREBUILT.is_dir():
            asked = subprocess.run([machine.ROOT / "bindings/torch/get_pytorch", "--find"], capture_output=True, text=True)
            self._python, self.why = (asked.stdout.strip(), "") if asked.returncode == 0 else (None, asked.stderr.strip())
            if self._python and not (self._package / "epccl_torch").is_dir():
                self._python, self.why = None, "bindings/torch was not built"
            return
        self._python = shutil.which("python3") or sys.executable
        known = subprocess.run([self._python, "-c", "import torch"], capture_output=True, text=True)
        if known.returncode != 0:
            self._python, self.why = None, f"no PyTorch: {known.stderr[-300:]}"
            return
        self._says = tempfile.TemporaryFile("w+")
        build = ["setup.py", "-q", "build", "--build-lib", self._package, "--build-temp", f"{self._package}.objects"]
        self._built = subprocess.Popen([self._python, *build], cwd=machine.ROOT / "bindings" / "torch", start_new_session=True,
                                       preexec_fn=machine.end_with_parent,
                                       env={**os.environ, "EPCCL_LIB": str(self._library("libepccl.so"))},
                                       stdin=subprocess.DEVNULL, stdout=self._says, stderr=self._says)

    def close(self):
        """Ends a build that goes on."""
        if self._built is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._built.pid, signal.SIGKILL)
        self._built.wait()
        self._built = None

    def python(self, runner):
        """None: there is none, and `why`."""
        if self._built is None:
            return self._python
        until = min(time.monotonic() + SECONDS_TO_BUILD, runner.ends_at)
        while (code := self._built.poll()) is None and time.monotonic() < until and not runner.time_is_over():
            time.sleep(0.1)
        self.close()
        if code != 0:
            self._says.seek(0)
            self._python, self.why, self._has_failed = None, f"bindings/torch could not be built: {self._says.read()[-1500:]}", code is not None
        return self._python

    def run(self, runner, program, variables, preloaded, more_environment):
        report = {"program": name_of(program, variables, preloaded)}
        python = self.python(runner)
        if python is None:
            return {**report, "state": "failed" if self._has_failed else "skipped", "why": self.why}
        shim = self._library("libepccl-nccl.so")
        if preloaded and not shim.exists():
            return {**report, "state": "skipped", "why": "libepccl-nccl was not built"}
        variables = {**WORDS, **more_environment, **variables, "EPCCL_LIB": str(self._library("libepccl.so")),
                     "PYTHONPATH": f"{machine.ROOT / 'bindings/python'}:{self._package}"}
        in_front = ["env", f"LD_PRELOAD={shim}"] if preloaded else []
        ended = runner.run([TESTS / "with_store", self._folder / "bin" / "epccl-run", "-n", RANKS, *in_front, python, TESTS / f"{program}.py"],
                           runner.share(programs.SECONDS_PER_TEST), variables, silence=2 * runner.patience())  # PyTorch has to be loaded
        is_cut_short = ended.is_late and runner.is_limited()
        state = "cut short" if is_cut_short else "failed" if ended.code else "passed"
        says = [line for line in ended.output.split("\n") if " passed on " in line or "losses" in line or "as over gloo" in line]
        return {**report, "state": state, "exit_code": ended.code, "seconds": ended.seconds, "says": says[:12],
                "end_of_output": programs.end_of(ended.output) if ended.code else ""}

    def _library(self, name):
        return Path(self._folder / "lib" / name)
