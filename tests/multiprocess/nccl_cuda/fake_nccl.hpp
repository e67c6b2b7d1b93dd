// A test double of NVIDIA's NCCL: it remembers what it was asked, and moves nothing (but
// an all-reduce, in its stream, where the double of the driver has streams). FAKE_NCCL_FAILS=ncclX makes one call fail.
#pragma once

#include <nccl.h>

extern "C" {
/// All calls so far, one a line: the name less "nccl", then the arguments. The text belongs to the double.
const char* fake_nccl_calls();
void fake_nccl_forget_calls();
}
