"""The rooms of docs/architecture.md are those of the code: an include goes up that list, never down, and no files include each other."""

import re
import sys
import unittest
from pathlib import Path

TREE = Path(__file__).resolve().parents[3]

#: What a room does not know, though it stands above it.
UNKNOWN = {
    "src/plan": {"src/device"},
    "transports": {"src/plan"},
    "src/algorithms": {"src/device", "transports"},
}

#: The others ask the driver through these.
CUDA_ROOMS = ("src/device/cuda", "transports/cuda_ipc")


def listed_rooms():
    """In the order of the page."""
    page = (TREE / "docs/architecture.md").read_text()
    table = page.split("## Rooms")[1].split("## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    return [room for row in rows for room in re.findall(r"`([\w/]+)`", row)]


ROOMS = listed_rooms()


def room_of(path):
    """The one that is named most exactly; None: of no room."""
    of = [room for room in ROOMS if str(path).startswith(room + "/")]
    return max(of, key=len, default=None)


def sources(*folders):
    return sorted(
        path.relative_to(TREE)
        for folder in folders
        for path in (TREE / folder).rglob("*")
        if path.suffix in (".cpp", ".hpp", ".cu", ".cuh", ".h")
    )


def included(path):
    """The files of the tree that it includes."""
    for name in re.findall(r'^\s*#\s*include "([^"]+)"', (TREE / path).read_text(), re.MULTILINE):
        for base in (Path(), Path("src"), path.parent):
            if (TREE / base / name).is_file():
                yield base / name
                break


FOLDERS = ("src", "topology", "transports", "bindings", "tools", "perf", "tests", "include")
CODE = sources(*FOLDERS[:6])


class Rooms(unittest.TestCase):
    def test_every_file_of_the_library_is_in_one(self):
        self.assertEqual([], [str(path) for path in sources("src", "topology", "transports") if room_of(path) is None])

    def test_know_what_stands_above_them_and_nothing_else(self):
        wrong = []
        for path in CODE:
            own = room_of(path)
            for other in included(path):
                room = room_of(other)
                if own is None or room is None or room == own:
                    continue
                if ROOMS.index(room) > ROOMS.index(own) or room in UNKNOWN.get(own, ()):
                    wrong.append(f"{path} ({own}) includes {other} ({room})")
        self.assertEqual([], wrong)

    def test_know_no_header_of_cuda_but_where_cuda_is(self):
        wrong = [
            str(path)
            for path in CODE
            if not str(path).startswith(CUDA_ROOMS)
            and re.search(r"^\s*#\s*include <(cuda|cublas|nvml|nccl)", (TREE / path).read_text(), re.MULTILINE)
        ]
        self.assertEqual([], wrong)

    def test_know_cuda_by_what_a_device_is(self):
        wrong = [
            f"{path} includes {other}"
            for path in CODE
            if not str(path).startswith(CUDA_ROOMS)
            for other in included(path)
            if str(other).startswith("src/device/cuda/")
        ]
        self.assertEqual([], wrong)


class Files(unittest.TestCase):
    def test_include_each_other_in_no_circle(self):
        uses = {path: set(included(path)) for path in CODE}
        over, circles = set(), []

        def walk(path, way):
            if path in way:
                circles.append(" -> ".join(map(str, [*way[way.index(path) :], path])))
            elif path not in over:
                for other in sorted(uses.get(path, ())):
                    walk(other, [*way, path])
                over.add(path)

        for path in CODE:
            walk(path, [])
        self.assertEqual([], circles)

    def test_that_comments_and_documents_name_are_there(self):
        """`folder/file.hpp` in a comment, `src/folder` in a document."""
        names = [str(path) for path in sources(*FOLDERS)]
        gone = [
            f"{path}: {name}"
            for path in sources(*FOLDERS)
            for comment in re.findall(r"//.*", (TREE / path).read_text())
            for name in re.findall(r"\b[a-z]\w*/[\w/]+\.[chp]+pp\b", comment)
            if not any(f"/{it}".endswith(f"/{name}") for it in names)
        ]
        for path in [TREE / "README.md", TREE / "CONTRIBUTING.md", *sorted((TREE / "docs").glob("*.md"))]:
            if path.name != "performance-history.md":  # which speaks of what was, too
                places = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*\w)`(?!\s+of a build)", path.read_text())
                gone += [f"{path.name}: {place}" for place in places if not (TREE / place).exists()]
        self.assertEqual([], gone)


if __name__ == "__main__":
    sys.exit(unittest.main())
