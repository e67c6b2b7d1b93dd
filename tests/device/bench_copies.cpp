// What ranks that share one GPU reach with its copy engines, against that GPU's own large device-to-device copy: alltoall and allgather
// as threads and as processes, reductions, how long a signal takes, and whether copies within a GPU need its compute cores. Needs a GPU.
//   bench_copies [FILE] [MEGABYTES A RANK] [RANKS]     prints a table, and writes FILE as JSON; reductions from 8 megabytes on
// Exit codes: 0 measured; 77 there is no GPU; 1 something failed.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "device/cuda/kernel_queue.hpp"
#include "ranks.hpp"
#include "transports/cuda_ipc/peer_memory.hpp"

namespace epccl::device::test {
namespace {

using Json = nlohmann::ordered_json;
using transports::SharedBuffers;
constexpr int rounds = 10;
constexpr uint64_t mebibyte = uint64_t{1} << 20;

/// Runs the measurement in a process of its own (this one uses no GPU, so that ranks can be processes) and returns its numbers.
std::vector<double> measured(int count, As as, int ranks, const std::function<void(Rank&, double*)>& work) {
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* numbers = static_cast<double*>(memory);
  std::fflush(nullptr);  // or the child prints it again
  const pid_t child = fork();
  if (child == 0) {
    run_ranks(as, ranks, [&](Rank& rank) { work(rank, numbers); });
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const std::vector<double> result(numbers, numbers + count);
  munmap(memory, 4096);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw std::runtime_error("a measurement failed: see above");
  return result;
}

/// Seconds of each of `rounds` repetitions of `work`, which queues something; the first ones warm up.
template <typename Work>
std::vector<double> seconds_of(Queue& queue, const Work& work) {
  std::vector<double> seconds;
  for (int round = -3; round < rounds; ++round) {
    const double begin = now_seconds();
    work();
    must(queue.synchronize());
    if (round >= 0) seconds.push_back(now_seconds() - begin);
  }
  std::ranges::sort(seconds);
  return seconds;
}

double median(const std::vector<double>& sorted) {
  return sorted[sorted.size() / 2];
}

/// Bytes a second of one large copy.
double copy_ceiling(uint64_t bytes) {
  return measured(1, As::threads, 1, [bytes](Rank& rank, double* out) {
    ShareableBuffer from(rank.device(), bytes), to(rank.device(), bytes);
    const auto queue = take(rank.device().make_queue(QueueKind::copy_engine));
    const CopyWork work{to.data, from.data, bytes};
    out[0] = static_cast<double>(bytes) / median(seconds_of(*queue, [&] { must(queue->copy({&work, 1})); }));
  })[0];
}

/// Bytes a second that all ranks together copy in an alltoall (or an allgather) of `bytes` a rank; rank 0 times rounds that begin
/// together.
double exchange_rate(As as, int ranks, uint64_t bytes, bool gathers) {
  const auto work = [&](Rank& rank, double* out) {
    Device& device = rank.device();
    const int me = rank.number(), count = rank.count();
    const uint64_t block = bytes / static_cast<uint64_t>(count), in = gathers ? block : bytes;
    ShareableBuffer input(device, in), output(device, bytes);
    must(device.make_words_visible(&rank.shared(), sizeof(Shared)));
    rank.shared().handles[me][0] = take(device.export_memory(output.data, bytes));
    rank.barrier();
    std::vector<MemoryHandle> theirs;
    for (int peer = 0; peer < count; ++peer) theirs.push_back(rank.shared().handles[peer][0]);
    std::vector<double> seconds;
    {
      const SharedBuffers outputs = take(SharedBuffers::map(device, theirs));
      const auto engine = take(device.make_queue(QueueKind::copy_engine));
      for (int round = -3; round < rounds; ++round) {
        rank.barrier();
        const double begin = now_seconds();
        std::vector<CopyWork> copies;
        for (int step = 1; step <= count; ++step) {
          const int peer = (me + step) % count;
          const uint64_t from = gathers ? 0 : static_cast<uint64_t>(peer) * block;
          copies.push_back(
              {outputs.address(peer) + static_cast<uint64_t>(me) * block, input.data + from, block});
        }
        must(engine->copy(copies));
        const auto value = static_cast<uint64_t>(round + 4);
        must(engine->post(rank.word(me, 0), value));
        for (int peer = 0; peer < count; ++peer) must(engine->wait(rank.word(peer, 0), value));
        must(engine->synchronize());
        if (round >= 0) seconds.push_back(now_seconds() - begin);
      }
    }
    rank.barrier();
    device.hide_words(&rank.shared());
    std::ranges::sort(seconds);
    if (me == 0) out[0] = static_cast<double>(bytes) * count / median(seconds);
  };
  return measured(1, as, ranks, work)[0];
}

/// Seconds from one rank's post to another's answer, halved: median and 99th percentile, submission included.
std::vector<double> signal_seconds(As as) {
  return measured(2, as, 2, [](Rank& rank, double* out) {
    constexpr int times = 2000;
    Device& device = rank.device();
    must(device.make_words_visible(&rank.shared(), sizeof(Shared)));
    const auto queue = take(device.make_queue(QueueKind::copy_engine));
    const int me = rank.number();
    std::vector<double> seconds;
    rank.barrier();
    for (uint64_t turn = 1; turn <= times; ++turn) {
      const double begin = now_seconds();
      if (me == 0) must(queue->post(rank.word(0, 0), turn));
      must(queue->wait(rank.word(1 - me, 0), turn));
      if (me == 1) must(queue->post(rank.word(1, 0), turn));
      must(queue->synchronize());
      seconds.push_back((now_seconds() - begin) / 2);
    }
    std::ranges::sort(seconds);
    rank.barrier();
    device.hide_words(&rank.shared());
    if (me == 0) out[0] = median(seconds), out[1] = seconds[seconds.size() * 99 / 100];
  });
}

/// Fills all compute cores with warps that wait, so that no block of another kernel finds a place; until release().
class FullCores {
 public:
  explicit FullCores(Device& device) : device_(device), queue_(take(device.make_queue(QueueKind::compute))) {
    memory_ = take(device.allocate(MemoryKind::pinned, 4096));
    auto* calls = new (memory_) cuda::HostCallReport{};
    auto* count = new (static_cast<std::byte*>(memory_) + 1024) uint64_t{1};
    auto* replays = new (static_cast<std::byte*>(memory_) + 2048) cuda::ReplayReport{};
    over_ = &calls->over;
    auto kernel =
        cuda::host_call_launch({count, calls, replays, 1, 0, 1});  // waits for the first call to be over
    constexpr uint32_t threads_of_a_multiprocessor = 2048;
    kernel.threads = cuda::block_threads;
    kernel.blocks =
        take(cuda::grid_of(*queue_)).multiprocessors * (threads_of_a_multiprocessor / kernel.threads);
    must(cuda::queue_kernel(*queue_, kernel));
  }
  FullCores(const FullCores&) = delete;
  FullCores& operator=(const FullCores&) = delete;
  ~FullCores() {
    release();
    static_cast<void>(queue_->synchronize());
    static_cast<void>(device_.free(memory_));
  }
  void release() { std::atomic_ref(*over_).store(1); }

 private:
  Device& device_;
  const std::unique_ptr<Queue> queue_;
  void* memory_ = nullptr;
  uint64_t* over_ = nullptr;
};

/// Bytes a second of a copy of `bytes` while all compute cores are full; 0: it did not end before they were free again, so it needs
/// them. `kind`: the copies of which queues.
double rate_beside_full_cores(QueueKind kind, uint64_t bytes) {
  return measured(1, As::threads, 1, [&](Rank& rank, double* out) {
    constexpr double patience = 2, time_to_fill = 0.05;
    Device& device = rank.device();
    ShareableBuffer from(device, bytes), to(device, bytes);
    const auto queue = take(device.make_queue(kind));
    const auto copied = take(device.make_event());
    const CopyWork work{to.data, from.data, bytes};
    must(queue->copy({&work, 1}));
    must(queue->synchronize());
    FullCores cores(device);
    std::this_thread::sleep_for(std::chrono::duration<double>(time_to_fill));
    const double begin = now_seconds();
    must(queue->copy({&work, 1}));
    must(queue->record(*copied));
    while (!take(copied->complete()) && now_seconds() - begin < patience) std::this_thread::yield();
    const double seconds = now_seconds() - begin;
    out[0] = take(copied->complete()) ? static_cast<double>(bytes) / seconds : 0;
    cores.release();
    must(queue->synchronize());
  })[0];
}

/// Fraction of the floor (each input read once, the result written once, at the rate of a copy, which reads and writes) of a sum of 8.
double reduction_fraction(Element element, double ceiling, int blocks) {
  return measured(1, As::threads, 1, [&](Rank& rank, double* out) {
    constexpr uint64_t bytes = 64 * mebibyte;
    constexpr int sources = 8;
    ShareableBuffer memory(rank.device(), bytes * (sources + 1));
    std::vector<ReduceSource> from;
    for (int i = 0; i < sources; ++i) from.push_back({memory.data + static_cast<uint64_t>(i) * bytes, true});
    const auto queue = take(rank.device().make_queue(QueueKind::compute));
    queue->set_blocks(blocks);
    const ReduceWork work{{element, ReduceOp::sum, 0, sources},
                          from,
                          true,
                          memory.data + sources * bytes,
                          bytes / bytes_of(element),
                          {}};
    const double seconds = median(seconds_of(*queue, [&] { must(queue->reduce(work)); }));
    out[0] = static_cast<double>(bytes) * (sources + 1) / 2 / ceiling / seconds;
  })[0];
}

Json measure(uint64_t bytes, int ranks) {
  Json report;
  const double ceiling = copy_ceiling(std::min(16 * bytes, 1024 * mebibyte));
  report["copy_ceiling_bytes_per_second"] = ceiling;
  fmt::print("{:44} {:10.1f} GB/s\n", "one large device-to-device copy", ceiling / 1e9);
  for (const As as : {As::threads, As::processes}) {
    const double goal = as == As::threads ? 0.90 : 0.85;
    for (const bool gathers : {false, true}) {
      const std::string name =
          fmt::format("{}, {} ranks as {}, {} MiB a rank", gathers ? "allgather" : "alltoall", ranks,
                      text_of(as), bytes / mebibyte);
      const double fraction = exchange_rate(as, ranks, bytes, gathers) / ceiling;
      report["cases"].push_back({{"case", name}, {"fraction_of_ceiling", fraction}, {"goal", goal}});
      fmt::print("{:44} {:10.1f} % of it (goal {:.0f} %)\n", name, 100 * fraction, 100 * goal);
    }
    const auto signal = signal_seconds(as);
    report["cases"].push_back({{"case", fmt::format("signal and wait, ranks as {}", text_of(as))},
                               {"p50_microseconds", signal[0] * 1e6},
                               {"p99_microseconds", signal[1] * 1e6}});
    fmt::print("{:44} {:10.1f} us p50, {:.1f} us p99\n",
               fmt::format("signal and wait, ranks as {}", text_of(as)), signal[0] * 1e6, signal[1] * 1e6);
  }
  for (const QueueKind kind : {QueueKind::copy_engine, QueueKind::compute}) {
    const std::string name = fmt::format("a copy by a queue of kind {}, beside full compute cores",
                                         kind == QueueKind::compute ? "compute" : "copy_engine");
    const double rate = rate_beside_full_cores(kind, std::min(256 * mebibyte, 4 * bytes));
    const char* by = rate > 0 ? "copy engines" : "compute cores";
    report["cases"].push_back({{"case", name},
                               {"made_by", by},
                               {"bytes_per_second", rate},
                               {"fraction_of_ceiling", rate / ceiling}});
    fmt::print("{:44} by {}: {:.1f} GB/s\n", name, by, rate / 1e9);
  }
  if (bytes < 8 * mebibyte) return report;
  for (const Element element : {Element::float32, Element::bfloat16})
    for (const int blocks : {0, 8, 16, 32}) {
      const std::string name =
          fmt::format("sum of 8, {}, {} blocks", element == Element::float32 ? "float32" : "bfloat16",
                      blocks == 0 ? "all" : std::to_string(blocks));
      const double fraction = reduction_fraction(element, ceiling, blocks);
      report["cases"].push_back({{"case", name}, {"fraction_of_floor", fraction}});
      fmt::print("{:44} {:10.1f} % of the floor\n", name, 100 * fraction);
    }
  return report;
}

}  // namespace
}  // namespace epccl::device::test

int main(int argc, char** argv) {
  using namespace epccl::device::test;
  ::testing::InitGoogleTest(&argc, argv);
  if (const int code = ask_for_gpu(); code != 0) return code;
  try {
    const uint64_t bytes = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 64) * mebibyte;
    const int ranks = argc > 3 ? std::atoi(argv[3]) : most_ranks;
    const auto report = measure(bytes, std::clamp(ranks, 2, most_ranks));
    if (argc > 1) std::ofstream(argv[1]) << report.dump(2) << '\n';
  } catch (const std::exception& failure) {
    fmt::print(stderr, "bench_copies: {}\n", failure.what());
    return 1;
  }
  return 0;
}
