// epccl-perf: times and checks EPCCL's collectives. --help says the rest.
#include <cstdio>
#include <exception>

#include "perf/src/collective_job.hpp"
#include "perf/src/links/job.hpp"
#include "perf/src/links/options.hpp"
#include "perf/src/moe/job.hpp"
#include "perf/src/moe/options.hpp"
#include "perf/src/operation_first.hpp"
#include "perf/src/output.hpp"

namespace {

int run(int argc, char** argv) {
  using namespace epccl::perf;
  const std::vector<const char*> words = operation_first(argc, argv);
  if (words.size() > 1 && moe::parse_operation(words[1])) return moe::run(argc, argv);
  if (words.size() > 1 && links::is_operation(words[1])) return links::run(argc, argv);
  return run_collectives(argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& thrown) {
    // No text is made of it: it may be for want of memory.
    std::fputs("epccl-perf: ", stderr);
    std::fputs(thrown.what(), stderr);
    std::fputs("\n", stderr);
    return epccl::perf::exit_failed;
  }
}
