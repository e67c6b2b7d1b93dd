// dispatch, combine and moe, from the command line to the report.
#pragma once

namespace epccl::perf::moe {

/// The process's exit status.
int run(int argc, char** argv);

}  // namespace epccl::perf::moe
