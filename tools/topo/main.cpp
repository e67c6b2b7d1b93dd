// epccl-topo: shows a machine, recorded or live, and a cluster of such machines: ranks, rails, predicted times.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/caught.hpp"
#include "base/standard_output.hpp"
#include "topo/forecast.hpp"
#include "topo/forecast_plans.hpp"
#include "topo/nic_list.hpp"
#include "topo/preflight_facts.hpp"
#include "topology/cluster_printer.hpp"
#include "topology/discover_machine.hpp"
#include "topology/host_id.hpp"
#include "topology/machine_printer.hpp"
#include "topology/parse_number.hpp"
#include "topology/rail_printer.hpp"
#include "topology/read_machine.hpp"
#include "topology/topology_json.hpp"

namespace {

using namespace epccl;

constexpr int max_ranks = 1 << 20;
constexpr int exit_unusable = 2;  // the command line, or for --check the machine

struct Options {
  std::string xml;
  bool json = false;
  bool tree_only = false;
  bool matrix_only = false;
  bool rails_only = false;
  bool nics = false;
  bool check = false;
  int cluster = 0;
  int ranks_per_node = 0;
  std::string timeline;                 // file to write
  uint64_t size = 64 << 10;             // what it is of
  std::vector<std::string> rank_lists;  // as typed: one or more of "3,5"
  std::vector<int> ranks;

  bool wants_cluster() const { return cluster > 0 || !ranks.empty(); }
};

/// "3,5" -> 3, 5; empty where an item is none.
std::vector<int> rank_numbers(const std::string& list) {
  std::vector<int> numbers;
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = list.find(',', begin);
    const auto number =
        topology::parse_integer(std::string_view(list).substr(begin, end - begin), 1, max_ranks);
    if (!number) return {};
    numbers.push_back(static_cast<int>(*number));
  }
  return numbers;
}

std::string check_ranks(const std::string& list) {
  if (!rank_numbers(list).empty()) return "";
  return fmt::format("\"{}\" is no list of numbers from 1 to {}, as 3,5", list, max_ranks);
}

/// A variable of a script that is not set is no file.
std::string check_file(const std::string& name) {
  return name.empty() ? "want the name of a file" : "";
}

void declare(CLI::App& app, Options& options) {
  app.add_option("--xml", options.xml,
                 "Machine from a file: hwloc XML (lstopo --of xml), or NCCL or RCCL topology XML")
      ->type_name("FILE")
      ->check(check_file, "");
  app.add_flag("--json", options.json, "Print JSON");
  auto* tree = app.add_flag("--tree", options.tree_only, "Print only the tree");
  app.add_flag("--matrix", options.matrix_only, "Print only the matrix")->excludes(tree);
  app.add_flag("--nics", options.nics,
               "Every network device and port: state, rate, MTU, addresses, nearest GPUs, and what could not "
               "be asked")
      ->excludes("--tree")
      ->excludes("--matrix");
  app.add_flag("--check", options.check,
               "What a run here would use, what is missing, which limits will hurt, and what to do about it. "
               "Exit code: 0 "
               "fine, 1 something will hurt, 2 a run cannot work (or this command line)")
      ->excludes("--xml")
      ->excludes("--tree")
      ->excludes("--matrix")
      ->excludes("--nics");
  auto* cluster =
      app.add_option(
             "--cluster", options.cluster,
             fmt::format("Ranks, rails and predicted times of N nodes like this machine; times as far as "
                         "plans have {:.0f} million steps (about 500 ranks)",
                         tools::max_steps / 1e6))
          ->type_name("N")
          ->check(CLI::Range(1, max_ranks));
  app.add_flag("--rails", options.rails_only,
               "With --cluster: print only the rail plan and the predicted times")
      ->needs(cluster);
  app.add_option("--ranks-per-node", options.ranks_per_node,
                 "With --cluster: ranks on each node (default: one per GPU, or one)")
      ->type_name("L")
      ->needs(cluster)
      ->check(CLI::Range(1, max_ranks));
  auto* timeline =
      app.add_option("--timeline", options.timeline,
                     "With --cluster: an SVG picture of how the alltoall that the library takes runs, by "
                     "simulation")
          ->type_name("FILE")
          ->needs(cluster)
          ->excludes("--check")
          ->excludes("--nics")
          ->check(check_file, "");
  app.add_option("--size", options.size, "With --timeline: bytes for each pair, as 4K or 1M (default: 64K)")
      ->type_name("BYTES")
      ->needs(timeline)
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40));
  app.add_option("--ranks", options.rank_lists,
                 "Ranks and rails of a cluster with these numbers of ranks on its nodes")
      ->type_name("A,B,...")
      ->excludes(cluster)
      ->check(check_ranks, "");
  app.set_version_flag("--version", "epccl-topo " EPCCL_VERSION_STRING);
  app.footer(
      "Without --xml the machine is this one.\n\n"
      "  epccl-topo                            this machine\n"
      "  epccl-topo --xml node.xml --matrix    path classes of a recorded machine\n"
      "  epccl-topo --xml node.xml --cluster 4 ranks, rails and predicted times of 4 such nodes\n"
      "  epccl-topo --cluster 2 --ranks-per-node 4 --timeline run.svg --size 1M\n"
      "                                        a picture of an alltoall of 1 MiB a pair on two of this "
      "machine\n"
      "  epccl-topo --nics                     network devices and ports, as ibv_devinfo; also with --json\n"
      "  epccl-topo --check --cluster 4        what a run on 4 nodes like this would use and lack\n"
      "  epccl-topo --ranks 3,5                3 ranks on one node like this, 5 on another");
}

