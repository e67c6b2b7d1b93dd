"""EPCCL as a backend of torch.distributed, for tensors of the CPU and of CUDA devices.

    torch.distributed.init_process_group("epccl")

Where the package is installed, torch.distributed finds it by the name; ``import epccl_torch`` makes it known everywhere. See docs/pytorch.md.
"""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.util
import os
import threading
import warnings

import torch
import torch.distributed

# Loads libepccl.so by the package's own rule (EPCCL_LIB, beside it, the system's); the extension then uses that one.
import epccl

from epccl import __version__

if not torch.distributed.is_available():
    raise ImportError("epccl_torch: this PyTorch was built without torch.distributed")

_BUILD_AGAIN = "build it again (pip install --no-build-isolation ./bindings/torch)"
try:
    from . import _C  # noqa: E402
except ImportError as failure:
    raise ImportError(f"epccl_torch: its extension does not fit PyTorch {torch.__version__}: {_BUILD_AGAIN}: {failure}") from failure

if _C.built_for.split(".")[:2] != torch.__version__.split(".")[:2]:
    raise ImportError(f"epccl_torch was built for PyTorch {_C.built_for}, this is {torch.__version__}: {_BUILD_AGAIN}")


def _check_options(options, given):
    """What a program gives as pg_options is for another backend of the group, or says what is said already."""
    if given is None:
        return
    if not isinstance(given, torch._C._distributed_c10d.Backend.Options):
        raise TypeError(f"epccl: pg_options is {given!r}: this backend has no options of its own")
    group = getattr(options, "process_group", None)
    if given.backend != "epccl":
        # The same ones go to all backends of a group, as of "cpu:epccl,cuda:nccl", which is called by that of its GPUs.
        if group is not None and group.name() != given.backend:
            raise TypeError(f"epccl: pg_options are those of the backend {given.backend}: this one has no options of its own")
    elif given._timeout != options.timeout:
        raise ValueError(f"epccl: pg_options has a timeout of {given._timeout}, the group's is {options.timeout}: give it as timeout=")


def _create(options, backend_options=None):
    """What init_process_group and new_group call."""
    _check_options(options, backend_options)
    _leave_at_end_of_forked()
    return _C.create(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout.total_seconds(),
        list(options.global_ranks_in_group),
        options.group_id or "default",
    )


#: The process whose end _leave_at_end_of_forked() has seen to.
_sees_to_end_of = None
_LAST_FINALIZER = -1_000_000


def _leave_at_end_of_forked() -> None:
    """A child that multiprocessing has forked ends by os._exit(): without exit functions, nor the library's end. Its finalizers are run; what was
    registered before the fork is dropped there, so this is called when a group is made."""
    global _sees_to_end_of
    if multiprocessing.parent_process() is None or multiprocessing.get_start_method(allow_none=True) == "spawn":
        return
    if _sees_to_end_of != os.getpid():
        _sees_to_end_of = os.getpid()
        multiprocessing.util.Finalize(None, _end_of_forked, exitpriority=_LAST_FINALIZER)


def _end_of_forked() -> None:
    threading._shutdown()  # as multiprocessing does next: the program's threads may still make calls
    _C.process_ends()


def register() -> None:
    """Makes the backend known to torch.distributed, once."""
    if not hasattr(torch.distributed.Backend, "EPCCL"):
        torch.distributed.Backend.register_backend("epccl", _create, extended_api=True, devices=["cpu", "cuda"])


#: One of these is there where a driver of NVIDIA's is: of Linux, of WSL, of a Jetson.
_DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl")


def _may_use_gpus() -> bool:
    """Whether the program can come to use a GPU. Asks no driver, which would then be this process's and not its children's."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    return torch.version.cuda is not None and not hidden and any(map(os.path.exists, _DRIVER_FILES))


def _load_kernels_eagerly() -> None:
    """A kernel that is loaded when first launched waits in the driver for the GPU, which may be waiting for a call: the thread that makes the
    call may then get into the driver no more."""
    if not _may_use_gpus():
        return
    if not torch.cuda.is_initialized():
        os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    if os.environ.get("CUDA_MODULE_LOADING") != "EAGER":
        warnings.warn(
            "epccl_torch: CUDA loads kernels when they are first launched, which may wait for a call of EPCCL that waits for it: set "
            "CUDA_MODULE_LOADING=EAGER, or import epccl_torch before CUDA is initialised (docs/pytorch.md)",
            stacklevel=2,
        )


register()
_load_kernels_eagerly()
atexit.register(_C.program_ends)

__all__ = ["register", "__version__"]
