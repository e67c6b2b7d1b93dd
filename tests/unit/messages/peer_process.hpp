// Rank 1 in a process of its own (message_peer.cpp): answers one message, then does nothing until killed.
//
//   test                                   message_peer
//     <---------- stdout: its address ---------
//     ----------- stdin: my address ---------->
//     ----------- hello_key ------------------>
//     <---------- farewell_key (8 bytes) -------
//     <---------- answer_key -------------------  then asleep
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "transports/transport.hpp"

namespace epccl::transports {

inline void write_blob(int fd, const std::vector<std::byte>& blob) {
  const uint64_t size = blob.size();
  if (::write(fd, &size, sizeof size) != sizeof size ||
      ::write(fd, blob.data(), size) != static_cast<ssize_t>(size)) {
    throw std::runtime_error("the other process is gone");
  }
}

inline std::vector<std::byte> read_blob(int fd) {
  uint64_t size = 0;
  if (::read(fd, &size, sizeof size) != sizeof size) throw std::runtime_error("the other process is gone");
  std::vector<std::byte> blob(size);
  for (size_t done = 0; done < size;) {
    const ssize_t got = ::read(fd, blob.data() + done, size - done);
    if (got <= 0) throw std::runtime_error("the other process is gone");
    done += static_cast<size_t>(got);
  }
  return blob;
}

class PeerProcess {
 public:
  static constexpr MessageKey hello_key = 1, answer_key = 2, farewell_key = 3;

#ifdef MESSAGE_PEER
  PeerProcess(const std::string& transport, int rank, int ranks, const std::string& behaviour = "answer") {
    int to_child[2], from_child[2];
    if (::pipe2(to_child, O_CLOEXEC) != 0 || ::pipe2(from_child, O_CLOEXEC) != 0)
      throw std::runtime_error("pipe");
    const UniqueFd childs_input(to_child[0]), childs_output(from_child[1]);
    input_.reset(to_child[1]);
    output_.reset(from_child[0]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, childs_input.get(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, childs_output.get(), STDOUT_FILENO);
    std::vector<std::string> words{MESSAGE_PEER, transport, std::to_string(rank), std::to_string(ranks),
                                   behaviour};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int failed = ::posix_spawn(&pid_, MESSAGE_PEER, &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) throw std::runtime_error("cannot start " MESSAGE_PEER);
    address_ = read_blob(output_.get());
  }
  ~PeerProcess() {
    kill();
  }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  const std::vector<std::byte>& address() const {
    return address_;
  }
  void connect(const std::vector<std::byte>& address) {
    write_blob(input_.get(), address);
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  UniqueFd input_, output_;
  std::vector<std::byte> address_;
#endif
};

}  // namespace epccl::transports
