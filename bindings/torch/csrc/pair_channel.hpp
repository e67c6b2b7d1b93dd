// Messages from one rank to one other, matched by tag.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "meeting.hpp"
#include "work.hpp"

namespace epccl_torch {

/// torch.distributed's sends and receives are matched by tag, may be issued in any order, and must not wait for each other. So each
/// direction between two ranks has a communicator and a thread of its own, both made when first used. A message is a header with
/// tag and size, then its bytes.
class PairChannel {
 public:
  /// What both ends agree on; `meeting.rank` 0 sends, 1 receives.
  explicit PairChannel(Meeting meeting);
  PairChannel(const PairChannel&) = delete;
  PairChannel& operator=(const PairChannel&) = delete;
  ~PairChannel();

  struct Message {
    CallPtr call;
    void* data;
    uint64_t bytes;
    int tag;
  };
  void issue(Message message);
  /// Ends the channel; what is still pending has no partner, and fails.
  void leave();
  /// Fails all that is pending. Any thread.
  void abort() noexcept;

 private:
  void serve();
  void send_one();
  void receive_one();
  void take_early(std::unique_lock<std::mutex>& lock);
  void fail_all(const std::exception_ptr& why);

  Meeting meeting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> posted_;
  std::map<int, std::deque<std::vector<std::byte>>> early_;  // came before their receives, by tag
  std::shared_ptr<Communicator> communicator_;
  bool busy_ = false, over_ = false;
  const std::shared_ptr<std::atomic<bool>> aborted_ = std::make_shared<std::atomic<bool>>(false);
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace epccl_torch