Result<topology::Cluster> make_cluster(const Options& options, const topology::Machine& machine) {
  std::vector<int> sizes = options.ranks;
  if (options.cluster > 0) {
    const int gpus = std::max(1, static_cast<int>(machine.gpus.size()));
    const int local = options.ranks_per_node > 0 ? options.ranks_per_node : gpus;
    if (static_cast<int64_t>(local) * options.cluster > max_ranks)
      return error(Code::invalid_argument, "{} nodes x {} ranks are more than {} ranks", options.cluster,
                   local, max_ranks);
    sizes.assign(static_cast<size_t>(options.cluster), local);
  }
  int64_t total = 0;
  for (const int size : sizes) total += size;
  if (total > max_ranks) return error(Code::invalid_argument, "{} ranks are more than {}", total, max_ranks);
  return topology::Cluster::from_sizes(sizes);
}

/// What there is to say of a cluster of machines like this.
struct Planned {
  topology::Cluster cluster;
  topology::RailPlan rails;
};

Result<Planned> plan_cluster(const Options& options, const topology::Machine& machine) {
  EPCCL_ASSIGN(auto cluster, make_cluster(options, machine));
  EPCCL_ASSIGN(auto rails, topology::plan_rails(machine, cluster.nodes(), cluster.max_local_size()));
  return Planned{std::move(cluster), std::move(rails)};
}

/// An error where nodes are unequal, plans too large, or settings unusable.
Result<tools::Forecast> forecast(const topology::Machine& machine, const Planned& planned) {
  if (!planned.cluster.uniform())
    return error(Code::invalid_argument, "times are predicted for equal nodes only");
  EPCCL_ASSIGN(const auto config, runtime::read_comm_config({}));
  return tools::make_forecast(machine, planned.rails, config);
}

Status write_timeline(const Options& options, const topology::Machine& machine, const Planned& planned) {
  EPCCL_ASSIGN(const auto config, runtime::read_comm_config({}));
  EPCCL_ASSIGN(const std::string picture, tools::draw_alltoall(machine, planned.rails, config, options.size));
  std::ofstream file(options.timeline, std::ios::binary);
  if (!(file << picture << std::flush)) return system_error(errno, "writing " + options.timeline);
  return {};
}

std::string dump(const nlohmann::ordered_json& json) {
  // Names come from files and drivers: what is not UTF-8 in them is replaced rather than refused.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string as_json(const Options& options, const topology::Machine& machine, const Planned* planned) {
  nlohmann::ordered_json json{{"machine", topology::machine_json(machine)}};
  if (options.xml.empty())
    if (const auto id = topology::this_host_id(); id.ok())
      json["host_id"] = {{"host", id->host}, {"hash", fmt::format("{:016x}", id->hash)}};
  if (planned != nullptr) {
    json["cluster"] = topology::cluster_json(planned->cluster, machine);
    json["rail_plan"] = topology::rail_plan_json(planned->rails);
    const auto predicted = forecast(machine, *planned);
    if (predicted.ok())
      json["forecast"] = tools::forecast_json(*predicted);
    else
      json["no_forecast"] = predicted.status().message();
  }
  return dump(json);
}

std::string cluster_text(const Options& options, const topology::Machine& machine, const Planned& planned) {
  std::string text;
  if (!options.rails_only) text = topology::format_cluster(planned.cluster, machine, planned.rails) + "\n";
  return text + topology::format_rail_plan(machine, planned.rails) + "\n";
}

std::string forecast_text(const topology::Machine& machine, const Planned& planned) {
  const auto predicted = forecast(machine, planned);
  return predicted.ok() ? tools::format_forecast(*predicted)
                        : fmt::format("No prediction: {}\n", predicted.status().message());
}

