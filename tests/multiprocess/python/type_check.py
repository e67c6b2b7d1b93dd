"""mypy finds nothing in the package, nor in a program that uses it, however strict it is.

type_check.py SOURCE-TREE CACHE        exit code 77: skipped, and why"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

tree, cache = Path(sys.argv[1]), sys.argv[2]
asked = subprocess.run([tree / "bindings/python/get_mypy", "--find"], capture_output=True, text=True)
if os.environ.get("TEST_MYPY") == "off":
    print("skipped: EPCCL_MYPY=off")
    sys.exit(77)
missing = "" if importlib.util.find_spec("numpy") else f"no NumPy for {sys.executable}"
if missing or asked.returncode:
    print("skipped:", missing or asked.stderr.strip())
    sys.exit(77)
settings = ["--strict", "--python-executable", sys.executable, "--config-file=", f"--cache-dir={cache}"]
what = [tree / "bindings/python/epccl", Path(__file__).with_name("typed_program.py")]
# The package is found as a program's own sources are: what mypy finds in an installed one it does not tell.
environment = {**os.environ, "MYPYPATH": str(tree / "bindings/python")}
environment.pop("PYTHONPATH", None)
sys.exit(subprocess.run([asked.stdout.strip(), "-m", "mypy", *settings, *what], env=environment).returncode)
