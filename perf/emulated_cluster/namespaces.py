"""The few system calls about namespaces and mounts that Python 3.11 does not have."""

import contextlib
import ctypes
import os

NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE, _MNT_DETACH = 4096, 16384, 1 << 18, 2
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def unshare(flags):
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def set_hostname(name):
    encoded = name.encode()
    _check(_libc.sethostname(encoded, len(encoded)), f"sethostname({name})")


def mount(source, target, kind):
    _check(_libc.mount(source.encode(), target.encode(), kind.encode(), 0, None), f"mount {kind} on {target}")


def bind_mount(source, target):
    _check(_libc.mount(source.encode(), target.encode(), None, _MS_BIND, None), f"bind {source} to {target}")


def make_mounts_private():
    _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "make mounts private")


def remount_sysfs():
    """/sys/class/net shows the network namespace that mounted it; UCX and hwloc list devices there."""
    _libc.umount2(b"/sys", _MNT_DETACH)
    mount("sysfs", "/sys", "sysfs")


def die_with_parent(signal_number):
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def adopt_orphans(adopt=True):
    """Whether descendants whose parent ends become children of this process instead of init's."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def set_name(name):
    """What ps and top show; at most 15 characters."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def enter(pid, kinds):
    """Joins namespaces of a process. Joining "pid" concerns children only. Keeps the working directory by its name."""
    directory = os.getcwd()
    descriptors = [(kind, os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)) for kind in kinds]
    for kind, descriptor in descriptors:
        _check(_libc.setns(descriptor, 0), f"setns({kind} of {pid})")
        os.close(descriptor)
    if "mnt" in kinds:
        with contextlib.suppress(OSError):
            os.chdir(directory)


@contextlib.contextmanager
def children_in(pid=None):
    """Inside this block children are born in the pid namespace of `pid`, or in a new one each time it is entered."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if pid is None:
            unshare(NEWPID)
        else:
            enter(pid, ["pid"])
        yield
    finally:
        _check(_libc.setns(own, 0), "setns(own pid namespace)")
        os.close(own)
