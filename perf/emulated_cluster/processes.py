"""Which processes there are, and ending those that somebody started."""

import contextlib
import os
import signal
import time


def _stat(pid):
    """Fields of /proc/PID/stat from the third on: state, parent, ...; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def identity(pid):
    """A name for the process that no later process with the same number shares; None when it is gone or a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else f"{pid}:{fields[19]}"


def pid_of(name):
    """The number of a process named by identity(), while it is alive; else None."""
    pid = int(name.partition(":")[0])
    return pid if identity(pid) == name else None


def descendants(root):
    """Numbers of all processes below `root`, without itself, children before grandchildren."""
    children = {}
    for entry in os.listdir("/proc"):
        fields = _stat(entry) if entry.isdigit() else None
        if fields:
            children.setdefault(int(fields[1]), []).append(int(entry))
    found = list(children.get(root, []))
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def on_network_of(pid):
    """All processes in the network namespace of `pid` (which must not be the machine's own), without itself."""

    def network(process):
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{process}/ns/net")

    wanted = network(pid)
    if wanted is None or wanted == network("self"):
        return []
    return [
        int(entry)
        for entry in os.listdir("/proc")
        if entry.isdigit() and int(entry) != pid and network(entry) == wanted
    ]


def kill_all(find, seconds=5.0):
    """SIGKILLs what find() returns until it finds nothing alive (more may be born meanwhile). True when clean."""
    deadline = time.monotonic() + seconds
    while True:
        alive = [pid for pid in find() if identity(pid)]
        if not alive:
            return True
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)


def wait_gone(identities, seconds=5.0):
    """Waits until none of the identities is alive. True when all are gone."""
    deadline = time.monotonic() + seconds
    while any(pid_of(name) for name in identities):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
