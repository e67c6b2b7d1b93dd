"""What may be set for one communicator."""

from __future__ import annotations

from typing import Any, Mapping, TypedDict

from ._structs import Config, check_range


class Settings(TypedDict, total=False):
    """Keyword arguments of all that makes a communicator; what is left out, or None, is as configured (``EPCCL_*``).

    algorithm: "flat", "two_stage" or "auto", the same on every rank.
    timeout: seconds a rank waits for a silent peer.
    name: for log lines.
    network: "tcp", "ucx", "verbs", "none", "auto" or "measured", the same on every rank.
    copy_engine: "auto", "always" or "never", the same on every rank.
    max_ctas: blocks that reductions beside copy engines use at most.
    blocking: False: making and ending the communicator goes on in the background; see :meth:`epccl.Communicator.wait`.
    first_calls: whether threads wait for the first calls on GPU memory (``EPCCL_CUDA_FIRST_CALLS`` of them); else as `blocking`.
    """

    algorithm: str | None
    timeout: float | None
    name: str | None
    network: str | None
    copy_engine: str | None
    max_ctas: int | None
    blocking: bool | None
    first_calls: bool | None


_TEXTS = {"algorithm": "algorithm", "name": "commName", "network": "netName", "copy_engine": "copyEngine"}
_NUMBERS = {
    "timeout": ("timeout", float), "max_ctas": ("maxCTAs", int), "blocking": ("blocking", int), "first_calls": ("firstCalls", int),
}  # fmt: skip
_KINDS: dict[str, Any] = {field[0]: field[1] for field in Config._fields_}


def config_of(settings: Mapping[str, object]) -> Config:
    """The library's struct. TypeError: a setting that is none."""
    config = Config()
    for name, value in settings.items():
        if name not in _TEXTS and name not in _NUMBERS:
            raise TypeError(f"'{name}' is not a setting of a communicator: these are {', '.join([*_TEXTS, *_NUMBERS])}")
        if value is None:
            continue
        if name in _TEXTS:
            setattr(config, _TEXTS[name], str(value).encode())
        else:
            field, kind = _NUMBERS[name]
            number = kind(value)
            check_range(name, number, _KINDS[field])
            setattr(config, field, number)
    return config


def config_of_child(settings: Mapping[str, object]) -> Config | None:
    """As config_of(); None where nothing is set: as the parent's."""
    config = config_of(settings)
    return config if any(value is not None for value in settings.values()) else None
