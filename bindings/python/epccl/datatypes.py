"""Datatypes and reduction operations, and what NumPy and the buffer protocol call them."""

from __future__ import annotations

import enum


class DataType(enum.IntEnum):
    """Element types (``epcclDataType_t``)."""

    INT8 = 0
    UINT8 = 1
    INT32 = 2
    UINT32 = 3
    INT64 = 4
    UINT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9
    FLOAT8E4M3 = 10
    FLOAT8E5M2 = 11

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _BYTES[self]


class RedOp(enum.IntEnum):
    """Reductions (``epcclRedOp_t``); further ones are made by :meth:`Communicator.pre_mul_sum`."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4


_BYTES = {
    DataType.INT8: 1,
    DataType.UINT8: 1,
    DataType.INT32: 4,
    DataType.UINT32: 4,
    DataType.INT64: 8,
    DataType.UINT64: 8,
    DataType.FLOAT16: 2,
    DataType.FLOAT32: 4,
    DataType.FLOAT64: 8,
    DataType.BFLOAT16: 2,
    DataType.FLOAT8E4M3: 1,
    DataType.FLOAT8E5M2: 1,
}

# By kind and bytes: NumPy's dtype.kind, which the codes of the struct module are mapped to.
_OF_KIND = {
    ("i", 1): DataType.INT8,
    ("u", 1): DataType.UINT8,
    ("b", 1): DataType.UINT8,
    ("i", 4): DataType.INT32,
    ("u", 4): DataType.UINT32,
    ("i", 8): DataType.INT64,
    ("u", 8): DataType.UINT64,
    ("f", 2): DataType.FLOAT16,
    ("f", 4): DataType.FLOAT32,
    ("f", 8): DataType.FLOAT64,
}
_KIND_OF_CODE = {**dict.fromkeys("bhilqn", "i"), **dict.fromkeys("BHILQNc", "u"), **dict.fromkeys("efd", "f"), "?": "b"}

# ml_dtypes' names: types that the buffer protocol has no code for.
_OF_NAME = {
    "bfloat16": DataType.BFLOAT16,
    "float8_e4m3fn": DataType.FLOAT8E4M3,
    "float8_e5m2": DataType.FLOAT8E5M2,
}


# What a reduction of truth values is, as in PyTorch: of their bytes, which are 0 or 1, a sum is "any", a product "all".
_OF_TRUTHS = {RedOp.SUM: RedOp.MAX, RedOp.PROD: RedOp.MIN, RedOp.MAX: RedOp.MAX, RedOp.MIN: RedOp.MIN}


def _kind(code: str) -> str:
    return _KIND_OF_CODE.get(code[1:] if code[:1] in ("@", "=", "<") else code, "")


def of_format(code: str, itemsize: int) -> DataType | None:
    """Datatype of a buffer's format string, or None where the library has none (16-bit integers, complex numbers, ...)."""
    return _OF_KIND.get((_kind(code), itemsize))


def are_truths(code: str) -> bool:
    """Whether a buffer's format string is that of truth values."""
    return _kind(code) == "b"


def op_of_truths(op: int) -> int:
    """The reduction of bytes that is `op` of truth values."""
    if op not in _OF_TRUTHS:
        name = RedOp(op).name.lower() if op in list(RedOp) else f"operation {op}"
        raise ValueError(f"{name} of truth values (bool): there are sum (any), product (all), maximum and minimum")
    return _OF_TRUTHS[RedOp(op)]


def of_tensor(name: str) -> DataType | None:
    """Datatype of a dtype of PyTorch, by its name."""
    if name == "bool":
        return DataType.UINT8
    return of_name(name) if name in _OF_NAME else DataType.__members__.get(name.upper())


def of_name(name: str) -> DataType | None:
    """Datatype of an ml_dtypes name."""
    return _OF_NAME.get(name)
