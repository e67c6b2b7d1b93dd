// `epccl-perf links`.
#pragma once

namespace epccl::perf::links {

/// The process's exit status.
int run(int argc, char** argv);

}  // namespace epccl::perf::links
