"""Errors of the library as exceptions."""

from __future__ import annotations

import enum
from typing import Any


class Result(enum.IntEnum):
    """Result codes (``epcclResult_t``)."""

    SUCCESS = 0
    UNHANDLED_DEVICE_ERROR = 1
    SYSTEM_ERROR = 2
    INTERNAL_ERROR = 3
    INVALID_ARGUMENT = 4
    INVALID_USAGE = 5
    REMOTE_ERROR = 6
    IN_PROGRESS = 7


class Reason(enum.IntEnum):
    """Why something failed, where a program may go on by it (``epcclReason_t``)."""

    NONE = 0
    TIMEOUT = 1
    UNREACHABLE = 2


class EpcclError(RuntimeError):
    """A call failed. ``code`` is the library's :class:`Result`, ``reason`` its :class:`Reason`; the text is ``epcclGetLastError``'s:
    it names the argument or the rank, with the numbers."""

    def __init__(self, code: Result, text: str, call: str = "", reason: Reason = Reason.NONE) -> None:
        self.code = code
        self.text = text
        self.call = call
        self.reason = reason
        super().__init__(f"{call}: {text}" if call else text)

    def __reduce__(self) -> tuple[Any, ...]:
        # As it was made: pickle and copy would make it from its text alone.
        return type(self), (self.code, self.text, self.call, self.reason), self.__dict__


class InvalidArgument(EpcclError, ValueError):
    """An argument is wrong by itself."""


class InvalidUsage(EpcclError):
    """The call is wrong here: ranks disagree, the communicator is finalized, ..."""


class RemoteError(EpcclError):
    """Another rank failed, died, aborted, or stayed silent for the timeout."""


class SystemFailure(EpcclError):
    """A system call or the network failed on this rank."""


class LibraryNotFound(ImportError):
    """libepccl.so was not found, or is too old for this package."""


_OF_CODE = {
    Result.INVALID_ARGUMENT: InvalidArgument,
    Result.INVALID_USAGE: InvalidUsage,
    Result.REMOTE_ERROR: RemoteError,
    Result.SYSTEM_ERROR: SystemFailure,
}


def make_error(code: int, text: str, call: str, reason: int = 0) -> EpcclError:
    """The exception for a code."""
    why = Reason(reason) if reason in list(Reason) else Reason.NONE
    try:
        known = Result(code)
    except ValueError:
        return EpcclError(Result.INTERNAL_ERROR, f"unknown result {code}: {text}", call, why)
    return _OF_CODE.get(known, EpcclError)(known, text, call, why)
