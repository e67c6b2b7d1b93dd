// epccl-topo as its user runs it.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace epccl::tools {

struct Outcome {
  int exit_code = -1;
  std::string output;
};

/// Output is stdout alone, or stderr alone. `before`: of the shell.
inline Outcome run_program(const std::string& before, const std::string& arguments, bool errors = false) {
  const std::string command =
      before + EPCCL_TOPO_TOOL + " " + arguments + (errors ? " 2>&1 >/dev/null" : " 2>/dev/null");
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  Outcome outcome;
  std::array<char, 4096> chunk{};
  for (size_t got = 0; (got = fread(chunk.data(), 1, chunk.size(), pipe)) > 0;)
    outcome.output.append(chunk.data(), got);
  outcome.exit_code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

inline Outcome run_tool(const std::string& arguments, bool errors = false) {
  return run_program("", arguments, errors);
}

inline std::string machine_file(const std::string& name) {
  return std::string(EPCCL_TOPOLOGY_DATA) + "/" + name;
}

inline std::string xml(const std::string& name) {
  return "--xml '" + machine_file(name) + "' ";
}

inline void expect_says(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in\n" << text;
}

}  // namespace epccl::tools
