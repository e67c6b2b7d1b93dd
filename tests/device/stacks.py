"""Where the processes of a program stand that says nothing any more."""

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

SECONDS_EACH, MOST_PROCESSES = 15, 3  # time on such a machine is short
# Those of PyTorch alone would take longer.
NO_SYMBOLS = ["-iex", "set auto-solib-add off"]
SOME_SYMBOLS = ["-ex", r"sharedlibrary \(libepccl\|libcuda\|libc\.so\|libc10_cuda\|libpthread\|libstdc\)"]


def _debugger():
    """CUDA's reads programs without GPU code, too."""
    found = [shutil.which("gdb"), shutil.which("cuda-gdb"), "/usr/local/cuda/bin/cuda-gdb"]
    return next((path for path in found if path and Path(path).exists()), None)


def started_by(leader):
    """It and what it has started, also in groups of its own, as a launcher does: the last ones first, which are the ranks."""
    parents = {}
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    found = [leader]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return sorted(found, reverse=True)


def of_all(leader, ends_at=float("inf")):
    """In words: of its last processes, the stack of each thread; or why there is none. Not of all of them where the time is over before."""
    said = []
    for pid in started_by(leader)[:MOST_PROCESSES]:
        if time.monotonic() + SECONDS_EACH > ends_at:
            break
        said.append(f"\n==== process {pid}: {_words(pid)}\n{_stack(pid)}\n")
    return "".join(said)


def _words(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:200]
    return "(gone)"


def _stack(pid):
    debugger = _debugger()
    if debugger is None:
        return "no stack: there is no gdb"
    try:
        done = subprocess.run([debugger, "-nx", "-batch", *NO_SYMBOLS, "-p", str(pid), *SOME_SYMBOLS, "-ex", "thread apply all bt"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=SECONDS_EACH)
    except (OSError, subprocess.SubprocessError) as why:
        return f"no stack: {why}"
    return done.stdout
