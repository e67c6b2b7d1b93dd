"""What command lines have in common."""

import os


def check_writable(path):
    """Before hours of measuring, not after them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"--out {path}: cannot be written")
