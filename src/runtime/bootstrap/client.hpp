// A rank's end of the control line. See bootstrap.hpp for what it offers.
//
// Two locks: `reading_` for whoever takes frames off the line (a blocking call, or poll_notice), `writing_`
// for the queue of frames to send. So a thread can report a failure, or leave, while another one blocks in an
// allgather.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/fork_guard.hpp"
#include "runtime/bootstrap/bootstrap.hpp"
#include "runtime/bootstrap/call_reports.hpp"
#include "runtime/bootstrap/rendezvous.hpp"
#include "runtime/bootstrap/wire.hpp"

namespace epccl::runtime {

class Client final : public Bootstrap {
 public:
  Client(int rank, int ranks, double timeout, JoinOptions options)
      : rank_(rank), ranks_(ranks), timeout_(timeout), options_(std::move(options)) {}
  ~Client() override;

  /// Connects, proves, and waits for all ranks.
  Status join(const Rendezvous& rendezvous);

  Result<std::vector<Blob>> allgather(std::span<const std::byte> mine) override;
  Status barrier() override;
  Status publish(const std::string& key, std::span<const std::byte> blob) override;
  Result<Blob> lookup(int rank, const std::string& key) override;
  int fd() const override { return epoll_.get(); }
  std::optional<Notice> poll_notice() override;
  void report_failure(const Status& why) override;
  void report_stall(const StallReport& report) override;
  std::string describe_others(bool briefly = false) override;
  std::vector<int> lost_ranks() override;
  uint32_t announce_shrink(std::span<const int> excluded) override;
  std::optional<ShrinkVerdict> shrink_verdict(uint32_t number, bool ask) override;
  std::string who_left(std::span<const int> ranks) override;
  bool is_alone() override;
  void leave(uint64_t last_call) noexcept override;

  /// The process ends regularly, and nobody will leave() any more. Any thread.
  void tell_end();
  /// Waits until the hub knows. After tell_end().
  void await_end(double deadline);

 private:
  struct Answer {
    bool heard = false;  // false: the hub has not answered
    int joined = 0;
    std::string missing, doing;
    std::vector<int> lost;
  };
  struct Found {
    bool success = false;
    Blob blob;
  };
  enum class Line : uint8_t { open, closed_regularly, broken };

  bool interrupted() const { return options_.interrupt != nullptr && options_.interrupt->fired(); }
  Status interruption() const;
  Status join_unless_stopped(const Rendezvous& rendezvous);
  Result<UniqueFd> try_to_connect(const net::Endpoint& to, double deadline) const;
  Status connect(const Rendezvous& rendezvous, double deadline);
  void open_line(UniqueFd fd);
  void say_not_coming(const Rendezvous& rendezvous);
  Status prove(const Rendezvous& rendezvous, double deadline, bool& retry);
  Status wait_for_all(double deadline);
  Status refusal() const;
  Result<wire::Bytes> gather(wire::GatherKind kind, std::span<const std::byte> mine);

  // With reading_ held.
  // A goodbye, or a question about what went wrong, is not interrupted: it has its own, short patience.
  Status pump(double deadline, const std::function<bool()>& done, bool& timed_out, bool interruptible = true);
  /// As pump(), for what others have to come to: once that takes long `missing` is asked what it is, for a warning.
  Status pump_aloud(double deadline, const std::function<bool()>& done, bool& timed_out,
                    const std::function<std::string()>& missing);
  void read_line();
  void handle(const wire::Frame& frame);
  std::vector<int> ranks_in(wire::Reader& body) const;
  void have_joined(wire::Reader& body);
  void take_found(wire::Reader& body);
  void take_answer(wire::Reader& body);
  void take_notice(wire::Reader& body);
  void take_verdict(wire::Reader& body);
  int take_left(wire::Reader& body);
  void line_ended(const Status& why);
  void add_notice(Notice notice);
  static constexpr double question_patience = 2, brief_patience = 0.5;  // seconds
  void put_question();
  Answer ask(double patience);
  Answer hear_all(double patience);
  void hang_up(uint64_t last_call);

  void queue(wire::Bytes frame);
  /// Sends what the socket takes; true when all is sent.
  bool flush();
  void send_failure(const Status& why);
  bool flush_until(double deadline);

  const int rank_;
  const int ranks_;
  const double timeout_;
  JoinOptions options_;
  std::string hub_;              // "host a, pid 7 at 10.0.0.1:4242"
  bool lives_with_hub_ = false;  // in its process; known when all have joined

  GuardedFd line_;
  UniqueFd epoll_, notice_event_;

  std::mutex reading_;
  Line state_ = Line::broken;
  wire::Splitter splitter_;
  bool has_claimed_ = false;  // to be its rank
  bool joined_ = false, hub_may_close_ = false, left_ = false, has_ended_ = false;
  std::vector<int> hub_ranks_;  // that live in the hub's process, and have not left
  bool watches_ = false;
  CallReports calls_;  // ranks that have left, as far as this one was told; without a hub also its own waits
  std::optional<std::string> refused_;
  std::optional<wire::Bytes> challenge_, gathered_;
  std::map<uint32_t, Found> found_;
  uint32_t question_ = 0;  // the last one: an answer to another comes when nobody waits for it any more
  Answer answer_;          // to that
  std::map<uint32_t, ShrinkVerdict> verdicts_;  // by the number of a shrink
  uint32_t gathers_ = 0, requests_ = 0;
  std::deque<Notice> notices_;          // not yet polled
  std::optional<Notice> first_notice_;  // every later blocking call fails with it

  std::mutex writing_;
  uint32_t shrinks_ = 0;
  wire::Bytes unsent_;
  size_t sent_ = 0;
};

}  // namespace epccl::runtime
