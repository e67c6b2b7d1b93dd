"""Bringing a cluster up and down.

    perf/cluster up --fork--> holder (the head: own net, uts and mount namespaces; stays)
                                 |--fork--> pid 1 of node 0 (own net, uts, ipc, mount and pid namespaces)
                                 |--fork--> pid 1 of node 1 ...

A node dies with its pid 1, a pid 1 dies with the holder, and the namespaces with their devices die with the last
process in them. So ending a cluster, in whatever state, is ending one process; nothing has a name outside.
"""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import sys
import traceback
import uuid
from pathlib import Path

from . import namespaces, network, processes


class ClusterError(Exception):
    """For people; `code` is the exit code it deserves."""

    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code


UNABLE = 3  # exit code: this machine, or this user, cannot have an emulated cluster
MARK = ".epccl-cluster"  # the file by which a directory is known for a cluster's state


class Cluster:
    """The state of one cluster, in a private directory."""

    def __init__(self, name, directory):
        self.name = name
        self.directory = Path(directory)

    # ---- state ----------------------------------------------------------------------------------------------------
    @property
    def hosts(self):
        return self.directory / "hosts"

    def temporary(self, node):
        return self.directory / network.node_name(node) / "tmp"

    def boot_id(self, node):
        return self.directory / network.node_name(node) / "boot_id"

    def _read(self, file):
        try:
            return (self.directory / file).read_text()
        except FileNotFoundError:
            return ""

    def _write(self, file, text):
        temporary = self.directory / f".{file}.{os.getpid()}"
        temporary.write_text(text)
        temporary.rename(self.directory / file)

    def holder(self):
        """Process number of the holder while it is alive, else None."""
        name = self._read("holder")
        return processes.pid_of(name) if name else None

    def description(self):
        """{"nodes", "rate", "holder", "pids"} of a cluster that is up."""
        text = self._read("state.json")
        if not text or not self.holder():
            raise ClusterError(f"cluster '{self.name}' is not up: perf/cluster up NODES RATE")
        state = json.loads(text)
        return {
            "nodes": len(state["nodes"]),
            "rate": state["rate"],
            "holder": self.holder(),
            "pids": [int(name.partition(":")[0]) for name in state["nodes"]],
        }

    def _make_directory(self):
        self.remove_directory()  # of a cluster that died
        try:
            self.directory.mkdir(mode=0o700)
            (self.directory / MARK).touch()
        except OSError as error:
            raise ClusterError(f"cannot make {self.directory}: {error.strerror}", UNABLE) from None

    def remove_directory(self):
        """Only one that has the mark, which goes last, or is empty: a directory that is somebody's own stays."""
        mark = self.directory / MARK
        try:
            if mark.exists():
                for entry in os.scandir(self.directory):
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
                    elif entry.name != MARK:
                        Path(entry.path).unlink(missing_ok=True)
                if os.listdir(self.directory) == [MARK]:
                    mark.unlink(missing_ok=True)
            self.directory.rmdir()
        except FileNotFoundError:
            pass  # never there, or the holder has removed it meanwhile
        except OSError as error:
            why = "" if mark.exists() else f"; it has no {MARK}, so it may not be a cluster's"
            raise ClusterError(f"cannot remove {self.directory}: {error.strerror}{why}") from None

    @contextlib.contextmanager
    def _locked(self):
        """One up, rate or down at a time."""
        path = f"{self.directory}.lock"
        while True:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), os.stat(path)):
                    break
            os.close(lock)  # its last owner removed it while we waited
        try:
            yield
        finally:
            os.unlink(path)
            os.close(lock)

    # ---- up -------------------------------------------------------------------------------------------------------
    def up(self, nodes, rate, until=None):
        """Returns when every node answers. With `until`, the cluster goes down by itself when that process ends."""
        check_ability()
        try:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ClusterError(f"cannot make {self.directory.parent}: {error.strerror}", UNABLE) from None
        with self._locked():
            if self.holder():
                raise ClusterError(f"cluster '{self.name}' is already up: perf/cluster down first")
            self._make_directory()
            self.hosts.write_text(network.hosts_file(nodes))
            for node in range(nodes):
                self.temporary(node).mkdir(parents=True)
                self.boot_id(node).write_text(f"{uuid.uuid4()}\n")
            (self.directory / "head-tmp").mkdir()
            self._start_holder(nodes, rate, until)

    def _start_holder(self, nodes, rate, until):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _run_child(lambda: _hold(self, nodes, rate, until, writer), writer)
        os.close(writer)
        try:
            self._write("holder", processes.identity(pid) or "")
            with os.fdopen(reader) as pipe:
                answer = pipe.read()
            if answer != "up":
                raise ClusterError(
                    f"cannot build the cluster here: {answer.strip() or 'its holder died'}", UNABLE
                )
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            with contextlib.suppress(ClusterError):
                self.remove_directory()
            raise

    # ---- what a cluster that is up can do -------------------------------------------------------------------------
    def set_rate(self, rate):
        with self._locked():
            state = self.description()
            _in_namespace(state["holder"], ["net"], lambda: network.shape_head(state["nodes"], rate))
            for pid in state["pids"]:
                _in_namespace(pid, ["net"], lambda: network.shape_node(rate))
            saved = json.loads(self._read("state.json"))
            self._write("state.json", json.dumps({**saved, "rate": rate}))

    def clean(self):
        """Ends every process in the nodes except their first ones."""
        for node, pid in enumerate(self.description()["pids"]):
            if not processes.kill_all(lambda: processes.on_network_of(pid)):
                raise ClusterError(f"{network.node_name(node)}: some processes cannot be killed")

    def down(self):
        """Idempotent; also after an `up` that was interrupted."""
        if not self.directory.parent.exists():
            return  # nothing was ever up below it
        with self._locked():
            saved = json.loads(self._read("state.json") or '{"nodes": []}')
            holder = self.holder()
            waiting = list(saved["nodes"])
            if holder:
                waiting.append(processes.identity(holder))
                inside = [
                    process
                    for pid in processes.descendants(holder)
                    for process in [pid, *processes.on_network_of(pid)]
                ]
                waiting += filter(None, map(processes.identity, inside))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(holder, signal.SIGKILL)
            gone = processes.wait_gone(waiting)
            self.remove_directory()
            if not gone:
                raise ClusterError(
                    f"cluster '{self.name}': some of its processes ({', '.join(waiting)}) do not end"
                )


