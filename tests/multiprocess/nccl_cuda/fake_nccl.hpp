// A test double of NVIDIA's NCCL: it remembers what it was asked, and moves nothing (but
// an all-reduce, in its stream, where the double of the driver has streams). Nonblocking communicators are made as the real one makes
// them: a split's or shrink's handle is written when its parent no longer says that it is in progress.
// FAKE_NCCL_FAILS=ncclX makes one call fail; FAKE_NCCL_POLLS says how often a communicator is in progress.
#pragma once

#include <nccl.h>

extern "C" {
/// All calls since the last time, one a line: the name less "nccl", then the arguments. The text belongs to the double.
const char* fake_nccl_calls();
}
