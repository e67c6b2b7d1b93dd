"""Starting ranks on the nodes of a cluster, and leaving nothing of them behind.

    perf/cluster run --> a parent per node --> pid 1 of a pid namespace of this run --> the node's ranks
          |  control pipe: signal numbers; its end of file kills         ^
          '--------------------------------------------------------------'
          ^  status pipe: "rank exit-code" lines                         |
          '--------------------------------------------------------------'

When the pid 1 ends, for whatever reason, the kernel kills everything in its namespace: grandchildren and daemons too.
It ends when its ranks have, or when `perf/cluster run` is gone (even by SIGKILL), because then its control pipe closes.
"""

import contextlib
import dataclasses
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time

from . import cluster as clusters
from . import namespaces

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SECONDS_TO_OBEY = 5.0  # between a forwarded signal and SIGKILL
# What steers this tool is not meant for the library, which warns about EPCCL_* names it does not know.
_OWN_SETTINGS = ("EPCCL_CLUSTER", "EPCCL_CLUSTER_RUN")


@dataclasses.dataclass
class Options:
    command: list
    timeout: float | None = None  # seconds until everything is killed
    grace: float = 60.0  # seconds that the others have after a rank has failed
    prefix: bool = False  # "[rank] " before each line


def environment(cluster, state, node):
    """What any process on a node sees."""
    result = {name: value for name, value in os.environ.items() if name not in _OWN_SETTINGS}
    result.update(EPCCL_SOCKET_IFNAME="eth0", UCX_NET_DEVICES="eth0", TMPDIR=str(cluster.temporary(node)))
    if state["rate"] != "none":
        result["EPCCL_LINK_RATE"] = state["rate"]
    return result


def parse_layout(text, nodes):
    """ "4" is 4 ranks on every node, "3,5" names each node's."""
    parts = text.split(",")
    counts = [int(part) for part in parts] if all(part.isdecimal() for part in parts) else []
    if len(counts) == 1:
        counts *= nodes
    if len(counts) != nodes or sum(counts) == 0:
        raise ValueError(f"'{text}' does not give a number of ranks for each of {nodes} nodes")
    return counts


def run(cluster, layout, options):
    """Runs the command as sum(layout) ranks, numbered node by node. The exit code is that of the first to fail."""
    state = cluster.description()
    counts = parse_layout(layout, state["nodes"])
    store = tempfile.mkdtemp(prefix="store-", dir=cluster.directory)
    status_reader, status_writer = os.pipe()
    controls, parents, first = [], [], 0
    for node, count in enumerate(counts):
        reader, writer = os.pipe()
        with namespaces.children_in(state["pids"][node]):
            pid = os.fork()
            if pid == 0:
                for descriptor in [*controls, writer, status_reader]:
                    os.close(descriptor)
                job = _NodeJob(cluster, state, node, range(first, first + count), sum(counts), store, options)
                _guarded(lambda: job.isolate(reader, status_writer))
        os.close(reader)
        controls.append(writer)
        parents.append(pid)
        first += count
    os.close(status_writer)
    try:
        return _Watch(controls, status_reader, sum(counts), options).until_done()
    finally:
        for control in controls:
            with contextlib.suppress(OSError):
                os.close(control)
        for pid in parents:
            os.waitpid(pid, 0)
        shutil.rmtree(store, ignore_errors=True)


def _guarded(body):
    try:
        body()
    except BaseException as error:  # a forked child must not return into its parent's code
        sys.stderr.write(f"perf/cluster: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(1)


def describe(code):
    if code > 128:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(code - 128).name}"
    return f"ended with exit code {code}"


class _Watch:
    """The side of `perf/cluster run`: gathers exit codes, passes signals on, keeps deadlines."""

    def __init__(self, controls, status, ranks, options):
        self.controls, self.status, self.ranks, self.options = controls, status, ranks, options
        self.codes, self.result, self.kill_at = {}, 0, None
        self.signalled = False

    def until_done(self):
        if self.options.timeout:
            self.kill_at = time.monotonic() + self.options.timeout
        for number in _FORWARDED:
            signal.signal(number, lambda *_: None)
        wake_reader, wake_writer = os.pipe()
        os.set_blocking(wake_writer, False)
        signal.set_wakeup_fd(wake_writer)
        with selectors.DefaultSelector() as selector:
            selector.register(self.status, selectors.EVENT_READ, self._on_status)
            selector.register(wake_reader, selectors.EVENT_READ, self._on_signal)
            while len(self.codes) < self.ranks:
                patience = None if self.kill_at is None else max(0.0, self.kill_at - time.monotonic())
                events = selector.select(patience)
                if not events and patience is not None:
                    return self._give_up()
                for key, _ in events:
                    if not key.data(os.read(key.fd, 65536)):
                        return self.result or 1
        return self.result

    def _give_up(self):
        late = [str(rank) for rank in range(self.ranks) if rank not in self.codes]
        sys.stderr.write(f"perf/cluster: killing ranks {', '.join(late)}, which have not ended\n")
        return self.result or 124

    def _on_status(self, data):
        for line in data.decode().splitlines():
            rank, code = map(int, line.split())
            self.codes[rank] = code
            if code and not self.signalled:
                sys.stderr.write(f"perf/cluster: rank {rank} {describe(code)}\n")
            if code and not self.result:
                self.result = code
                self._end_within(self.options.grace)
        if not data:
            sys.stderr.write("perf/cluster: the nodes' processes have died\n")
        return bool(data)

    def _on_signal(self, data):
        for number in data:
            if self.signalled:
                return False
            self.signalled = True
            self.result = self.result or 128 + number
            self._end_within(_SECONDS_TO_OBEY)
            for control in self.controls:
                with contextlib.suppress(OSError):
                    os.write(control, bytes([number]))
        return True

    def _end_within(self, seconds):
        deadline = time.monotonic() + seconds
        self.kill_at = deadline if self.kill_at is None else min(self.kill_at, deadline)


