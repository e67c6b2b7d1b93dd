// epccl-perf: times and checks EPCCL's collectives. --help says the rest.
#include "perf/src/collective_job.hpp"
#include "perf/src/moe/job.hpp"
#include "perf/src/moe/options.hpp"

int main(int argc, char** argv) {
  using namespace epccl::perf;
  if (argc > 1 && moe::parse_operation(argv[1])) return moe::run(argc, argv);
  return run_collectives(argc, argv);
}
