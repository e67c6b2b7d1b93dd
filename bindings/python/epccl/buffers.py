"""Arguments that are memory: where it is, how large, and what it holds."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from . import datatypes
from .datatypes import DataType

#: Anything with the buffer protocol (bytearray, memoryview, array.array, ctypes arrays, NumPy arrays), an array of an
#: ml_dtypes type, or a tensor of PyTorch on the CPU.
Buffer = Any
#: A NumPy array, or a tensor of PyTorch where the argument that it goes with is one. Neither package is needed to have this one, so its
#: type is not said.
Array = Any


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


_get = ctypes.pythonapi.PyObject_GetBuffer
_get.argtypes, _get.restype = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int], ctypes.c_int
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes, _release.restype = [ctypes.POINTER(_PyBuffer)], None

_WRITABLE, _FORMAT, _C_CONTIGUOUS = 0x1, 0x4, 0x38


def is_tensor(value: object) -> bool:
    """Whether it is a tensor of PyTorch. Where nobody has imported that, there is none."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


class View:
    """A C-contiguous piece of memory, held until the view is gone."""

    __slots__ = ("address", "nbytes", "datatype", "truths", "shape", "_held", "_object")

    address: int | None
    nbytes: int
    datatype: DataType
    shape: tuple[int, ...]
    _held: _PyBuffer | None
    _object: object

    def __init__(self, what: str, value: Buffer, writable: bool, datatype: DataType | None = None) -> None:
        self._held = None
        self._object = value
        self.truths = False  # its elements are bool, and no other datatype was said
        found = self._from_tensor(what, value, writable) if is_tensor(value) else self._from_array(what, value, writable)
        if datatype is None:
            if found is None:
                raise TypeError(f"{what}: the library has no datatype for its elements; say datatype=DataType.UINT8 to send bytes")
            self.datatype = found
        else:
            self.truths = False
            self.datatype = DataType(datatype)
            if self.nbytes % self.datatype.itemsize:
                raise ValueError(f"{what}: {self.nbytes} bytes are no whole number of {self.datatype.name.lower()}")

    def _from_array(self, what: str, value: Buffer, writable: bool) -> DataType | None:
        if hasattr(value, "__cuda_array_interface__"):
            raise TypeError(
                f"{what}: memory of a GPU ({type(value).__name__}), and this package is for host memory; epccl_torch takes CUDA tensors"
            )
        name = getattr(getattr(value, "dtype", None), "name", "")
        special = datatypes.of_name(name) if isinstance(name, str) else None
        if special is None:
            return self._from_buffer(what, value, writable)
        self._from_array_interface(what, value, writable)
        return special

    def _from_buffer(self, what: str, value: Buffer, writable: bool) -> DataType | None:
        held = _PyBuffer()
        try:
            _get(value, held, _C_CONTIGUOUS | _FORMAT | (_WRITABLE if writable else 0))
        except TypeError:
            raise TypeError(f"{what}: {type(value).__name__} has no buffer protocol (a NumPy array has)") from None
        except (ValueError, BufferError) as failure:
            need = "C-contiguous and writable" if writable else "C-contiguous"
            raise ValueError(f"{what}: must be {need}: {failure}") from None
        self._held = held
        self.address, self.nbytes = held.buf, held.len
        self.shape = tuple(held.shape[i] for i in range(held.ndim))
        code = (held.format or b"B").decode()
        self.truths = datatypes.are_truths(code)
        return datatypes.of_format(code, held.itemsize)

    def _from_array_interface(self, what: str, value: Buffer, writable: bool) -> None:
        if not value.flags["C_CONTIGUOUS"]:
            raise ValueError(f"{what}: must be C-contiguous")
        if writable and not value.flags["WRITEABLE"]:
            raise ValueError(f"{what}: must be writable")
        self.address, self.nbytes = value.__array_interface__["data"][0], value.nbytes
        self.shape = tuple(value.shape)

    def _from_tensor(self, what: str, value: Any, writable: bool) -> DataType | None:
        if value.device.type != "cpu":
            elsewhere = "; epccl_torch takes CUDA tensors" if value.device.type == "cuda" else ""
            raise TypeError(f"{what}: a tensor on {value.device}, and this package is for host memory{elsewhere}")
        if str(value.layout) != "torch.strided":
            raise TypeError(f"{what}: must be dense, not {value.layout}")
        if not value.is_contiguous():
            raise ValueError(f"{what}: must be C-contiguous: pass tensor.contiguous()")
        if value.is_conj() or value.is_neg():
            raise ValueError(f"{what}: a conjugated or negated view, not what its memory holds: resolve_conj(), resolve_neg()")
        if writable and value.requires_grad:
            raise ValueError(f"{what}: is written, and requires gradients, which would know nothing of it: pass tensor.detach()")
        # With its memory, which the tensor may come to exchange.
        self._object = value, value.untyped_storage()
        self.address, self.nbytes = value.data_ptr(), value.numel() * value.element_size()
        self.shape = tuple(value.shape)
        name = str(value.dtype).rpartition(".")[2]
        self.truths = name == "bool"
        return datatypes.of_tensor(name)

    @property
    def count(self) -> int:
        """Number of elements."""
        return self.nbytes // self.datatype.itemsize

    def __del__(self) -> None:
        held, self._held = getattr(self, "_held", None), None
        if held is not None:
            _release(held)


def views(what: str, value: Buffer | None, writable: bool, datatype: DataType | None = None) -> View | None:
    """A view, or None for None."""
    return None if value is None else View(what, value, writable, datatype)


def same_datatype(*pairs: tuple[str, View]) -> DataType:
    """The datatype of all views; ValueError when they differ."""
    (first_name, first), *others = pairs
    for name, view in others:
        if view.datatype != first.datatype:
            raise ValueError(
                f"{first_name} holds {first.datatype.name.lower()}, {name} holds {view.datatype.name.lower()}"
            )
    return first.datatype
