"""What the machine of a GPU is: what a failure would have to be explained with."""

import contextlib
import ctypes
import functools
import glob
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Of an archive of tests/device/bundle: programs and libraries. There nothing is built.
PREBUILT = ROOT / "prebuilt"
#: A server of MPS has so many for all of its clients together that eight with the usual number would exhaust them.
CONNECTIONS_OF_A_CLIENT = "8"


def end_with_parent(by=signal.SIGKILL):
    """In a child, before it becomes another program: it ends when the thread that made it does, however that happens."""
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(set_parent_death_signal, by)


def find_gpus():
    """Names of the GPUs, or why there are none; the driver's CUDA version."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as why:
        return [], str(why), None
    if code := driver.cuInit(0):
        return [], f"cuInit: error {code}", None
    version, count, names = ctypes.c_int(), ctypes.c_int(), []
    driver.cuDriverGetVersion(ctypes.byref(version))
    driver.cuDeviceGetCount(ctypes.byref(count))
    for ordinal in range(count.value):
        name = ctypes.create_string_buffer(128)
        driver.cuDeviceGetName(name, 127, ordinal)
        names.append(name.value.decode())
    return names, "" if names else "the driver has no GPU", f"{version.value // 1000}.{version.value % 1000 // 10}"


def find_gpus_apart():
    """find_gpus() in a process of its own: this one forks others."""
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else ([], f"asking the driver failed: {done.stderr[-200:]}", None)


def _is_served_by_mps():
    driver = ctypes.CDLL("libcuda.so.1")
    mps_enabled, value = 133, ctypes.c_int()  # CU_DEVICE_ATTRIBUTE_MPS_ENABLED
    return driver.cuInit(0) == 0 and driver.cuDeviceGetAttribute(ctypes.byref(value), mps_enabled, 0) == 0 and value.value != 0


def is_served_by_mps(more_environment=None):
    """Whether the GPU does such processes' work at the same time. Asked in one of its own."""
    try:
        done = subprocess.run([sys.executable, __file__, "--mps"], env={**environment(), **(more_environment or {})}, capture_output=True,
                              text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.stdout.strip() == "True"


def _keep_open():
    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0:
        print("open", flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def kept_open():
    """A process has the GPU open meanwhile: where none has, the next one waits for seconds while the driver starts it. True: it is open."""
    keeper = subprocess.Popen([sys.executable, __file__, "--keep-open"], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
    try:
        yield bool(select.select([keeper.stdout], [], [], 60)[0]) and keeper.stdout.readline() == b"open\n"
    finally:
        keeper.stdin.close()  # it ends; also where this program is killed
        for end in (lambda: None, keeper.kill):
            end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                keeper.wait(10)
                break
        keeper.stdout.close()


def _search_path(folders):
    """For LD_LIBRARY_PATH, before what it has. Without empty parts, which would be the current folder."""
    return ":".join(part for part in [*folders, *os.environ.get("LD_LIBRARY_PATH", "").split(":")] if part)


@functools.cache
def cublas_folder():
    """Where there is one that the loader would not find: of a toolkit, or of a Python package."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if "libcublas.so" in subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout:
            return None
    places = ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        python = shutil.which("python3") or sys.executable
        done = subprocess.run([python, "-c", "import sys; print('\\n'.join(sys.path))"], capture_output=True, text=True, timeout=30)
        places += [f"{path}/nvidia/*/lib" for path in done.stdout.split("\n") if path.startswith("/")]
    for place in places:
        for library in sorted(glob.glob(f"{place}/libcublas.so.1[23]"), reverse=True):
            return str(Path(library).parent)
    return None


def loader_says(program, search_path):
    """What ldd would say."""
    env = dict(os.environ, LD_LIBRARY_PATH=search_path, LD_TRACE_LOADED_OBJECTS="1", LD_WARN="yes", LD_BIND_NOW="")
    try:
        done = subprocess.run([program], env=env, capture_output=True, text=True)
    except OSError as why:
        return f"not found: {why}"
    return done.stdout + done.stderr


def _lacking(folders, programs):
    """The first thing that the loader does not find for one of the programs; empty: they can start."""
    for program in programs:
        for line in loader_says(program, _search_path(folders)).split("\n"):
            if "not found" in line and "libcuda.so" not in line:  # the driver's is there, or nothing runs
                return f"{program.name}: {line.strip()}"
    return ""


@functools.cache
def choose_libraries(prebuilt=PREBUILT):
    """Folders of an archive's libraries, and what the loader lacks all the same. The compiler's come from the system, if they are new
    enough for every program: the driver may need newer ones than the archive's."""
    if not prebuilt.is_dir():
        return [], ""
    programs = sorted((prebuilt / "bin").iterdir())
    folders = [str(prebuilt / "lib")]
    for choice in (folders, [*folders, str(prebuilt / "runtime")]):
        lacking = _lacking(choice, programs)
        if not lacking:
            return choice, ""
    return folders, lacking


def environment():
    """Of the programs: libraries of an archive, and cuBLAS."""
    env = dict(os.environ)
    folders = [*choose_libraries()[0], *([cublas_folder()] if cublas_folder() else [])]
    if folders:
        env["LD_LIBRARY_PATH"] = _search_path(folders)
    # Ranks that are threads share a context; a queue that waits must not hold another's work back.
    beneath_mps = "CUDA_MPS_PIPE_DIRECTORY" in env or Path("/tmp/nvidia-mps/control").exists()
    env.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", CONNECTIONS_OF_A_CLIENT if beneath_mps else "32")
    # A kernel that is loaded by its first launch waits for the GPU, behind a call for one that needs the driver. `run` has parts with LAZY.
    env.setdefault("CUDA_MODULE_LOADING", "EAGER")
    return env


def _asked(words):
    """What a program prints; what went wrong where it does not run."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as why:
        return str(why)
    return (done.stdout or done.stderr).strip()


def sm_clocks():
    """Of each GPU, in words; None: nothing here tells them."""
    if shutil.which("nvidia-smi") is None:
        return None
    return _asked(["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader"])


def _loads(library):
    code = f"import ctypes; ctypes.CDLL({library!r})"
    return subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True).returncode == 0


def describe():
    fields = "name,driver_version,compute_cap,memory.total,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,mig.mode.current,compute_mode"
    module = Path("/proc/driver/nvidia/version")
    return {
        "gpu": _asked(["nvidia-smi", f"--query-gpu={fields}", "--format=csv"]),
        "driver_module": module.read_text().strip() if module.exists() else "?",
        "cublas": [name for name in ("libcublas.so.13", "libcublas.so.12") if _loads(name)],
        "cublas_folder": cublas_folder(),
        "connections": environment()["CUDA_DEVICE_MAX_CONNECTIONS"],
        "cores": os.cpu_count(),
        "mps": is_served_by_mps(),
    }


if __name__ == "__main__":
    if "--keep-open" in sys.argv:
        _keep_open()
    else:
        print(_is_served_by_mps() if "--mps" in sys.argv else json.dumps(find_gpus()))
