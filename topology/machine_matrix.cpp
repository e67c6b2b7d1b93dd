#include <algorithm>
#include <vector>

#include "topology/machine_printer.hpp"
#include "topology/paths.hpp"

namespace epccl::topology {
namespace {

constexpr const char* legend =
    "Legend:\n\n"
    "  X    = Self\n"
    "  SYS  = Between NUMA nodes\n"
    "  NODE = Between PCIe host bridges of one NUMA node\n"
    "  PHB  = Through a PCIe host bridge (the CPU)\n"
    "  PXB  = Several PCIe switches, not the host bridge\n"
    "  PIX  = At most one PCIe switch\n"
    "  NV#  = # NVLinks, direct or through NVSwitches\n"
    "  XG#  = # xGMI links\n";

/// Cells in columns as wide as their widest cell.
std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

class MatrixPrinter {
 public:
  explicit MatrixPrinter(const Machine& machine)
      : machine_(machine),
        gpus_(static_cast<int>(machine.gpus.size())),
        nics_(static_cast<int>(machine.nics.size())) {}

  std::string print() const {
    std::vector<std::string> header{""};
    for (int i = 0; i < gpus_ + nics_; ++i) header.push_back(label(i));
    header.insert(header.end(), {"CPU Affinity", "NUMA Affinity"});
    std::vector<std::vector<std::string>> rows{std::move(header)};
    for (int i = 0; i < gpus_ + nics_; ++i) rows.push_back(row(i));

    std::string text = format_table(rows) + "\n" + legend;
    if (nics_ > 0) text += "\nNIC Legend:\n\n";
    for (int i = 0; i < nics_; ++i)
      text += fmt::format("  {}: {}\n", label(gpus_ + i), machine_.nics[static_cast<size_t>(i)].name);
    return text;
  }

 private:
  // Devices are numbered GPUs first, then NICs.
  std::string label(int device) const {
    if (device >= gpus_) return fmt::format("NIC{}", device - gpus_);
    return fmt::format("GPU{}", machine_.gpus[static_cast<size_t>(device)].index);
  }

  std::string cell(int a, int b) const {
    if (a == b) return "X";
    if (a >= gpus_ && b >= gpus_) return to_string(nic_path(machine_, a - gpus_, b - gpus_));
    if (a >= gpus_) std::swap(a, b);
    if (b >= gpus_) return to_string(gpu_nic_path(machine_, a, b - gpus_));
    const GpuConnection links = connection(machine_, a, b);
    if (links.count > 0)
      return fmt::format("{}{}", links.kind == LinkKind::nvlink ? "NV" : "XG", links.count);
    return to_string(gpu_path(machine_, a, b));
  }

  std::vector<std::string> row(int device) const {
    std::vector<std::string> cells{label(device)};
    for (int other = 0; other < gpus_ + nics_; ++other) cells.push_back(cell(device, other));
    const int numa = device < gpus_ ? machine_.gpus[static_cast<size_t>(device)].numa
                                    : machine_.nics[static_cast<size_t>(device - gpus_)].numa;
    if (numa < 0) {
      cells.insert(cells.end(), {"N/A", "N/A"});
    } else {
      const NumaNode& node = machine_.numa_nodes[static_cast<size_t>(numa)];
      cells.push_back(node.cpus.empty() ? "N/A" : format_cpu_list(node.cpus));
      cells.push_back(fmt::format("{}", node.os_index));
    }
    return cells;
  }

  const Machine& machine_;
  int gpus_, nics_;
};

}  // namespace

std::string format_matrix(const Machine& machine) {
  return MatrixPrinter(machine).print();
}

}  // namespace epccl::topology