def check_ability():
    if os.geteuid() != 0:
        raise ClusterError("an emulated cluster needs root (network namespaces)", UNABLE)
    missing = [tool for tool in ("ip", "tc") if not shutil.which(tool)]
    if missing:
        raise ClusterError(
            f"an emulated cluster needs {' and '.join(missing)}: apt-get install iproute2", UNABLE
        )


def _run_child(body, writer):
    """The rest of a forked process: `body`, or its error as text into the pipe or socket. Never returns."""
    try:
        body()
    except OSError as error:
        os.write(writer, str(error).encode())
    except BaseException:
        os.write(writer, traceback.format_exc().encode())
    finally:
        os._exit(1)


def _in_namespace(pid, kinds, body):
    """Runs `body` in a child that has joined namespaces of `pid`."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:

        def enter_and_run():
            namespaces.enter(pid, kinds)
            body()

        _run_child(enter_and_run, writer)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        error = pipe.read()
    os.waitpid(child, 0)
    if error:
        raise ClusterError(error)


# ---- the holder -----------------------------------------------------------------------------------------------------
def _detach(keep, log):
    """Lets go of the caller's terminal and descriptors: who waits for our caller's output must not wait for us."""
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, null), (1, output), (2, output)):
        os.dup2(source, target)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor != keep:
            with contextlib.suppress(OSError):  # listdir's own
                os.close(descriptor)


def _hold(cluster, nodes, rate, until, ready):
    """Builds the cluster, says so through `ready`, and stays until killed, or until process `until` ends."""
    _detach(ready, cluster.directory / "log")
    namespaces.set_name("cluster-head")
    watched = os.pidfd_open(until) if until else None
    namespaces.unshare(namespaces.NEWNET | namespaces.NEWUTS | namespaces.NEWNS)
    namespaces.make_mounts_private()
    namespaces.set_hostname("head")
    namespaces.remount_sysfs()
    namespaces.bind_mount(str(cluster.hosts), "/etc/hosts")
    network.build_switch()
    lines, pids = [], []
    for node in range(nodes):
        ours, theirs = socket.socketpair()
        with namespaces.children_in():
            pid = os.fork()
            if pid == 0:
                ours.close()
                os.close(ready)
                _run_child(lambda: _node(cluster, node, rate, theirs), theirs.fileno())
        theirs.close()
        lines.append(ours)
        pids.append(pid)
    for line in lines:
        _expect(line, b"isolated")
    network.connect_nodes(pids)
    network.shape_head(nodes, rate)
    for line in lines:
        line.sendall(b"connected")
    for line in lines:
        _expect(line, b"ready")
    names = [processes.identity(pid) for pid in pids]
    cluster._write("state.json", json.dumps({"nodes": names, "rate": rate}))
    os.write(ready, b"up")
    os.close(ready)
    if watched is None:
        while True:
            signal.pause()
    select.select([watched], [], [])
    cluster.remove_directory()
    os._exit(0)


def _expect(line, word):
    got = line.recv(65536)
    if got != word:
        raise OSError(got.decode() or "a node's first process died")


def _node(cluster, node, rate, line):
    """Pid 1 of a node: own hostname, /proc, /dev/shm and boot id, so that libraries take the node for a host."""
    namespaces.die_with_parent(signal.SIGKILL)
    namespaces.set_name(f"cluster-{network.node_name(node)}")
    namespaces.unshare(namespaces.NEWNET | namespaces.NEWUTS | namespaces.NEWIPC | namespaces.NEWNS)
    namespaces.set_hostname(network.node_name(node))
    mount_proc(cluster.boot_id(node))
    namespaces.remount_sysfs()
    namespaces.mount("tmpfs", "/dev/shm", "tmpfs")
    line.sendall(b"isolated")
    if line.recv(64) != b"connected":
        return
    network.configure_node(node, rate)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    line.sendall(b"ready")
    line.close()
    while True:  # reap orphans
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        signal.sigtimedwait({signal.SIGCHLD}, 3600)


def mount_proc(boot_id):
    """In a fresh pid and mount namespace: its own /proc, with the node's boot id in it."""
    namespaces.mount("proc", "/proc", "proc")
    namespaces.bind_mount(str(boot_id), "/proc/sys/kernel/random/boot_id")


def status(cluster, out=sys.stdout):
    """Prints nodes, addresses, identities and queues."""
    state = cluster.description()
    out.write(
        f"cluster {cluster.name}: {state['nodes']} nodes, links {state['rate']}, state in {cluster.directory}\n"
    )
    for node, pid in enumerate(state["pids"]):
        below = len(processes.on_network_of(pid))
        out.write(
            f"{network.node_name(node)} {network.address(node)} pid {pid} boot_id "
            f"{cluster.boot_id(node).read_text().strip()} processes {below}\n"
        )
