// epccl-settings: prints the settings table as docs/configuration.md has it.
#include <cstdio>
#include <string_view>

#include "base/settings.hpp"

int main(int argc, char** argv) {
  if (argc == 1) {
    std::fputs(epccl::settings::documentation().c_str(), stdout);
    return 0;
  }
  if (const std::string_view word = argv[1]; word == "--help" || word == "-h") {
    std::puts(
        "epccl-settings     prints every setting, its default and what it means, as docs/configuration.md");
    return 0;
  }
  std::fprintf(stderr, "epccl-settings: %s: it takes no arguments\n", argv[1]);
  return 2;
}
