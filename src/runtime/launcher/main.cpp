// epccl-run: starts a program as several ranks on this machine.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "job.hpp"
#include "options.hpp"
#include "warden.hpp"

namespace epccl::launcher {
namespace {

/// A private directory that goes away with this object.
class Store {
 public:
  static Result<Store> make() {
    const char* named = std::getenv("TMPDIR");
    const bool is_named = named && *named;
    const std::string folder = is_named ? named : "/tmp";
    // Ranks look for it from where they are then, and the warden when they are gone.
    std::error_code failed;
    std::string path = std::filesystem::absolute(folder + "/epccl-run-XXXXXX", failed);
    if (failed || !mkdtemp(path.data()))
      return system_error(failed ? failed.value() : errno,
                          fmt::format("making a directory in {}{}", is_named ? "TMPDIR=" : "", folder));
    return Store(std::move(path));
  }
  Store(Store&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  Store& operator=(Store&&) = delete;
  ~Store() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit Store(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

Result<int> run(const Options& options) {
  EPCCL_ASSIGN(const Store store, Store::make());
  EPCCL_ASSIGN(const Warden warden, Warden::start(store.path()));
  return Job(options, store.path()).run();
}

// Where one of the standard descriptors is closed, a pipe of the launcher's own would become it, and be given to ranks as theirs. What is
// written to it is an error still.
void open_standard_descriptors() {
  int fd = open("/dev/null", O_RDONLY);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDONLY);
  if (fd >= 0) close(fd);
}

}  // namespace
}  // namespace epccl::launcher

int main(int argc, char** argv) {
  epccl::launcher::open_standard_descriptors();
  const auto parsed = epccl::launcher::parse_command_line(argc, argv);
  if (parsed.exit_code >= 0) return parsed.exit_code;
  const auto code = epccl::launcher::run(parsed.options);
  if (code.ok()) return *code;
  std::cerr << "epccl-run: " << code.status().message() << "\n";
  return 1;
}
