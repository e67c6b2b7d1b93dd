#include "topology/read_machine.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.hpp"
#include "topology/hwloc_machine.hpp"
#include "topology/hwloc_xml.hpp"
#include "topology/nccl_xml.hpp"
#include "topology/xml_guard.hpp"

namespace epccl::topology {
namespace {

/// The whole of a regular file, no more than the limit.
Result<std::string> read_file(const std::string& path) {
  // O_NONBLOCK: a FIFO without a writer must not block; it is refused below.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return system_error(errno, fmt::format("cannot open {}", path));
  struct stat about {};
  if (fstat(file.get(), &about) != 0) return system_error(errno, fmt::format("cannot stat {}", path));
  if (!S_ISREG(about.st_mode)) return error(Code::invalid_argument, "{}: not a regular file", path);
  if (static_cast<uint64_t>(about.st_size) > XmlLimits::bytes)
    return error(Code::invalid_argument, "{}: {} bytes, larger than {} MiB", path, about.st_size,
                 XmlLimits::bytes >> 20);
  std::string text;
  char chunk[65536];
  while (text.size() <= XmlLimits::bytes) {
    const ssize_t got = read(file.get(), chunk, sizeof chunk);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(errno, fmt::format("cannot read {}", path));
    text.append(chunk, static_cast<size_t>(got));
  }
  return text;
}

Result<Machine> machine_from_hwloc_xml(const pugi::xml_node& root) {
  EPCCL_ASSIGN(const HwlocTree tree, read_hwloc_xml(root));
  MachineBuilder builder;
  EPCCL_TRY(add_hwloc_objects(tree, builder));
  return std::move(builder).build();
}

Result<Machine> parse(std::string_view xml) {
  EPCCL_TRY(check_xml_limits(xml));
  pugi::xml_document document;
  const auto parsed = document.load_buffer(xml.data(), xml.size());
  if (!parsed)
    return error(Code::invalid_argument, "broken XML at byte {}: {}", parsed.offset, parsed.description());
  const auto root = document.document_element();
  const std::string_view name = root.name();
  const bool is_nccl = name == "system";
  if (!is_nccl && name != "topology")
    return error(Code::invalid_argument,
                 "the root element is <{:.40}>, not <topology> (hwloc) or <system> (NCCL, RCCL)", name);
  EPCCL_ASSIGN(Machine machine, is_nccl ? machine_from_nccl_xml(root) : machine_from_hwloc_xml(root));
  machine.source = is_nccl ? "NCCL XML" : "hwloc XML";
  return machine;
}

}  // namespace

Result<Machine> read_machine(const std::string& path) {
  EPCCL_ASSIGN(const std::string text, read_file(path));
  return parse_machine(text, path);
}

Result<Machine> parse_machine(std::string_view xml, const std::string& name) {
  auto machine = parse(xml);
  if (!machine.ok()) return std::move(machine).take_status().with_context(name);
  machine->source = fmt::format("{} {}", machine->source, name);
  return machine;
}

}  // namespace epccl::topology
