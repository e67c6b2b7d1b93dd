"""Memory that every rank of a node can map."""

from __future__ import annotations

import ctypes
import errno
import math
import operator
import os
import weakref
from typing import TYPE_CHECKING, Any, Sequence, SupportsIndex, cast

from ._library import call
from .errors import InvalidUsage, Result

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


def _free(address: int) -> None:
    call("epcclMemFree", address)


def _is_of_host(address: int) -> bool:
    """Asks the system, which says so where a program would crash."""
    reader, writer = os.pipe()
    try:
        os.write(writer, ctypes.c_ubyte.from_address(address))
        return True
    except OSError as failure:
        if failure.errno != errno.EFAULT:
            raise
        return False
    finally:
        os.close(reader)
        os.close(writer)


def mem_alloc(nbytes: int) -> memoryview:
    """Memory of ``epcclMemAlloc``: transfers inside the node become one copy. Page aligned, writable bytes; freed when nothing
    refers to it any more (an array made from it does). :class:`InvalidUsage` where EPCCL_DEVICE makes it memory of a GPU, which
    the host cannot touch."""
    if nbytes < 0:
        raise ValueError(f"nbytes {nbytes} is negative")
    address = ctypes.c_void_p()
    call("epcclMemAlloc", ctypes.byref(address), nbytes)
    if not address.value:
        return memoryview(bytearray())
    if not _is_of_host(address.value):
        _free(address.value)
        raise InvalidUsage(
            Result.INVALID_USAGE,
            "with EPCCL_DEVICE=cuda this is memory of a GPU, and this package is for host memory (epccl_torch takes CUDA tensors)",
            "epcclMemAlloc",
        )
    block = (ctypes.c_ubyte * nbytes).from_address(address.value)
    weakref.finalize(block, _free, address.value).atexit = False  # at exit the system takes it, and work may still use it
    return memoryview(block).cast("B")


def empty(shape: SupportsIndex | Sequence[SupportsIndex], dtype: DTypeLike = "float32") -> NDArray[Any]:
    """A NumPy array in memory of :func:`mem_alloc`, as ``numpy.empty``."""
    import numpy

    kind, given = numpy.dtype(dtype), cast(Any, shape)
    try:
        sizes: tuple[int, ...] = (operator.index(given),)
    except TypeError:
        sizes = tuple(operator.index(size) for size in given)
    count = math.prod(sizes)
    if count == 0:
        return numpy.empty(sizes, kind)
    return numpy.frombuffer(mem_alloc(count * kind.itemsize), dtype=kind, count=count).reshape(sizes)