std::string as_text(const Options& options, const topology::Machine& machine, const Planned* planned) {
  const bool all = !options.tree_only && !options.matrix_only && planned == nullptr;
  std::string text;
  if (all || options.tree_only) text += topology::format_tree(machine);
  if (all && options.xml.empty())
    if (const auto id = topology::this_host_id(); id.ok())
      text += fmt::format("\nHost id {:016x}, {}\n", id->hash, id->label());
  if (all || options.matrix_only) text += (text.empty() ? "" : "\n") + topology::format_matrix(machine);
  if (planned != nullptr) text += (text.empty() ? "" : "\n") + cluster_text(options, machine, *planned);
  return text;
}

std::string nics_text(const Options& options, const topology::Machine& machine) {
  const bool live = options.xml.empty();
  const auto devices = live ? topology::query_rdma_devices()
                            : Result<std::vector<topology::RdmaDevice>>(
                                  error(Code::invalid_usage, "the machine is a recorded one"));
  const auto mtus = live ? tools::interface_mtus(machine) : std::vector<int>();
  return options.json ? dump(tools::nics_json(machine, devices, mtus))
                      : tools::format_nics(machine, devices, mtus);
}

/// As many ranks as the cluster has that the options speak of; one node like this where they speak of none.
Result<int> check_machine(const Options& options, const topology::Machine& machine) {
  Options meant = options;
  if (!meant.wants_cluster()) meant.cluster = 1;
  EPCCL_ASSIGN(const auto cluster, make_cluster(meant, machine));
  auto facts = tools::gather_facts(machine, cluster.nodes(), cluster.max_local_size());
  if (!cluster.uniform()) facts.ranks_of_nodes = options.ranks;
  const auto findings = tools::judge(facts);
  EPCCL_TRY(
      print(options.json ? dump(tools::findings_json(findings)) : tools::format_findings(facts, findings)));
  return tools::exit_code(findings);
}

/// The exit code.
Result<int> run(const Options& options) {
  if (options.ranks_per_node > 0 || !options.ranks.empty()) EPCCL_TRY(make_cluster(options, {}).status());
  auto machine = options.xml.empty() ? topology::discover_machine() : topology::read_machine(options.xml);
  if (!machine.ok()) return machine.status();
  if (options.check) return check_machine(options, *machine);
  if (options.nics) {
    EPCCL_TRY(print(nics_text(options, *machine)));
    return EXIT_SUCCESS;
  }
  std::optional<Planned> planned;
  if (options.wants_cluster()) {
    EPCCL_ASSIGN(planned, plan_cluster(options, *machine));
  }
  // First, so that its errors do not stand beneath what fills the screen.
  if (!options.timeline.empty()) EPCCL_TRY(write_timeline(options, *machine, *planned));
  const auto* shown = planned ? &*planned : nullptr;
  EPCCL_TRY(print(options.json ? as_json(options, *machine, shown) : as_text(options, *machine, shown)));
  // After the rest, which is there at once.
  if (planned && !options.json) EPCCL_TRY(print(forecast_text(*machine, *planned)));
  return EXIT_SUCCESS;
}

/// The exit code, where nothing is left to do.
Result<std::optional<int>> parse(int argc, char** argv, Options& options) {
  CLI::App app(
      "Shows a machine's NUMA nodes, GPUs, NICs and the paths between them, and a cluster's ranks and rails.",
      "epccl-topo");
  declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& failure) {
    if (failure.get_exit_code() != 0) {
      fmt::print(stderr, "epccl-topo: {} (--help lists what there is)\n", failure.what());
      return std::optional(exit_unusable);
    }
    std::ostringstream asked;  // --help, --version
    app.exit(failure, asked);
    EPCCL_TRY(print(asked.str()));
    return std::optional(EXIT_SUCCESS);
  }
  for (const std::string& list : options.rank_lists)
    std::ranges::copy(rank_numbers(list), std::back_inserter(options.ranks));
  return std::optional<int>();
}

/// Ends the program where memory is not to be had: as an exception that could meet destructors that allocate (JSON's do).
int code_without_memory = EXIT_FAILURE;
[[noreturn]] void out_of_memory() {
  constexpr std::string_view text = "epccl-topo: out of memory\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  _exit(code_without_memory);
}

}  // namespace

int main(int argc, char** argv) {
  std::set_new_handler(out_of_memory);
  Options options;
  const auto code = caught([&]() -> Result<int> {
    EPCCL_ASSIGN(const std::optional<int> ended, parse(argc, argv, options));
    if (options.check) code_without_memory = exit_unusable;
    return ended ? Result<int>(*ended) : run(options);
  });
  if (code.ok()) return *code;
  fmt::print(stderr, "epccl-topo: {}\n", code.status().message());
  return options.check ? exit_unusable : EXIT_FAILURE;
}
