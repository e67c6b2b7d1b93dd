#include "asked.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string_view>

namespace nccl_programs {
namespace {

template <typename Function>
Function of_double(const char* name) {
  void* library = dlopen(std::getenv("EPCCL_NCCL_LIB"), RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

Job with_gpus(int ranks, const Environment& environment) {
  Job job{As::processes, ranks};
  job.environment = {{"EPCCL_NCCL_LIB", FAKE_NCCL}};
  job.environment.insert(job.environment.end(), environment.begin(), environment.end());
  return job;
}

ncclConfig_t initial_config() {
  constexpr int unset = nccl_undefined_int;
  return {sizeof(ncclConfig_t),
          nccl_config_magic,
          nccl_version,
          unset,
          unset,
          unset,
          unset,
          nullptr,
          unset,
          unset,
          nullptr,
          unset,
          unset,
          unset,
          unset,
          unset,
          unset};
}

ncclConfig_t nonblocking_config() {
  ncclConfig_t config = initial_config();
  config.blocking = 0;
  return config;
}

std::vector<std::string> asked_of_real() {
  std::vector<std::string> lines;
  const auto calls = of_double<const char* (*)()>("fake_nccl_calls");
  if (calls == nullptr) return lines;
  std::istringstream text(calls());
  constexpr std::array<std::string_view, 4> questions{"GetVersion", "GetErrorString", "GetLastError",
                                                      "CommGetAsyncError"};
  for (std::string line; std::getline(text, line);)
    if (std::ranges::none_of(questions, [&](std::string_view its) { return line.starts_with(its); }))
      lines.push_back(line);
  return lines;
}

std::vector<std::string> asked_of_real_until(const std::string& call) {
  std::vector<std::string> all;
  const auto is_it = [&](const std::string& line) { return line.starts_with(call + " "); };
  while (std::ranges::none_of(all, is_it)) {
    std::ranges::move(asked_of_real(), std::back_inserter(all));
    usleep(50);
  }
  return all;
}

std::string text_of(const void* pointer) {
  std::ostringstream out;
  out << pointer;
  return out.str();
}

std::string made_in(const std::vector<std::string>& lines) {
  std::string made;
  for (const std::string& line : lines)
    if (line.starts_with("(made) ")) made = line.substr(7, line.find(' ', 7) - 7);
  return made;
}

}  // namespace nccl_programs
