// epccl-settings: prints the settings table as docs/configuration.md has it.
#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/settings.hpp"
#include "base/status.hpp"

namespace {

/// The exit status.
int print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return 0;
  const epccl::Status why = epccl::system_error(errno, "cannot write standard output");
  std::fprintf(stderr, "epccl-settings: %s\n", why.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) return print(epccl::settings::documentation());
  if (const std::string_view word = argv[1]; word == "--help" || word == "-h")
    return print(
        "epccl-settings     prints every setting, its default and what it means, as docs/configuration.md\n");
  std::fprintf(stderr, "epccl-settings: %s: it takes no arguments\n", argv[1]);
  return 2;
}
