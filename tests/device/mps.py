"""A daemon of NVIDIA's MPS of one's own: what it serves, a GPU does at the same time, where processes else take turns. It has its own folders
for pipes and logs, so nothing of the machine changes."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import machine

CONTROL = "nvidia-cuda-mps-control"
#: For a program that no daemon is to serve: there is none in that folder.
NONE = {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
SECONDS_TO_START, SECONDS_TO_END = 20, 20


class Server:
    """Until stop(), or the end of this program."""

    def __init__(self, control):
        # Short, since there are sockets in it.
        self._folder = Path(tempfile.mkdtemp(prefix="mps", dir="/tmp"))
        self._control = control
        pipe, log = self._folder / "pipe", self._folder / "log"
        pipe.mkdir()
        log.mkdir()
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(log),
                            "CUDA_DEVICE_MAX_CONNECTIONS": machine.CONNECTIONS_OF_A_CLIENT}
        with open(self._folder / "says", "w") as says:
            self._daemon = subprocess.Popen([control, "-f"], env=self._env(), stdin=subprocess.DEVNULL, stdout=says, stderr=says,
                                            preexec_fn=lambda: machine.end_with_parent(signal.SIGTERM))

    def why_not(self):
        """Waits until it serves; empty, or why it does not."""
        until = time.monotonic() + SECONDS_TO_START
        while not (self._folder / "pipe" / "control").exists():
            if self._daemon.poll() is not None or time.monotonic() >= until:
                return f"{CONTROL} did not start: {self._says()}"
            time.sleep(0.1)
        if machine.is_served_by_mps(self.environment):
            return ""
        return f"it does not serve a program: {self._says()}"

    def stop(self):
        servers = [int(word) for word in self._ask("get_server_list").split() if word.isdigit()]
        self._ask("quit")
        for end in (lambda: None, self._daemon.terminate, self._daemon.kill):
            end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._daemon.wait(SECONDS_TO_END)
                break
        for server in servers:  # they end with the daemon, or were stuck
            with contextlib.suppress(OSError):
                if "mps" in Path(f"/proc/{server}/comm").read_text():
                    os.kill(server, signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _env(self):
        return {**machine.environment(), **self.environment}

    def _ask(self, command):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run([self._control], input=f"{command}\n", env=self._env(), capture_output=True, text=True, timeout=SECONDS_TO_END)
            return done.stdout
        return ""

    def _says(self):
        files = [self._folder / "says", *sorted((self._folder / "log").glob("*"))]
        return " ".join(" ".join(file.read_text(errors="replace").split())[-300:] for file in files) or "nothing"


def start():
    """A server and "", or None and why there is none."""
    control = shutil.which(CONTROL)
    if control is None:
        return None, f"{CONTROL} is not installed"
    server = Server(control)
    why = server.why_not()
    if why:
        server.stop()
        return None, why
    return server, ""
