// epccl-settings: prints the settings table as docs/configuration.md has it.
#include <cstdio>

#include "base/settings.hpp"

int main() {
  std::fputs(epccl::settings::documentation().c_str(), stdout);
  return 0;
}
