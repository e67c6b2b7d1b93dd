// Another process with a GPU (peer_process.cpp), which does what it is told: one request, one reply.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "device/device.hpp"

namespace epccl::device::test {

struct PeerRequest {
  enum What : uint32_t {
    allocate,  // `bytes` shareable bytes of numbers(bytes, seed): replies with their handle
    free,      // that memory
    read,      // maps `handle`, replies with `bytes` of it
    write,     // maps `handle`, writes numbers(bytes, seed)
  } what;
  uint32_t seed;
  uint64_t bytes;
  MemoryHandle handle;
};

struct PeerReply {
  char error[256];  // empty: ok
  MemoryHandle handle;
  uint64_t bytes;  // that follow
};

inline void write_all(int fd, const void* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t count = ::write(fd, static_cast<const char*>(data) + done, bytes - done);
    if (count <= 0) throw std::runtime_error("the other process is gone");
    done += static_cast<size_t>(count);
  }
}

inline bool read_all(int fd, void* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t count = ::read(fd, static_cast<char*>(data) + done, bytes - done);
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

#ifdef EPCCL_CUDA_PEER
class Peer {
 public:
  Peer() {
    int in[2], out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    const UniqueFd childs_input(in[0]), childs_output(out[1]);
    input_.reset(in[1]);
    output_.reset(out[0]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, childs_input.get(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, childs_output.get(), STDOUT_FILENO);
    std::string name = EPCCL_CUDA_PEER;
    char* arguments[] = {name.data(), nullptr};
    const int failed = ::posix_spawn(&pid_, name.c_str(), &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) throw std::runtime_error("cannot start " + name);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() { kill(); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  MemoryHandle allocate(uint64_t bytes, uint32_t seed) {
    return ask({PeerRequest::allocate, seed, bytes, {}}).handle;
  }
  void free() { ask({PeerRequest::free, 0, 0, {}}); }
  void write(const MemoryHandle& handle, uint64_t bytes, uint32_t seed) {
    ask({PeerRequest::write, seed, bytes, handle});
  }
  std::vector<std::byte> read(const MemoryHandle& handle, uint64_t bytes) {
    ask({PeerRequest::read, 0, bytes, handle});
    return bytes_;
  }

 private:
  PeerReply ask(const PeerRequest& request) {
    write_all(input_.get(), &request, sizeof request);
    PeerReply reply{};
    if (!read_all(output_.get(), &reply, sizeof reply)) throw std::runtime_error("the other process is gone");
    bytes_.resize(reply.bytes);
    if (!read_all(output_.get(), bytes_.data(), reply.bytes))
      throw std::runtime_error("the other process is gone");
    if (reply.error[0] != 0) throw std::runtime_error(reply.error);
    return reply;
  }

  pid_t pid_ = -1;
  UniqueFd input_, output_;
  std::vector<std::byte> bytes_;
};
#endif

}  // namespace epccl::device::test
