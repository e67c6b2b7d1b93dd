// The rendezvous of one communicator: a listening socket and a thread in the process that made the id. The
// thread only moves frames between connections and the Group; it never blocks on one of them.
//
// Hubs belong to the process. A hub ends by itself when all its ranks are gone; those that are left are
// stopped when the process ends regularly, after telling the ranks so.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/status.hpp"
#include "runtime/bootstrap/group.hpp"
#include "runtime/bootstrap/hub_connection.hpp"
#include "runtime/bootstrap/rendezvous.hpp"

namespace epccl::runtime {

class Hub {
 private:
  struct Private {};

 public:
  explicit Hub(Private) {}
  /// Listens and starts the thread.
  static Result<std::unique_ptr<Hub>> start();
  /// Tells the ranks that are left, then ends the thread. Only in the process that started it.
  ~Hub();

  const Rendezvous& rendezvous() const { return rendezvous_; }
  /// Process that started it.
  pid_t owner() const { return owner_; }
  /// The thread has ended.
  bool finished() const { return finished_.load(std::memory_order_acquire); }

 private:
  using Connections = std::map<int, HubConnection>;  // by descriptor

  Status open();
  void run();
  void handle(int fd, uint32_t events);
  void accept_all();
  bool handle_frames(HubConnection& connection);
  Status handle_stranger(HubConnection& connection, const wire::Frame& frame);
  Status challenge(HubConnection& connection, const wire::Frame& frame);
  Status admit(HubConnection& connection, const wire::Frame& frame);
  void send_to_rank(int rank, const Group::Frame& frame);
  void drop(int fd, std::string why);  // a copy: what ends a connection is often told by the connection
  void flush_others_before(const HubConnection& connection);
  void flush_or_watch(HubConnection& connection);
  void drop_overdue(double now);
  int milliseconds_to_next_deadline(double now) const;
  void say_goodbye();

  Rendezvous rendezvous_;
  double timeout_ = 30;
  pid_t owner_ = 0;
  GuardedFd listener_;
  UniqueFd epoll_, stop_event_;
  Connections connections_;
  std::map<int, int> fd_of_rank_;
  int strangers_ = 0;
  double accept_again_at_ = 0;
  std::unique_ptr<Group> group_;
  std::atomic<bool> stop_{false}, finished_{false};
  std::thread thread_;
};

}  // namespace epccl::runtime
