"""One number as C has it: the factor of a pre-multiplied sum."""

from __future__ import annotations

import math
import operator
import struct
import sys
from typing import Any, NamedTuple

from .datatypes import DataType


class _Float(NamedTuple):
    """How a datatype lays out a number, with its sign in front."""

    mantissa: int  #: bits of it
    least: int  #: exponent of the smallest number with a full mantissa
    most: int  #: what is too large becomes: an infinity, or of float8 the largest number
    nan: int


_FLOATS = {
    DataType.FLOAT16: _Float(10, -14, 0x7C00, 0x7E00),
    DataType.FLOAT32: _Float(23, -126, 0x7F800000, 0x7FC00000),
    DataType.BFLOAT16: _Float(7, -126, 0x7F80, 0x7FC0),
    DataType.FLOAT8E4M3: _Float(3, -6, 0x7E, 0x7F),
    DataType.FLOAT8E5M2: _Float(2, -14, 0x7B, 0x7F),
}


def scalar_of(name: str, value: Any, datatype: DataType) -> bytes:
    """Its bytes in memory. ValueError: an integer datatype does not hold the value; TypeError: it is no number. Others round as the library
    rounds its results: to nearest, ties to even."""
    datatype = DataType(datatype)
    number = _number(name, value)
    if datatype <= DataType.UINT64:
        return _integer(name, number, datatype)
    try:
        wide = float(number)
    except OverflowError:  # an integer beyond all floating-point numbers
        wide = math.inf if number > 0 else -math.inf
    if datatype == DataType.FLOAT64:
        return struct.pack("=d", wide)
    return _bits(wide, datatype).to_bytes(datatype.itemsize, sys.byteorder)


def _number(name: str, value: Any) -> int | float:
    try:
        return operator.index(value)
    except TypeError:
        pass
    if hasattr(value, "__float__"):  # texts have none, and float() reads them
        try:
            return float(value)
        except TypeError:
            pass
    raise TypeError(f"{name} is {value!r}: not a number")


def _integer(name: str, number: int | float, datatype: DataType) -> bytes:
    signed, bits = datatype.name.startswith("INT"), 8 * datatype.itemsize
    lowest, limit = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
    whole = isinstance(number, int) or number.is_integer()
    if not whole or not lowest <= number < limit:
        raise ValueError(f"{name} is {number}: of {datatype.name.lower()} it is an integer in {lowest}..{limit - 1}")
    return int(number).to_bytes(datatype.itemsize, sys.byteorder, signed=signed)


def _bits(value: float, datatype: DataType) -> int:
    kind, sign = _FLOATS[datatype], 1 << (8 * datatype.itemsize - 1)
    if math.isnan(value):
        return kind.nan
    magnitude = kind.most
    if not math.isinf(value):
        exponent = max(math.frexp(value)[1] - 1, kind.least) if value else kind.least
        # In units of its last bit, which is exact; round() takes ties to the even one. A mantissa that is full by that carries.
        steps = round(math.ldexp(abs(value), kind.mantissa - exponent))
        magnitude = min(steps + ((exponent - kind.least) << kind.mantissa), kind.most)
    return magnitude | sign if math.copysign(1, value) < 0 else magnitude
