"""The structs of the Python package are those of the C headers: same fields, same offsets, same initial values."""

import ctypes
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from epccl import _structs as c

HEADERS = Path(sys.argv[1])
# Python's class, C's type and initializer; None: it is only written to, and never changes
PAIRS = [
    (c.Config, "epcclConfig_t", "EPCCL_CONFIG_INITIALIZER"),
    (c.SimInfo, "epcclSimInfo_t", "EPCCL_SIM_INFO_INITIALIZER"),
    (c.StatisticsStruct, "epcclStatistics_t", "EPCCL_STATISTICS_INITIALIZER"),
    (c.CallTimesStruct, "epcclCallTimes_t", "EPCCL_CALL_TIMES_INITIALIZER"),
    (c.StragglersStruct, "epcclStragglers_t", "EPCCL_STRAGGLERS_INITIALIZER"),
    (c.RankTimesStruct, "epcclRankTimes_t", None),
    (c.EpTensor, "epcclEpTensor_t", "EPCCL_EP_TENSOR_INIT"),
    (c.EpGroupConfig, "epcclEpGroupConfig_t", "EPCCL_EP_GROUP_CONFIG_INIT"),
    (c.EpHandleConfig, "epcclEpHandleConfig_t", "EPCCL_EP_HANDLE_CONFIG_INIT"),
    (c.EpLayoutInfo, "epcclEpLayoutInfo_t", "EPCCL_EP_LAYOUT_INFO_INIT"),
    (c.EpDispatchInputs, "epcclEpDispatchInputs_t", "EPCCL_EP_DISPATCH_INPUTS_INIT"),
    (c.EpDispatchOutputs, "epcclEpDispatchOutputs_t", "EPCCL_EP_DISPATCH_OUTPUTS_INIT"),
    (c.EpDispatchConfig, "epcclEpDispatchConfig_t", "EPCCL_EP_DISPATCH_CONFIG_INIT"),
    (c.EpDispatchConfig, "epcclEpCombineConfig_t", "EPCCL_EP_COMBINE_CONFIG_INIT"),
    (c.EpCombineInputs, "epcclEpCombineInputs_t", "EPCCL_EP_COMBINE_INPUTS_INIT"),
    (c.EpCombineOutputs, "epcclEpCombineOutputs_t", "EPCCL_EP_COMBINE_OUTPUTS_INIT"),
    (c.EpStatsStruct, "epcclEpStats_t", "EPCCL_EP_STATS_INIT"),
    (c.EpPlacementConfig, "epcclEpPlacementConfig_t", "EPCCL_EP_PLACEMENT_CONFIG_INIT"),
    (c.EpPlacementInfo, "epcclEpPlacementInfo_t", "EPCCL_EP_PLACEMENT_INFO_INIT"),
    (c.EpProgressStruct, "epcclEpProgress_t", "EPCCL_EP_PROGRESS_INIT"),
]

program = "#include <epccl/placement.h>\n#include <epccl/stragglers.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n"
for struct, name, initializer in PAIRS:
    program += f'  {{ {name} s = {initializer or "{0}"}; printf("{name} %zu", sizeof s);\n'
    for field, *_ in struct._fields_:
        program += f'    printf(" %zu+%zu", offsetof({name}, {field}), sizeof s.{field});\n'
    program += '    printf(" %zu %u\\n", (size_t)s.size, s.magic); }\n' if initializer else '    puts(""); }\n'
program += "  return 0;\n}\n"

with tempfile.TemporaryDirectory() as scratch:
    source = Path(scratch) / "structs.c"
    source.write_text(program)
    subprocess.run(["cc", f"-I{HEADERS}", str(source), "-o", f"{scratch}/structs"], check=True)
    lines = subprocess.run([f"{scratch}/structs"], check=True, capture_output=True, text=True).stdout.splitlines()

for (struct, name, initializer), line in zip(PAIRS, lines):
    fields = " ".join(f"{getattr(struct, f).offset}+{getattr(struct, f).size}" for f, *_ in struct._fields_)
    value = struct()
    mine = f"{name} {ctypes.sizeof(struct)} {fields}" + (f" {value.size} {value.magic}" if initializer else "")
    assert mine == line, f"\npython {mine}\nC      {line}"

# The functions that are declared have as many arguments as in C.
from epccl import Reason  # noqa: E402
from epccl import _library  # noqa: E402

text = "".join(header.read_text() for header in sorted((HEADERS / "epccl").glob("*.h")))
text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
functions = dict(re.findall(r"EPCCL_API\s+epcclResult_t\s+(\w+)\(([^)]*)\)", text))
assert len(functions) > 40
# In Python by another name, or of no use there.
others = {
    "epcclCommInitRank",  # epcclCommInitRankConfig with no config
    "epcclCommAbortBeside",  # for libraries that stand beside this one, as the next three
    "epcclRemainsFree",
    "epcclCommShrinkBeside",
    "epcclGroupEndBeside",
    "epcclEpComplete",  # epcclEpCompleteStage
}
missing = set(functions) - set(_library._SIGNATURES) - others
assert not missing, f"not in the Python package: {sorted(missing)}"
for name, arguments in _library._SIGNATURES.items():
    count = 0 if functions[name].strip() in ("", "void") else functions[name].count(",") + 1
    assert count == len(arguments), f"{name} has {count} arguments, {len(arguments)} are declared"
# What is no result code.
reasons = dict(re.findall(r"epcclReason(\w+) = (\d+)", text))
assert {name.upper(): int(value) for name, value in reasons.items()} == {each.name: each.value for each in Reason}, reasons
print(f"{len(PAIRS)} structs and {len(_library._SIGNATURES)} functions as in C")
