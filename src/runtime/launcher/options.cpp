#include "options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/standard_output.hpp"

namespace epccl::launcher {
namespace {

constexpr int usage_error = 2;
constexpr int max_ranks = 100'000;
constexpr std::string_view own_variables[] = {"EPCCL_RANK", "EPCCL_WORLD_SIZE", "EPCCL_LOCAL_RANK",
                                              "EPCCL_STORE"};

constexpr const char* footer = R"(
Each rank gets EPCCL_RANK, EPCCL_WORLD_SIZE, EPCCL_LOCAL_RANK and EPCCL_STORE, and the first three without EPCCL_ for
torch.distributed (unless --env sets these). Standard input goes to rank 0, unless it is a terminal. Signals are passed on to all ranks. When a rank fails, the others have the grace period to end by
themselves, then they are ended; the exit code is that of the first rank that failed, or 128 + the signal that killed
it, or 124 after --timeout, or 128 + the signal where SIGINT or SIGTERM came twice, or 1 where --tag-output cannot write
what they print; 127 where there is no such program, 126 where it cannot be started; 2 for wrong arguments.
Without --tag-output ranks write to this program's own standard output and error, each by itself: where that is a pipe or a
file, most programs write whole buffers, which end in the midst of lines. With it lines stay whole.

  epccl-run -n 8 ./program             8 ranks on this machine
  epccl-run -n 8 --nodes 2 ./program   as if on two nodes of four ranks
  epccl-run --ranks-per-node 3,5 ...   as if on two unequal nodes
  epccl-run -n 8 --env A=1 --env B ... with A=1, and with B as it is here)";

/// A sentence on standard error; the exit code.
int refuse(std::string_view wrong) {
  fmt::print(stderr, "epccl-run: {} (--help lists what there is)\n", wrong);
  return usage_error;
}

/// --help or --version; the exit code.
int answer(const CLI::App& app, const CLI::ParseError& asked) {
  std::ostringstream text;
  app.exit(asked, text);
  const Status printed = print(text.str());
  if (!printed.ok()) fmt::print(stderr, "epccl-run: {}\n", printed.message());
  return printed.ok() ? 0 : 1;
}

/// The first word that is no option of ours is the program; one that looks like an option only behind `--`. A text that says what
/// is wrong, or "".
std::string take_command(std::vector<std::string> words, std::vector<std::string>& command) {
  if (!words.empty() && words.front() == "--") {
    words.erase(words.begin());
  } else if (!words.empty() && words.front().starts_with('-')) {
    return fmt::format("unknown option {}", words.front());
  }
  command = std::move(words);
  return command.empty() ? "no program to run" : "";
}

std::string not_seconds(const char* option, double seconds) {
  return seconds >= 0 && std::isfinite(seconds) ? "" : fmt::format("{} {}: want seconds", option, seconds);
}

/// NAME=VALUE, or the NAME of one that is set here, each. A text that says what is wrong, or "".
std::string read_variables(const std::vector<std::string>& variables, Options& options) {
  for (const std::string& variable : variables) {
    const auto equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    if (name.empty()) return fmt::format("--env {}: want NAME=VALUE, or a NAME", variable);
    const bool names_a_node = options.virtual_nodes && name == "EPCCL_HOSTID";
    if (names_a_node || std::ranges::find(own_variables, name) != std::end(own_variables))
      return fmt::format("--env {}: that variable epccl-run sets itself, for each rank", variable);
    const char* const here = std::getenv(name.c_str());
    if (equals == std::string::npos && here == nullptr)
      return fmt::format(
          "--env {}: that variable is not set here: want NAME=VALUE, or the NAME of one that is", variable);
    options.environment.emplace_back(name, equals == std::string::npos ? here : variable.substr(equals + 1));
  }
  return "";
}

/// Numbers separated by commas. A text that says what is wrong, or "".
std::string read_nodes(const std::string& text, std::vector<int>& per_node) {
  std::istringstream items(text + ",");
  for (std::string item; std::getline(items, item, ',');) {
    int ranks = 0;
    const char* const end = item.data() + item.size();
    const auto [rest, code] = std::from_chars(item.data(), end, ranks);
    if (code != std::errc() || rest != end || ranks < 1 || ranks > max_ranks)
      return fmt::format("--ranks-per-node {}: want numbers from 1 to {}, separated by commas", text,
                         max_ranks);
    per_node.push_back(ranks);
  }
  return "";
}

/// Fills in ranks_per_node. A text that says what is wrong, or "".
std::string place(Options& options, int ranks, int nodes, const std::vector<std::string>& nodes_given) {
  std::vector<int> per_node;
  for (const std::string& text : nodes_given) {
    if (std::string wrong = read_nodes(text, per_node); !wrong.empty()) return wrong;
  }
  if (!per_node.empty()) {
    const int64_t sum = std::accumulate(per_node.begin(), per_node.end(), int64_t{0});
    if (ranks != 0 && sum != ranks)
      return fmt::format("--ranks-per-node adds up to {}, not to -n {}", sum, ranks);
    if (nodes != 0 && per_node.size() != static_cast<size_t>(nodes))
      return fmt::format("--ranks-per-node lists {} nodes, --nodes says {}", per_node.size(), nodes);
    if (sum > max_ranks) return fmt::format("{} ranks are too many for one machine", sum);
    options.ranks_per_node = per_node;
    options.virtual_nodes = true;
    return "";
  }
  if (ranks == 0) return "how many ranks? say -n N";
  if (nodes > ranks) return fmt::format("{} ranks cannot fill {} nodes", ranks, nodes);
  options.virtual_nodes = nodes != 0;
  options.ranks_per_node = even_blocks(ranks, std::max(nodes, 1));
  return "";
}

/// With mpirun's -np as -n, as far as the program's name.
std::vector<std::string> with_our_names(std::span<const char* const> arguments) {
  std::vector<std::string> out(arguments.begin(), arguments.end());
  for (size_t i = 1; i < out.size() && out[i].starts_with('-') && out[i] != "--"; ++i) {
    if (out[i] == "-np") out[i] = "-n";
    const bool is_long = out[i].starts_with("--");
    const bool has_value =
        is_long ? out[i] != "--tag-output" && out[i].find('=') == std::string::npos : out[i] == "-n";
    if (has_value) ++i;  // stands behind it
  }
  return out;
}

}  // namespace

