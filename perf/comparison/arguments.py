"""What command lines have in common."""

import argparse
import os
import re
import sys
from pathlib import Path


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


def program():
    return f"perf/{Path(sys.argv[0]).name}"


def write_out(path, text):
    """Whether --out has it; says why not."""
    try:
        path.write_text(text)
    except OSError as error:
        print(f"{program()}: --out {path}: {error.strerror}", file=sys.stderr)
        return False
    return True


class _Output:
    """Standard output of a program that has more to do than to print: what cannot be written is no reason to end before that is done.
    That nobody reads it is."""

    def __init__(self, stream):
        self.stream, self.error = stream, None

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def write(self, text):
        self._do(lambda: self.stream.write(text))
        return len(text)

    def flush(self):
        self._do(self.stream.flush)

    def _do(self, action):
        try:
            action()
        except BrokenPipeError:
            raise
        except OSError as error:
            self.error = self.error or error


def _output():
    if sys.stdout is None:  # closed: no file is to be opened in its place
        os.dup2(os.open(os.devnull, os.O_RDONLY), 1)
        return _Output(os.fdopen(1, "w", closefd=False))
    return _Output(sys.stdout)


def _drop_the_rest():
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)  # what is still in buffers goes there


def run(main):
    """Ends the program with main()'s exit code; with 1 where standard output cannot be written, which a line says; with a pipe's,
    silently, when nobody reads its output any more."""
    sys.stdout = output = _output()
    try:
        try:
            code = main()
        except SystemExit as ending:
            code = ending.code
        output.flush()
    except BrokenPipeError:
        _drop_the_rest()
        code = 128 + 13  # as of one that SIGPIPE has killed
    if output.error:
        print(f"{program()}: cannot write standard output: {output.error.strerror} (errno {output.error.errno})", file=sys.stderr, flush=True)
        _drop_the_rest()
        code = code or 1
    sys.exit(code)
