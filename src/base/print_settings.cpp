// epccl-settings: prints the settings table as docs/configuration.md has it.
#include <cstdio>
#include <string>
#include <string_view>

#include "base/settings.hpp"
#include "base/standard_output.hpp"

namespace {

/// The exit status.
int print(const std::string& text) {
  const epccl::Status written = epccl::print(text);
  if (!written.ok()) std::fprintf(stderr, "epccl-settings: %s\n", written.message().c_str());
  return written.ok() ? 0 : 1;
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
