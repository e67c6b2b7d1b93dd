"""What epccl-perf -J has written, read again."""

import json
from pathlib import Path

# What a file of other JSON makes of the code that reads it.
NOT_OURS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def read(name):
    """ValueError where it is no JSON: a run that was killed may leave none, or a part."""
    text = Path(name).read_text()
    if not text.strip():
        raise ValueError("it is empty")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON, or cut off: {error}") from None


_TELLING = ("algo", "type", "redop", "root", "copy_engine")


def by_kind(rows, always=(), never=()):
    """{what tells rows of one size apart, in words: rows}. `always` and `never` are fields that belong to it however many values they have."""
    telling = [key for key in _TELLING if key in always or (key not in never and len({row.get(key) for row in rows}) > 1)]
    kinds = {}
    for row in rows:
        kind = tuple(f"root {row[key]}" if key == "root" else str(row.get(key)) for key in telling)
        kinds.setdefault(kind, []).append(row)
    return kinds


def wrong_elements(rows):
    """Of rows that were not checked, none."""
    return sum(row["wrong"] or 0 for row in rows)


def why_not(error):
    """In one line, of one of NOT_OURS."""
    text = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
    return f"not what epccl-perf -J writes: {text}"
