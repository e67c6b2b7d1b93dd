#include "asked.hpp"

#include <dlfcn.h>

#include <sstream>

namespace nccl_programs {
namespace {

template <typename Function>
Function of_double(const char* name) {
  void* library = dlopen(FAKE_NCCL, RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

Job with_gpus(int ranks) {
  Job job{As::processes, ranks};
  job.environment = {{"EPCCL_NCCL_LIB", FAKE_NCCL}};
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

std::vector<std::string> asked_of_real() {
  std::vector<std::string> lines;
  const auto calls = of_double<const char* (*)()>("fake_nccl_calls");
  if (calls == nullptr) return lines;
  std::istringstream text(calls());
  for (std::string line; std::getline(text, line);)
    if (!line.starts_with("GetVersion") && !line.starts_with("GetErrorString")) lines.push_back(line);
  of_double<void (*)()>("fake_nccl_forget_calls")();
  return lines;
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
