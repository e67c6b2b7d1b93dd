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


def why_not(error):
    """In one line, of one of NOT_OURS."""
    text = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
    return f"not what epccl-perf -J writes: {text}"