int Options::ranks() const {
  return std::accumulate(ranks_per_node.begin(), ranks_per_node.end(), 0);
}

std::vector<int> even_blocks(int ranks, int nodes) {
  std::vector<int> blocks(static_cast<size_t>(nodes), ranks / nodes);
  for (int node = 0; node < ranks % nodes; ++node) ++blocks[static_cast<size_t>(node)];
  return blocks;
}

ParsedCommandLine parse_command_line(int argc, const char* const* argv) {
  ParsedCommandLine out;
  int ranks = 0, nodes = 0;
  std::vector<std::string> per_node, variables;
  CLI::App app(
      "Starts a program as several ranks on this machine: epccl-run -n RANKS [OPTIONS] PROGRAM "
      "[ARGUMENTS...]",
      "epccl-run");
  app.footer(footer);
  app.set_version_flag("--version", "epccl-run " EPCCL_VERSION_STRING);
  app.add_option("-n,--ranks", ranks, "Number of ranks; -np is the same")->check(CLI::Range(1, max_ranks));
  app.add_option("--nodes", nodes, "Virtual nodes, by EPCCL_HOSTID, in contiguous blocks")
      ->check(CLI::Range(1, max_ranks));
  app.add_option("--ranks-per-node", per_node, "Ranks of each virtual node")
      ->allow_extra_args(false)
      ->option_text("N,N,...");
  app.add_flag("--tag-output", out.options.tag_output, "Put \"[rank] \" in front of every line");
  app.add_option("--timeout", out.options.timeout, "Seconds after which the job is ended");
  app.add_option("--grace", out.options.grace, "Seconds the other ranks have to end after one has failed")
      ->capture_default_str();
  app.add_option("--env", variables,
                 "For all ranks; NAME alone: as it is here. May be repeated: --env A=1 --env B")
      ->allow_extra_args(false)
      ->option_text("NAME[=VALUE]");
  // What follows the program's name is its own.
  app.prefix_command();
  try {
    const auto arguments = with_our_names({argv, static_cast<size_t>(argc)});
    std::vector<const char*> texts;
    for (const std::string& each : arguments) texts.push_back(each.c_str());
    app.parse(argc, texts.data());
  } catch (const CLI::ParseError& problem) {
    out.exit_code = problem.get_exit_code() == 0 ? answer(app, problem) : refuse(problem.what());
    return out;
  }
  for (const std::string& wrong :
       {take_command(app.remaining(), out.options.command), not_seconds("--timeout", out.options.timeout),
        not_seconds("--grace", out.options.grace), place(out.options, ranks, nodes, per_node),
        read_variables(variables, out.options)}) {
    if (wrong.empty()) continue;
    out.exit_code = refuse(wrong);
    break;
  }
  return out;
}

}  // namespace epccl::launcher
