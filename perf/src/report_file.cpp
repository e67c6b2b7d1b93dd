#include "perf/src/report_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/file_size.hpp"

namespace epccl::perf {
namespace {

constexpr mode_t anybodys = 0666;  // less the umask

/// What a link leads to is replaced, not the link.
std::string behind_links(const std::string& path) {
  std::error_code none;
  const std::filesystem::path real = std::filesystem::canonical(path, none);
  return none ? path : real.string();
}

/// /dev/stdout, where that goes to a file: what is printed there has to stay in it.
bool is_standard_output(const struct stat& there) {
  struct stat output {};
  return fstat(STDOUT_FILENO, &output) == 0 && output.st_dev == there.st_dev && output.st_ino == there.st_ino;
}

Status write_all(int fd, std::string_view text) {
  const NoFileSizeSignal none;
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error(errno, "writing");
    text.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

}  // namespace

Result<ReportFile> ReportFile::open(const std::string& path) {
  ReportFile file;
  file.path_ = behind_links(path);
  file.beside_ = fmt::format("{}.{}", file.path_, getpid());
  struct stat there {};
  const bool exists = stat(file.path_.c_str(), &there) == 0;
  if (exists && is_standard_output(there)) {
    file.in_place_ = UniqueFd(dup(STDOUT_FILENO));
    file.is_appended_ = true;
    return file;
  }
  const bool may_be_replaced = !exists || (S_ISREG(there.st_mode) && access(file.path_.c_str(), W_OK) == 0);
  if (may_be_replaced && file.create_beside().ok()) {
    unlink(file.beside_.c_str());
    if (exists) file.mode_ = there.st_mode & 07777;
    return file;
  }
  file.in_place_ = UniqueFd(::open(file.path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, anybodys));
  if (!file.in_place_) return system_error(errno, path);
  return file;
}

Status ReportFile::write(std::string_view text) {
  if (is_replaced()) return replace(text);
  if (!is_appended_) static_cast<void>(ftruncate(in_place_.get(), 0));  // a pipe has no length
  return write_all(in_place_.get(), text);
}

Status ReportFile::replace(std::string_view text) const {
  EPCCL_ASSIGN(UniqueFd beside, create_beside());
  Status status = write_all(beside.get(), text);
  if (status.ok() && mode_ != 0 && fchmod(beside.get(), mode_) != 0) status = system_error(errno, "fchmod");
  // Some file systems say only now that there is no room.
  if (::close(beside.release()) != 0 && status.ok()) status = system_error(errno, "closing");
  if (status.ok() && std::rename(beside_.c_str(), path_.c_str()) != 0)
    status = system_error(errno, "renaming");
  if (!status.ok()) unlink(beside_.c_str());
  return status;
}

Result<UniqueFd> ReportFile::create_beside() const {
  unlink(beside_.c_str());  // of a process that had this number
  UniqueFd fd(::open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, anybodys));
  if (!fd) return system_error(errno, beside_);
  return fd;
}

}  // namespace epccl::perf
