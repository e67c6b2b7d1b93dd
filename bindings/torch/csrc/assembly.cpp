#include "assembly.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

// Each rank asks with a number of its own, and believes only an answer that repeats it:
//
//   rank r      ask/r = number ----> store ----> when all have asked         rank 0
//   its own?    <---- store <----------- answer = id, room, all numbers
//   join                             looks again until all have joined: what it has read may be an earlier rank's question
//
// What is not in the answer is left of an earlier group. The room is where the group's own keys are from then on.
namespace epccl_torch {
namespace {

using std::chrono::milliseconds, std::chrono::steady_clock;
using Bytes = std::vector<uint8_t>;
using Number = std::array<uint8_t, 16>;

constexpr char answer_key[] = "epccl/answer";
constexpr milliseconds first_look{1};
// Rank 0 says who is missing once its time is over: the others give it as much longer.
constexpr milliseconds time_to_answer{1000};

/// The longest pause between two looks: all ranks ask one store, which shall not have more to do the more there are.
milliseconds last_look(int ranks) {
  return milliseconds(20 + ranks / 4);
}

std::string ask_key(int rank) {
  return "epccl/ask/" + std::to_string(rank);
}

Number draw_number() {
  std::random_device source;
  Number number;
  std::ranges::generate(number, [&source] { return static_cast<uint8_t>(source()); });
  return number;
}

std::string room_named(const Number& number) {
  constexpr char digits[] = "0123456789abcdef";
  std::string name = "epccl/";
  for (const uint8_t byte : number) name.append({digits[byte >> 4], digits[byte & 15]});
  return name;
}

/// In the store: room, a number a rank, one byte, then the id or why there is none.
struct Answer {
  Number room;
  std::vector<Number> numbers;
  std::optional<epcclUniqueId> id;
  std::string why_none;

  Bytes packed() const {
    Bytes bytes(room.begin(), room.end());
    for (const Number& number : numbers) bytes.insert(bytes.end(), number.begin(), number.end());
    bytes.push_back(id.has_value());
    if (id)
      bytes.insert(bytes.end(), std::begin(id->internal), std::end(id->internal));
    else
      bytes.insert(bytes.end(), why_none.begin(), why_none.end());
    return bytes;
  }

  static std::optional<Answer> unpack(const Bytes& bytes, size_t ranks) {
    const size_t head = (1 + ranks) * sizeof(Number) + 1;
    if (bytes.size() < head) return std::nullopt;
    Answer answer;
    std::memcpy(answer.room.data(), bytes.data(), sizeof(Number));
    answer.numbers.resize(ranks);
    std::memcpy(answer.numbers.data(), bytes.data() + sizeof(Number), ranks * sizeof(Number));
    if (bytes[head - 1] == 0) {
      answer.why_none.assign(bytes.begin() + static_cast<ptrdiff_t>(head), bytes.end());
    } else if (bytes.size() == head + sizeof(epcclUniqueId)) {
      std::memcpy(answer.id.emplace().internal, bytes.data() + head, sizeof(epcclUniqueId));
    } else {
      return std::nullopt;
    }
    return answer;
  }
};

Answer ask(c10d::Store& store, int ranks, int rank, milliseconds timeout, const std::string& name) {
  const Number number = draw_number();
  store.set(ask_key(rank), Bytes(number.begin(), number.end()));
  const auto end = steady_clock::now() + timeout + time_to_answer;
  for (milliseconds pause = first_look;; pause = std::min(2 * pause, last_look(ranks))) {
    if (store.check({answer_key})) {
      auto answer = Answer::unpack(store.get(answer_key), static_cast<size_t>(ranks));
      if (answer && answer->numbers[static_cast<size_t>(rank)] == number) return *std::move(answer);
    }
    TORCH_CHECK_WITH(DistBackendError, steady_clock::now() < end, "epccl: ", name, ": rank 0 of ", ranks,
                     " has not answered within ", timeout.count(), " ms (rank ", rank,
                     " waits for it): it has not come, or still waits for others");
    std::this_thread::sleep_for(pause);
  }
}

/// Rank 0's side.
class Answering {
 public:
  Answering(c10d::Store& store, int ranks)
      : store_(store), pause_at_most_(last_look(ranks)), answer_{draw_number(), {}, {}, {}} {
    for (int rank = 1; rank < ranks; ++rank) keys_.push_back(ask_key(rank));
    epcclUniqueId id;
    if (epcclGetUniqueId(&id) == epcclSuccess)
      answer_.id = id;
    else
      answer_.why_none = std::string("could not make an id: ") + epcclGetLastError(nullptr);
  }

