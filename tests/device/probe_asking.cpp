#include "probe_asking.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <thread>

#include "base/clock.hpp"

namespace epccl::device::probe {
namespace {

using State = Answer::State;

/// For a process to start, and to open a GPU.
constexpr double time_to_start = 20;
/// Between two looks of those who wait.
constexpr auto glance = std::chrono::milliseconds(1);

/// What the processes of a question share. Whoever reads may come while the other writes.
struct Board {
  std::atomic<State> state{State::asked};
  std::atomic<bool> was_ended{false};
  std::atomic<double> seconds{0}, others_call{0}, others_work{0};
  std::atomic<const char*> others_name{""};  // of this program: the same in all its processes
  std::atomic<bool> has_memory{false};
  CUipcMemHandle memory{};
  std::array<std::atomic<int>, kinds_of_work.size()> stuck{};
  char text[256]{};
};

/// In memory that forked processes share.
class SharedBoard {
 public:
  SharedBoard() {
    void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory to share");
    board_ = new (memory) Board{};
  }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  ~SharedBoard() { munmap(board_, sizeof(Board)); }
  Board& operator*() const { return *board_; }
  Board* operator->() const { return board_; }

 private:
  Board* board_;
};

bool wait_for(const std::function<bool()>& is_true, double seconds) {
  const double until = now_seconds() + seconds;
  while (!is_true()) {
    if (now_seconds() >= until) return false;
    std::this_thread::sleep_for(glance);
  }
  return true;
}

/// Ends the wait of a lab's streams, and this process where that does not help.
class Watchdog {
 public:
  Watchdog(const Lab& lab, Board& board, double longest)
      : board_(board), thread_([this, &lab, longest] { watch(lab, longest); }) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() {
    returned_ = over_ = true;
    thread_.join();
  }
  /// The call has: the stream may go on.
  void returned() { returned_ = true; }
  bool has_released() const { return has_released_; }

 private:
  void watch(const Lab& lab, double longest) {
    // Others are watched for a moment, even if the call returns at once.
    constexpr double least_hold = 0.25;
    const double begin = now_seconds();
    wait_for([this] { return returned_.load(); }, longest);
    std::this_thread::sleep_for(
        std::chrono::duration<double>(std::max(begin + least_hold - now_seconds(), 0.0)));
    lab.release();
    has_released_ = true;
    if (wait_for([this] { return over_.load(); }, patience_after)) return;
    board_.was_ended = true;
    _exit(0);
  }

