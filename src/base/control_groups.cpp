#include "base/control_groups.hpp"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

namespace epccl {
namespace {

/// Whether a list with commas has the word.
bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (list.substr(0, comma) == word) return true;
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  return false;
}

/// Where a process is in the hierarchy of a controller.
struct Place {
  bool is_unified = false;  // version 2
  std::string path;
};

/// Of "4:cpu,cpuacct:/a/b" and "0::/a/b" the first that has the controller, else the second.
std::optional<Place> place_of(std::string_view controller, const std::string& proc) {
  std::ifstream file(proc + "/cgroup");
  std::optional<Place> unified;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (has_word(controllers, controller)) return Place{false, line.substr(second + 1)};
    if (controllers.empty()) unified = Place{true, line.substr(second + 1)};
  }
  return unified;
}

/// Where a hierarchy, or a part of it, is mounted.
struct Mount {
  std::string part, directory;
};

/// "31 23 0:26 PART DIRECTORY options ... - type source super-options".
std::optional<Mount> mount_of(const Place& place, std::string_view controller, const std::string& proc) {
  std::ifstream file(proc + "/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string skipped, type, source, options;
    Mount mount;
    fields >> skipped >> skipped >> skipped >> mount.part >> mount.directory;
    while (fields >> skipped && skipped != "-") {
    }
    if (!(fields >> type >> source >> options)) continue;
    if (place.is_unified ? type == "cgroup2" : type == "cgroup" && has_word(options, controller))
      return mount;
  }
  return std::nullopt;
}

/// `path` seen from what is mounted; "" where it is not below that: a container may be shown its own group as if it were all.
std::string below(const std::string& path, const std::string& part) {
  if (!path.starts_with('/') || path == "/" || path.find("/..") != std::string::npos) return "";
  if (part == "/") return path;
  if (!path.starts_with(part) || (path.size() > part.size() && path[part.size()] != '/')) return "";
  return path.substr(part.size());
}

std::optional<double> first_number(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

/// Cores' worth of time; 0: no quota.
double quota_of(const std::string& group) {
  // Version 2: "max 100000" or "150000 100000".
  std::ifstream unified(group + "/cpu.max");
  std::string quota;
  double period = 0;
  if (unified >> quota >> period && period > 0)
    return quota == "max" ? 0 : std::strtod(quota.c_str(), nullptr) / period;
  // Version 1: two files, and -1 is no quota.
  const auto old_quota = first_number(group + "/cpu.cfs_quota_us");
  const auto old_period = first_number(group + "/cpu.cfs_period_us");
  return old_quota && *old_quota > 0 && old_period && *old_period > 0 ? *old_quota / *old_period : 0;
}

/// The directory's place in the kernel's tables, which namespaces and mounts do not change.
uint64_t number_of(const std::string& group) {
  struct stat about {};
  if (stat(group.c_str(), &about) != 0) return 0;
  constexpr int device_shift = 48;
  return about.st_ino ^ about.st_dev << device_shift;
}

}  // namespace

std::vector<std::string> control_groups(std::string_view controller, const std::string& proc,
                                        const std::string& root) {
  const auto place = place_of(controller, proc);
  const auto mount = place ? mount_of(*place, controller, proc) : std::nullopt;
  if (!mount) return {};
  std::vector<std::string> groups;
  for (std::string path = below(place->path, mount->part);; path.resize(path.rfind('/'))) {
    groups.push_back(root + mount->directory + path);
    if (path.empty()) return groups;
  }
}

CpuQuota cpu_quota(const std::vector<std::string>& groups) {
  CpuQuota least;
  for (const std::string& group : groups) {
    const double cores = quota_of(group);
    if (cores > 0 && (least.cores == 0 || cores < least.cores)) least = {cores, number_of(group)};
  }
  return least;
}

}  // namespace epccl
