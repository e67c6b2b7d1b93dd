// A file descriptor that closes itself, and is none of the three standard ones.
//
// Where a program has closed its standard error, say, as daemons do, the next descriptor that is made has its number, and what the program
// or a library then prints goes to a peer. So whatever makes a descriptor hands it to this type before it is used.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace epccl {

class UniqueFd {
 public:
  UniqueFd() = default;
  /// What a call has returned that makes descriptors: -1 and errno stay. One with a standard number gets another (close-on-exec, as all
  /// are here); where there is none left, it is -1, and errno EMFILE, as of a call that failed.
  explicit UniqueFd(int fd) : fd_(is_standard(fd) ? above_standard(fd) : fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = other.release();
    }
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void reset(int fd) { *this = UniqueFd(fd); }

 private:
  static bool is_standard(int fd) { return fd >= STDIN_FILENO && fd <= STDERR_FILENO; }
  static int above_standard(int fd) {
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    ::close(fd);
    if (moved < 0) errno = EMFILE;  // EINVAL where the limit is 3
    return moved;
  }

  int fd_ = -1;
};

}  // namespace epccl