  Board& board_;
  std::atomic<bool> returned_{false}, over_{false}, has_released_{false};
  std::thread thread_;  // last: it uses the others
};

/// Raises `most` to `value`.
void raise_to(std::atomic<double>& most, double value) {
  if (value > most.load()) most = value;
}

/// The cheap calls of another thread, again and again until the stream is let go; what the longest took, also one that does not return.
class Others {
 public:
  Others(const Lab& lab, Board& board, const Watchdog& dog) : lab_(lab), board_(board), dog_(dog) {
    check(cuEventCreate(&copied_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    thread_ = std::thread([this] { go_on(); });
  }
  Others(const Others&) = delete;
  Others& operator=(const Others&) = delete;
  ~Others() { thread_.join(); }

 private:
  void go_on() {
    try {
      lab_.enter();
      while (!dog_.has_released()) make_round();
    } catch (const std::exception& failure) {
      std::snprintf(board_.text, sizeof board_.text, "another thread: %s", failure.what());
    }
  }
  void make_round() {
    const double begin = now_seconds();
    timed("cuMemcpyAsync", [&] { return cuMemcpyAsync(lab_.also_pinned, lab_.to, Lab::small, lab_.own); });
    timed("cuEventRecord", [&] { return cuEventRecord(copied_, lab_.own); });
    CUresult complete = CUDA_ERROR_NOT_READY;
    while (complete == CUDA_ERROR_NOT_READY) {
      timed("cuEventQuery", [&] {
        complete = cuEventQuery(copied_);
        return complete == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : complete;
      });
      raise_to(board_.others_work, now_seconds() - begin);
      std::this_thread::sleep_for(glance);
    }
    timed("cuStreamWriteValue64", [&] {
      lab_.post(lab_.own);
      return CUDA_SUCCESS;
    });
  }
  template <typename Call>
  void timed(const char* name, const Call& call) {
    const double begin = now_seconds();
    check(call(), name);
    const double seconds = now_seconds() - begin;
    if (seconds > board_.others_call.load()) board_.others_name = name;
    raise_to(board_.others_call, seconds);
  }

  const Lab& lab_;
  Board& board_;
  const Watchdog& dog_;
  CUevent copied_ = nullptr;
  std::thread thread_;
};

CUipcMemHandle lent_memory(const Board& board) {
  if (!wait_for([&] { return board.has_memory.load(); }, time_to_start))
    throw std::runtime_error("the other process lends no memory");
  return board.memory;
}

/// In the question's own process.
void make_call(const Question& question, Board& board) {
  Lab lab;
  if (question.with_kernels && !lab.has_kernels()) {
    board.state = State::left_out;
    return;
  }
  if (question.of_a_peer) lab.lent = lent_memory(board);
  if (question.before) question.before(lab);
  for (CUstream stream : {lab.held, lab.other, lab.own}) EPCCL_PROBE(cuStreamSynchronize(stream));
  lab.hold(lab.held);
  Watchdog dog(lab, board, longest_hold);
  const Others others(lab, board, dog);
  board.state = State::working;
  const double begin = now_seconds();
  question.work(lab);
  board.seconds = now_seconds() - begin;
  board.state = State::returned;
  dog.returned();
}

void lend_memory(Board& board) {
  const Lab lab;
  EPCCL_PROBE(cuIpcGetMemHandle(&board.memory, lab.from));
  board.has_memory = true;
  pause();  // it is there until this process is ended
}

/// A process that does `work`, and is ended with this object.
class Process {
 public:
  template <typename Work>
  Process(Board& board, const Work& work) {
    std::fflush(nullptr);  // or the child prints it again
    pid_ = fork();
    if (pid_ != 0) return;
    try {
      work();
    } catch (const std::exception& failure) {
      board.state = State::failed;
      std::snprintf(board.text, sizeof board.text, "%s", failure.what());
    }
    // Nothing is undone, since that may wait for the GPU.
    _exit(0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (is_over_ || pid_ < 0) return;
    kill(pid_, SIGKILL);
    ends_within(1);  // what is stuck in the kernel stays
  }
  bool ends_within(double seconds) {
    is_over_ = wait_for([&] { return waitpid(pid_, &status_, WNOHANG) != 0; }, seconds);
    return is_over_;
  }
  /// Of one that is over; empty: well.
  std::string how_it_died() const {
    return WIFSIGNALED(status_) ? fmt::format("the process died of signal {}", WTERMSIG(status_)) : "";
  }

 private:
  pid_t pid_ = -1;
  int status_ = 0;
  bool is_over_ = false;
};

/// Runs `work` in a process of its own; what went wrong outside of it.
template <typename Work>
std::string run_apart(Board& board, const Work& work, double seconds) {
  Process process(board, work);
  if (!process.ends_within(seconds)) return fmt::format("the process did not end within {:.0f} s", seconds);
  return process.how_it_died();
}

void add_work(const Lab& lab, size_t kind, CUstream stream) {
  if (kind == 0 && lab.has_kernels()) lab.launch(stream);
  if (kind == 1) EPCCL_PROBE(cuMemcpyAsync(lab.to, lab.from, Lab::pageable_bytes, stream));
  if (kind == 2) EPCCL_PROBE(cuMemcpyAsync(lab.also_pinned, lab.to, Lab::small, stream));
  if (kind == 3) lab.post(stream);
}

/// How many streams have not come through with such work after a moment.
int count_stuck(const Lab& lab, size_t kind, const std::vector<CUstream>& streams) {
  constexpr auto moment = std::chrono::milliseconds(300);
  std::vector<CUevent> through(streams.size());
  for (CUevent& event : through) EPCCL_PROBE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (size_t i = 0; i < streams.size(); ++i) {
    add_work(lab, kind, streams[i]);
    EPCCL_PROBE(cuEventRecord(through[i], streams[i]));
  }
  std::this_thread::sleep_for(moment);
  return static_cast<int>(std::ranges::count_if(
      through, [](CUevent event) { return cuEventQuery(event) == CUDA_ERROR_NOT_READY; }));
}

int priority_of(Priority which, const Lab& lab) {
  if (which == Priority::of_held) return lab.lowest_priority;
  return which == Priority::of_library ? lab.own_priority : lab.highest_priority;
}

void look_at_channels(const ChannelQuestion& question, Board& board) {
  const Lab lab;
  const int priority = priority_of(question.others, lab);
  std::vector<CUstream> held, others;
  if (question.holds_null)
    held.push_back(nullptr);
  else
    for (int i = 0; i < question.held; ++i) held.push_back(lab.make_stream(lab.lowest_priority));
  for (size_t i = 0; i < others_each * kinds_of_work.size(); ++i) others.push_back(lab.make_stream(priority));
  constexpr double longest = 5;
  for (CUstream stream : held) lab.hold(stream);
  Watchdog dog(lab, board, longest);
  for (CUstream stream : held) EPCCL_PROBE(cuMemcpyAsync(lab.pinned, lab.from, Lab::small, stream));
  for (size_t kind = 0; kind < kinds_of_work.size(); ++kind) {
    const auto first = others.begin() + static_cast<std::ptrdiff_t>(kind * others_each);
    board.stuck[kind] = count_stuck(lab, kind, {first, first + others_each});
  }
  dog.returned();
}

}  // namespace

Answer ask(const Question& question) {
  const SharedBoard board;
  std::optional<Process> peer;
  if (question.of_a_peer) peer.emplace(*board, [&] { lend_memory(*board); });
  const auto work = [&] {
    for (const auto& [name, value] : question.environment) setenv(name, value, 1);
    make_call(question, *board);
  };
  const std::string wrong = run_apart(*board, work, time_to_start + longest_hold + 2 * patience_after);
  Answer answer;
  answer.state = board->state;
  answer.was_ended = board->was_ended;
  answer.seconds = board->seconds;
  answer.others_call = board->others_call;
  answer.others_work = board->others_work;
  answer.others_name = board->others_name.load();
  answer.text = wrong.empty() ? board->text : wrong;
  if (!wrong.empty() || answer.state == State::asked) answer.state = State::failed;
  return answer;
}

ChannelAnswer ask(const ChannelQuestion& question) {
  const SharedBoard board;
  const auto work = [&] {
    const std::string connections = std::to_string(question.connections);
    if (question.connections == 0) unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (question.connections != 0) setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections.c_str(), 1);
    look_at_channels(question, *board);
  };
  const std::string wrong = run_apart(*board, work, time_to_start + 4 * patience_after);
  ChannelAnswer answer;
  std::ranges::copy(board->stuck, answer.stuck.begin());
  answer.text = wrong.empty() ? board->text : wrong;
  if (board->was_ended) answer.text = "a call did not return";
  return answer;
}

}  // namespace epccl::device::probe
