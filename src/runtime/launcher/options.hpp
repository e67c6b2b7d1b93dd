// What epccl-run was asked to do, checked.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace epccl::launcher {

struct Options {
  std::vector<int> ranks_per_node;  // of virtual nodes, in order; one entry: one node
  bool virtual_nodes = false;       // EPCCL_HOSTID tells the nodes apart
  bool tag_output = false;
  double timeout = 0;  // seconds until the job is ended; 0: none
  double grace = 5;    // seconds the other ranks have to end by themselves after one has failed
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> command;

  int ranks() const;
};

/// Options, or, where there is nothing to run (--help, or a mistake that has been reported), the exit code.
struct ParsedCommandLine {
  Options options;
  int exit_code = -1;  // -1: go on
};
ParsedCommandLine parse_command_line(int argc, const char* const* argv);

/// `ranks` in `nodes` contiguous blocks, the first ones larger by one where it does not divide.
std::vector<int> even_blocks(int ranks, int nodes);

}  // namespace epccl::launcher
