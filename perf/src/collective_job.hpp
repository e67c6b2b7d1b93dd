// The collectives, from the command line to the report.
#pragma once

namespace epccl::perf {

/// The process's exit status.
int run_collectives(int argc, char** argv);

}  // namespace epccl::perf