  const Answer& answer() const { return answer_; }

  /// Answers: also, after the timeout, who has not come.
  void wait_for_all(milliseconds timeout) {
    const auto end = steady_clock::now() + timeout;
    for (milliseconds pause = first_look; !keys_.empty() && !store_.check(keys_);
         pause = std::min(2 * pause, pause_at_most_)) {
      if (steady_clock::now() >= end) return give_up(timeout);
      std::this_thread::sleep_for(pause);
    }
    look();
  }

  /// Until it is asked to stop.
  void go_on(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    try {
      for (milliseconds pause = first_look; !stop.stop_requested();
           pause = std::min(2 * pause, pause_at_most_)) {
        stopped.wait_for(lock, stop, pause, [] { return false; });
        if (!stop.stop_requested()) look();
      }
    } catch (const std::exception&) {
      // The store is gone, with whoever held it: whether all have been answered is told by their joining.
    }
  }

 private:
  void give_up(milliseconds timeout) {
    std::vector<Number> numbers(1 + keys_.size());
    std::string missing;
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (store_.check({keys_[i]}))
        copy(store_.get(keys_[i]), numbers[i + 1]);
      else
        missing += (missing.empty() ? "" : ", ") + std::to_string(i + 1);
    }
    answer_.numbers = std::move(numbers);
    answer_.id.reset();
    answer_.why_none = c10::str("has waited for ", timeout.count(), " ms: of ", keys_.size() + 1,
                                " ranks these have not come: ", missing);
    store_.set(answer_key, answer_.packed());
  }

  static void copy(const Bytes& asked, Number& number) {
    std::copy_n(asked.begin(), std::min(asked.size(), sizeof(Number)), number.begin());
  }

  void look() {
    std::vector<Number> numbers(1 + keys_.size());
    const std::vector<Bytes> asked = values();
    for (size_t i = 0; i < asked.size(); ++i) copy(asked[i], numbers[i + 1]);
    if (numbers == answer_.numbers) return;
    answer_.numbers = std::move(numbers);
    store_.set(answer_key, answer_.packed());
  }

  std::vector<Bytes> values() {
    if (keys_.empty()) return {};
    if (store_.hasExtendedApi()) return store_.multiGet(keys_);
    std::vector<Bytes> all;
    for (const std::string& key : keys_) all.push_back(store_.get(key));
    return all;
  }

  c10d::Store& store_;
  const milliseconds pause_at_most_;
  std::vector<std::string> keys_;  // of ranks 1, 2, ...
  Answer answer_;
};

}  // namespace

std::shared_ptr<Communicator> assemble(c10::intrusive_ptr<c10d::Store>& store, int ranks, int rank,
                                       const SharedTimeout& timeout, const std::string& name) {
  std::optional<Answering> answering;
  if (rank == 0) answering.emplace(*store, ranks).wait_for_all(*timeout);
  const Answer answer = rank == 0 ? answering->answer() : ask(*store, ranks, rank, *timeout, name);
  TORCH_CHECK_WITH(DistBackendError, answer.id.has_value(), "epccl: ", name, ": rank 0 ", answer.why_none);
  std::jthread meanwhile;
  if (answering && ranks > 1)
    meanwhile = std::jthread([&answering](const std::stop_token& stop) { answering->go_on(stop); });
  // For host memory. Where a GPU is current, as it is in some ranks' threads and not in others', the library would prepare all for that.
  const auto without_gpu = [&] {
    return std::make_shared<Communicator>(*answer.id, ranks, rank, in_seconds(*timeout), name, [] {});
  };
  auto communicator = std::async(std::launch::async, without_gpu).get();
  meanwhile = {};
  store = c10::make_intrusive<c10d::PrefixStore>(room_named(answer.room), std::move(store));
  return communicator;
}

}  // namespace epccl_torch