@dataclasses.dataclass
class _NodeJob:
    """The side of a node."""

    cluster: clusters.Cluster
    state: dict
    node: int
    ranks: range
    world: int
    store: str
    options: Options

    def isolate(self, control, status):
        """In the parent of a node: joins the node, then lives until the run's pid 1 has ended."""
        for number in _FORWARDED:
            signal.signal(
                number, signal.SIG_IGN
            )  # the terminal's go to `perf/cluster run` alone, which passes them on
        # A process group of its own, but not a session: Linux gives each session its own share of the cores
        # (sched_autogroup), and ranks that yield would yield to their own node only, for milliseconds.
        os.setpgid(0, 0)
        namespaces.set_name("cluster-run")
        namespaces.enter(self.state["pids"][self.node], ["net", "uts", "ipc", "mnt"])
        namespaces.unshare(namespaces.NEWPID | namespaces.NEWNS)
        pid = os.fork()
        if pid == 0:
            _guarded(lambda: self._serve(control, status))
        os.close(control)
        os.close(status)
        os.waitpid(pid, 0)
        os._exit(0)

    def _serve(self, control, status):
        """Pid 1 of the run on this node."""
        clusters.mount_proc(self.cluster.boot_id(self.node))
        wake_reader, wake_writer = os.pipe()
        os.set_blocking(wake_writer, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_writer)
        self.running, self.status, self.outputs = {}, status, {}
        with selectors.DefaultSelector() as self.selector:
            self.selector.register(control, selectors.EVENT_READ, self._on_control)
            self.selector.register(wake_reader, selectors.EVENT_READ, lambda _: self._reap())
            for local, rank in enumerate(self.ranks):
                self._start(rank, local)
            while self.running or self.outputs:
                for key, _ in self.selector.select(None if self.running else 0.5) or self._stop_reading():
                    if key.fd == wake_reader:
                        # Before reaping: a rank that ends between the two would be told of by a byte that is gone.
                        os.read(wake_reader, 4096)
                    key.data(key.fd)
        os._exit(0)

    def _start(self, rank, local):
        own = environment(self.cluster, self.state, self.node)
        own.update(
            EPCCL_RANK=str(rank),
            EPCCL_WORLD_SIZE=str(self.world),
            EPCCL_LOCAL_RANK=str(local),
            EPCCL_STORE=self.store,
        )
        actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
        if self.options.prefix:
            reader, writer = os.pipe()
            actions += [(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_DUP2, writer, 2)]
            self.outputs[reader] = (rank, b"")
            self.selector.register(reader, selectors.EVENT_READ, self._on_output)
        try:
            pid = os.posix_spawnp(
                self.options.command[0],
                self.options.command,
                own,
                file_actions=actions,
                setsigdef=[signal.SIGPIPE, *_FORWARDED],
            )
            self.running[pid] = rank
        except OSError as error:
            sys.stderr.write(f"perf/cluster: cannot start {self.options.command[0]}: {error.strerror}\n")
            self._report(rank, 127)
        if self.options.prefix:
            os.close(writer)

    def _report(self, rank, code):
        os.write(self.status, f"{rank} {code}\n".encode())

    def _on_control(self, descriptor):
        numbers = os.read(descriptor, 64)
        if not numbers:
            os._exit(1)
        for number in numbers:
            for pid in self.running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _reap(self):
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid in self.running:
                    code = os.waitstatus_to_exitcode(status)
                    self._report(self.running.pop(pid), code if code >= 0 else 128 - code)

    def _on_output(self, descriptor):
        data = os.read(descriptor, 65536)
        rank, rest = self.outputs[descriptor]
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        if not data:
            lines += [rest] if rest else []
            self.selector.unregister(descriptor)
            del self.outputs[descriptor]
        else:
            self.outputs[descriptor] = (rank, rest)
        if lines:
            os.write(1, b"".join(b"[%d] %s\n" % (rank, line) for line in lines))

    def _stop_reading(self):
        """The ranks have ended, but something they started keeps their output open: no longer waited for."""
        self.outputs.clear()
        return []


def execute(cluster, node, command):
    """Runs one command on a node with this process's terminal; it is killed when this process is. Its exit code."""
    state = cluster.description()
    if not 0 <= node < state["nodes"]:
        raise ValueError(f"there is no node {node}: the cluster has nodes 0 to {state['nodes'] - 1}")
    pid_of_node = state["pids"][node]
    with namespaces.children_in(pid_of_node):
        child = os.fork()
        if child == 0:

            def become():
                namespaces.die_with_parent(signal.SIGKILL)
                namespaces.enter(pid_of_node, ["net", "uts", "ipc", "mnt"])
                _exec(command, environment(cluster, state, node))

            _guarded(become)
    for number in _FORWARDED:
        signal.signal(number, lambda forwarded, _: os.kill(child, forwarded))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def execute_on_head(cluster, command):
    """Becomes a command on the head: reaches all nodes, unshaped, in the machine's own pid namespace."""
    state = cluster.description()
    namespaces.enter(state["holder"], ["net", "uts", "mnt"])
    own = dict(os.environ, TMPDIR=str(cluster.directory / "head-tmp"))
    _exec(command, own)


def _exec(command, own):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, own)
    except OSError as error:
        sys.stderr.write(f"perf/cluster: cannot start {command[0]}: {error.strerror}\n")
        os._exit(127)
