#include "runtime/bootstrap/old_stores.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/unique_fd.hpp"

namespace epccl::runtime {
namespace {

constexpr time_t old_age =
    24 * 60 * 60;  // seconds: versions that hold no lock wait so long only where they are told to
constexpr size_t digits = 32;

bool is_old(const struct stat& about) {
  return std::time(nullptr) - about.st_mtime > old_age;
}

bool is_private_name(const std::string& name) {
  const std::string start = start_of_private_names();
  return name.size() == start.size() + digits && name.starts_with(start) &&
         name.find_first_not_of("0123456789abcdef", start.size()) == std::string::npos;
}

/// "ask.0.1", "id.0.1", and what they are called before they are whole.
bool is_mailbox(std::string_view name) {
  if (name.starts_with('.')) name.remove_prefix(1);
  return name.starts_with("ask.") || name.starts_with("id.");
}

/// The directory, opened and locked, where it is this user's, old, and nobody's any more.
UniqueFd take_old(int folder, const std::string& name) {
  UniqueFd fd(openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  if (!fd || fstat(fd.get(), &about) != 0 || about.st_uid != geteuid() || (about.st_mode & 077u) != 0 ||
      !is_old(about) || flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    return {};
  return fd;
}

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  std::error_code ended;
  for (std::filesystem::directory_iterator each(path, ended), end; !ended && each != end;
       each.increment(ended))
    names.push_back(each->path().filename());
  return names;
}

}  // namespace

std::string start_of_private_names() {
  return fmt::format("epccl-{}-", geteuid());
}

bool hold_private_directory(int directory) {
  static_cast<void>(flock(directory, LOCK_SH));
  struct stat about {};
  return fstat(directory, &about) != 0 || about.st_nlink > 0;
}

void remove_old_stores(const std::string& folder) {
  const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return;
  for (const std::string& name : names_in(folder)) {
    if (!is_private_name(name)) continue;
    const UniqueFd old = take_old(fd.get(), name);
    if (!old) continue;
    const auto files = names_in(fmt::format("/proc/self/fd/{}", old.get()));
    if (!std::ranges::all_of(files, is_mailbox)) continue;
    for (const std::string& file : files) unlinkat(old.get(), file.c_str(), 0);
    unlinkat(fd.get(), name.c_str(), AT_REMOVEDIR);
  }
}

}  // namespace epccl::runtime
