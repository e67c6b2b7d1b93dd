// A rendezvous: a listening socket and a thread. The thread only moves frames between connections and their Roster; it
// never blocks on one of them.
//
// The hub of an id serves one group, and ends by itself when all its ranks are gone. A standing hub only listens until it is
// asked to serve (who connects before waits); it then serves any number of groups, told apart by the number of their session,
// and ends when it is retired and all of them are gone.
// Hubs that serve belong to the process. When that ends regularly, each stays a little for ranks of other processes that are still
// in their last call and may have something to look up; then it is stopped, after telling the ranks so.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/status.hpp"
#include "runtime/bootstrap/hub_connection.hpp"
#include "runtime/bootstrap/rendezvous.hpp"
#include "runtime/bootstrap/roster.hpp"

namespace epccl::runtime {

class Hub {
 private:
  struct Private {};

 public:
  explicit Hub(Private) {}
  /// The hub of an id, at EPCCL_COMM_ID's address or the one that interfaces give: listens and serves session 0. Where this
  /// process has that port already, for an earlier id, at one that the system chooses: the id tells it.
  static Result<std::shared_ptr<Hub>> start();
  /// A standing hub, at the address that interfaces give: listens.
  static Result<std::shared_ptr<Hub>> stand();
  /// Starts the thread of a standing hub, once.
  Status serve();
  /// A standing hub takes on no more sessions after those it has.
  void retire();
  /// Tells the ranks that are left, and why if that is told, then ends the thread. Only in the process that started it.
  void stop(const std::string& why = "");
  /// The process ends: the thread shall end once no others are left, or after a while. Waits for nothing.
  void let_the_others_end();
  /// Waits for that.
  void stop_after_the_others();
  ~Hub() { stop(); }

  const Rendezvous& rendezvous() const { return rendezvous_; }
  /// The thread has ended.
  bool finished() const { return finished_.load(std::memory_order_acquire); }

 private:
  using Connections = std::map<int, HubConnection>;  // by descriptor
  struct Session {
    std::unique_ptr<Roster> roster;
    std::map<int, int> fd_of_rank;
  };

  Status open(const net::Endpoint& at);
  Status start_thread();
  void run();
  void serve_all();
  bool done();
  bool is_forgotten();
  bool others_are_left() const;
  Session& session(uint64_t number);
  /// Ranks that have given this one up may meet again as the same one: what is left of it goes on beside.
  void set_aside(uint64_t number);
  /// How much there was to do: at most 0, nothing.
  int serve_round(int patience_milliseconds);
  void handle(int fd, uint32_t events);
  void accept_all();
  void rest_from_accepting(int reason);
  bool handle_frames(HubConnection& connection);
  Status handle_stranger(HubConnection& connection, const wire::Frame& frame);
  Status challenge(HubConnection& connection, const wire::Frame& frame);
  Status admit(HubConnection& connection, const wire::Frame& frame);
  /// Says why, then hangs up.
  void refuse(HubConnection& connection, const std::string& why);
  void send_to_rank(const Session& session, int rank, const Roster::Frame& frame);
  void drop(int fd, Status why);  // a copy: what ends a connection is often told by the connection
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
  std::map<uint64_t, Session> sessions_;
  uint64_t set_aside_ = UINT64_MAX;  // the number that the next one gets
  double forgotten_at_ = 0;          // when an id that was given up ends; 0: it was not
  int strangers_ = 0;
  double accept_again_at_ = 0;
  double crowded_since_ = 0;  // no connection could be accepted since; 0: it could
  bool standing_ = false;
  std::string why_;  // set before stop_
  std::atomic<bool> stop_{false}, retired_{false}, finished_{false};
  std::atomic<double> stop_at_{0};  // 0: not yet
  std::mutex starting_;
  std::thread thread_;
};

}  // namespace epccl::runtime
