"""Memory that every rank of a node can map."""

from __future__ import annotations

import ctypes
import weakref

from ._library import call


def _free(address: int) -> None:
    call("epcclMemFree", address)


def mem_alloc(nbytes: int) -> memoryview:
    """Memory of ``epcclMemAlloc``: transfers inside the node become one copy. Page aligned, writable bytes; freed when nothing
    refers to it any more (an array made from it does)."""
    if nbytes < 0:
        raise ValueError(f"nbytes {nbytes} is negative")
    address = ctypes.c_void_p()
    call("epcclMemAlloc", ctypes.byref(address), nbytes)
    if not address.value:
        return memoryview(bytearray())
    block = (ctypes.c_ubyte * nbytes).from_address(address.value)
    weakref.finalize(block, _free, address.value).atexit = False  # at exit the system takes it, and work may still use it
    return memoryview(block).cast("B")


def empty(shape, dtype="float32"):
    """A NumPy array in memory of :func:`mem_alloc`, as ``numpy.empty``."""
    import numpy

    dtype = numpy.dtype(dtype)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    count = 1
    for size in shape:
        count *= size
    if count == 0:
        return numpy.empty(shape, dtype)
    return numpy.frombuffer(mem_alloc(count * dtype.itemsize), dtype=dtype, count=count).reshape(shape)
