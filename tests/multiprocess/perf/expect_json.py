"""What epccl-perf's JSON says of each row.

  expect_json.py EXPRESSION COMMAND...     runs COMMAND with -J FILE; EXPRESSION, of Python, must hold for every `row` of the file
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path


def main():
    expression, command = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        code = subprocess.run([*command, "-J", file]).returncode
        if code != 0:
            return code
        rows = json.loads(file.read_text())["results"]
    wrong = [row for row in rows if not eval(expression, {"row": row})]
    for row in wrong:
        print(f"not so: {expression}: {json.dumps(row)}")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
