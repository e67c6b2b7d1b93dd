// Sets environment variables for one test, and puts everything back.
#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "base/log.hpp"
#include "base/settings.hpp"

namespace epccl::test {

class Environment {
 public:
  Environment() = default;
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto& [name, value] : before_) put(name, value);
    reread();
  }

  void set(const std::string& name, const std::string& value) { change(name, value); }
  void unset(const std::string& name) { change(name, std::nullopt); }

 private:
  void change(const std::string& name, const std::optional<std::string>& value) {
    const char* now = std::getenv(name.c_str());
    before_.try_emplace(name, now ? std::optional<std::string>(now) : std::nullopt);
    put(name, value);
    reread();
  }
  static void put(const std::string& name, const std::optional<std::string>& value) {
    if (value) {
      setenv(name.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name.c_str());
    }
  }
  static void reread() {
    settings::reload();
    log::reload();
  }

  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace epccl::test
