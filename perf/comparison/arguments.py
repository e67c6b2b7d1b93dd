"""What command lines have in common."""

import argparse
import os
import re
import sys


def check_writable(path):
    """Before hours of measuring, not after them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"--out {path}: cannot be written")


def parse_bytes(text):
    number = re.fullmatch(r"([0-9]+)([KMG]?)", text.upper())
    if not number:
        raise ValueError(f"'{text}' is not a number of bytes: write 65536, 64K, 1M or 1G")
    return int(number[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[number[2]]


def saying(parse):
    """`parse` for argparse, which tells the words of one kind of error only."""

    def parse_or_say(text):
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse_or_say


def run(main):
    """Ends the program with main()'s exit code; with a pipe's, silently, when nobody reads its output any more."""
    try:
        try:
            code = main()
        except SystemExit as ending:
            code = ending.code
        sys.stdout.flush()
    except BrokenPipeError:
        for descriptor in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)  # what is still in buffers goes there
        code = 128 + 13  # as of one that SIGPIPE has killed
    sys.exit(code)
