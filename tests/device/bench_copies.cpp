// What ranks that share one GPU reach with its copy engines, against that GPU's own large device-to-device copy: alltoall and allgather
// as threads and as processes, reductions, how long a signal takes, and whether copies within a GPU need its compute cores. Needs a GPU.
// Engines are measured with the driver's hint to overlap with compute, and with its default flag.
//   bench_copies [FILE] [MEGABYTES A RANK,...] [RANKS] [processes]     prints a table, and writes FILE as JSON after each case; reductions
//                                                                          from 8 megabytes on; `processes`: only what ranks as processes reach
// Exit codes: 0 measured; 77 there is no GPU; 1 something failed: what did is named in FILE, beside what was measured.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "bench_main.hpp"
#include "bench_report.hpp"
#include "copy_ceiling.hpp"
#include "floors.hpp"
#include "measured.hpp"
#include "transports/cuda_ipc/peer_memory.hpp"

namespace epccl::device::test {
namespace {

using Json = BenchReport::Json;
using transports::SharedBuffers;
constexpr int rounds = 30;

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
  return seconds;
}

/// The driver's flag of copies by engines.
enum class Flag { by_choice, overlap };
const char* text_of(Flag flag) {
  return flag == Flag::by_choice ? "default flag" : "hint to overlap";
}

/// An alltoall or an allgather.
struct Exchange {
  As as;
  Amount amount;
  Flag flag;
};

/// Bytes a second, of those that have to be copied at least; rank 0 times rounds that begin together.
double exchange_rate(const Exchange& what) {
  const uint64_t bytes = what.amount.bytes;
  const bool gathers = what.amount.which == Collective::allgather;
  const auto work = [&](Rank& rank, double& out) {
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
      raise_clocks(device, bytes);
      for (int round = -3; round < rounds; ++round) {
        rank.barrier();
        const double begin = now_seconds();
        std::vector<CopyWork> copies;
        for (int step = 1; step <= count; ++step) {
          const int peer = (me + step) % count;
          const uint64_t from = gathers ? 0 : static_cast<uint64_t>(peer) * block;
          copies.push_back(
              {outputs.address(peer) + static_cast<uint64_t>(me) * block, input.data + from, block});
          copies.back().may_use_cores = what.flag == Flag::by_choice;
        }
        must(engine->copy(copies));
        const auto value = static_cast<uint64_t>(round + 4);
        must(engine->post(rank.word(me, 0), value));
        // As in the library: a wait is queued when what ends it has been, since it may hold up what comes into the same hardware queue.
        rank.barrier();
        for (int peer = 0; peer < count; ++peer) must(engine->wait(rank.word(peer, 0), value));
        must(engine->synchronize());
        if (round >= 0) seconds.push_back(now_seconds() - begin);
      }
    }
    rank.barrier();
    device.hide_words(&rank.shared());
    if (me == 0) out = what.amount.floor_bytes() / median_of(std::move(seconds));
  };
  return measured<double>(what.as, what.amount.ranks, work);
}

struct SignalTimes {
  double median = 0, p99 = 0;
};

/// Seconds from one rank's post to another's answer, halved, submission included.
SignalTimes signal_seconds(As as, uint64_t bytes) {
  return measured<SignalTimes>(as, 2, [bytes](Rank& rank, SignalTimes& out) {
    constexpr int times = 2000;
    Device& device = rank.device();
    raise_clocks(device, bytes);
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
    if (me == 0) out = {seconds[seconds.size() / 2], seconds[seconds.size() * 99 / 100]};
  });
}

/// Fills all compute cores with warps that wait, so that no block of another kernel finds a place; until release(). What they look at all the
/// time is the GPU's memory, so that they leave the link to the host alone; at the host's they look at every sixteenth time.
class FullCores {
 public:
  explicit FullCores(Device& device) : device_(device), queue_(take(device.make_queue(QueueKind::compute))) {
    constexpr uint64_t bytes = 4096, at_count = 1024;
    memory_ = take(device.allocate(MemoryKind::pinned, 2 * bytes));
    of_gpu_ = take(device.allocate(MemoryKind::plain, bytes));
    auto* const host = static_cast<std::byte*>(memory_);
    auto* const gpu = static_cast<std::byte*>(of_gpu_);
    new (host) kernels::HostCallReport{};
    new (host + at_count) uint64_t{1};
    auto* replays = new (host + bytes) kernels::ReplayReport{};
    given_up_ = &replays->given_up;
    const CopyWork words{gpu, host, bytes};
    must(queue_->copy({&words, 1}));
    // Waits for the first call, which is never over.
    auto kernel =
        kernels::host_call_launch({reinterpret_cast<uint64_t*>(gpu + at_count),
                                   reinterpret_cast<kernels::HostCallReport*>(gpu), replays, 1, 0, 1});
    constexpr uint32_t threads_of_a_multiprocessor = 2048;
    kernel.threads = kernels::block_threads;
    kernel.blocks =
        take(kernels::grid_of(*queue_)).multiprocessors * (threads_of_a_multiprocessor / kernel.threads);
    must(kernels::queue_kernel(*queue_, kernel));
  }
  FullCores(const FullCores&) = delete;
  FullCores& operator=(const FullCores&) = delete;
  ~FullCores() {
    release();
    static_cast<void>(queue_->synchronize());
    static_cast<void>(device_.free(of_gpu_));
    static_cast<void>(device_.free(memory_));
  }
  void release() { std::atomic_ref(*given_up_).store(1); }

 private:
  Device& device_;
  const std::unique_ptr<Queue> queue_;
  void* memory_ = nullptr;
  void* of_gpu_ = nullptr;
  uint64_t* given_up_ = nullptr;
};

/// Bytes a second of a copy of `bytes` while all compute cores are full; 0: it did not end before they were free again, so it needs
/// them. `kind`: the copies of which queues. `from_host`: to the GPU, by which one knows that this can find a copy by an engine.
double rate_beside_full_cores(QueueKind kind, Flag flag, bool from_host, uint64_t bytes) {
  return measured<double>(As::threads, 1, [&](Rank& rank, double& out) {
    constexpr double patience = 2, time_to_fill = 0.05;
    Device& device = rank.device();
    raise_clocks(device, bytes);
    ShareableBuffer on_gpu(device, bytes), to(device, bytes);
    const PinnedBuffer on_host(device, from_host ? bytes : 1);
    const auto queue = take(device.make_queue(kind));
    const auto copied = take(device.make_event());
    CopyWork work{to.data, from_host ? on_host.data : on_gpu.data, bytes};
    work.may_use_cores = flag == Flag::by_choice;
    must(queue->copy({&work, 1}));
    must(queue->synchronize());
    FullCores cores(device);
    std::this_thread::sleep_for(std::chrono::duration<double>(time_to_fill));
    const double begin = now_seconds();
    must(queue->copy({&work, 1}));
    must(queue->record(*copied));
    while (!take(copied->complete()) && now_seconds() - begin < patience) std::this_thread::yield();
    const double seconds = now_seconds() - begin;
    out = take(copied->complete()) ? static_cast<double>(bytes) / seconds : 0;
    cores.release();
    must(queue->synchronize());
  });
}

/// Fraction of the floor (each input read once, the result written once, at the rate of a copy, which reads and writes) of a sum of 8.
double reduction_fraction(Element element, double ceiling, int blocks) {
  return measured<double>(As::threads, 1, [&](Rank& rank, double& out) {
    constexpr uint64_t bytes = 64 * mebibyte;
    constexpr int sources = 8;
    raise_clocks(rank.device(), bytes);
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
    const double seconds = median_of(seconds_of(*queue, [&] { must(queue->reduce(work)); }));
    out = static_cast<double>(bytes) * (sources + 1) / 2 / ceiling / seconds;
  });
}

/// With the default flag, which is what calls have with `auto`, there is a goal.
void measure_exchange(const Exchange& what, const CopyRates& copy, BenchReport& report) {
  const auto& [as, amount, flag] = what;
  const double goal = amount.goal(as == As::processes);
  const std::string name = fmt::format("{}, {} ranks as {}, {} MiB a rank, {}", text_of(amount.which),
                                       amount.ranks, text_of(as), amount.bytes / mebibyte, text_of(flag));
  Json naming{{"case", name}};
  if (flag == Flag::by_choice) naming["goal"] = goal;
  report.add("cases", naming, [&]() -> Json {
    const double rate = exchange_rate(what), fraction = rate / copy.ceiling();
    fmt::print("{:56} {:10.1f} GB/s, {:5.1f} % of the ceiling{} ({})\n", name, rate / 1e9, 100 * fraction,
               flag == Flag::by_choice ? fmt::format(" (goal {:.0f} %)", 100 * goal) : "",
               copy.driver_text());
    return {{"fraction_of_ceiling", fraction}};
  });
}

void measure_signals(As as, uint64_t bytes, BenchReport& report) {
  const std::string name = fmt::format("signal and wait, ranks as {}", text_of(as));
  report.add("cases", {{"case", name}}, [&]() -> Json {
    const SignalTimes times = signal_seconds(as, bytes);
    fmt::print("{:56} {:10.1f} us p50, {:.1f} us p99\n", name, times.median * 1e6, times.p99 * 1e6);
    return {{"p50_microseconds", times.median * 1e6}, {"p99_microseconds", times.p99 * 1e6}};
  });
}

/// Seconds in which all ranks' queues wait for each other, of several times in a row; `near`: by kernels that look into the GPU's memory,
/// else by the driver's waits for the host's. 0: kernels would wait for each other's turns.
double meeting_seconds(As as, int ranks, bool near) {
  return measured<double>(as, ranks, [as, near](Rank& rank, double& out) {
    constexpr uint64_t in_a_row = 20;
    Device& device = rank.device();
    if (near && as == As::processes && !device.serves_processes_at_once()) return;
    const int me = rank.number();
    ShareableBuffer words(device, sizeof(SignalWord));
    const PinnedBuffer zero(device, sizeof(SignalWord));
    std::memset(zero.data, 0, sizeof(SignalWord));
    const auto queue = take(device.make_queue(QueueKind::copy_engine));
    const CopyWork clear{words.data, zero.data, sizeof(SignalWord)};
    must(queue->copy({&clear, 1}));
    must(queue->synchronize());
    must(device.make_words_visible(&rank.shared(), sizeof(Shared)));
    rank.shared().handles[me][0] = take(device.export_memory(words.data, sizeof(SignalWord)));
    rank.barrier();
    std::vector<MemoryHandle> theirs;
    for (int peer = 0; peer < rank.count(); ++peer) theirs.push_back(rank.shared().handles[peer][0]);
    std::vector<double> seconds;
    {
      const SharedBuffers mapped = take(SharedBuffers::map(device, theirs));
      const auto near_word = [&](int peer) {
        return near ? reinterpret_cast<SignalWord*>(mapped.address(peer)) : nullptr;
      };
      uint64_t value = 0;
      for (int round = -3; round < rounds; ++round) {
        rank.barrier();
        const double begin = now_seconds();
        for (uint64_t i = 0; i < in_a_row; ++i) {
          ++value;
          const WordPost post{&rank.word(me, 0), value, near_word(me)};
          std::vector<WordValue> waits;
          for (int peer = 0; peer < rank.count(); ++peer)
            if (peer != me) waits.push_back({&rank.word(peer, 0), value, near_word(peer)});
          must(queue->post_after({}, {&post, 1}));
          must(queue->post_after(waits, {}));
        }
        must(queue->synchronize());
        if (round >= 0) seconds.push_back((now_seconds() - begin) / in_a_row);
      }
    }
    rank.barrier();
    device.hide_words(&rank.shared());
    if (me == 0) out = median_of(std::move(seconds));
  });
}

void measure_meetings(As as, int ranks, BenchReport& report) {
  for (const bool near : {false, true}) {
    const std::string name = fmt::format("{} ranks as {} wait for each other, {}", ranks, text_of(as),
                                         near ? "by kernels, in the GPU's memory" : "by the driver");
    report.add("cases", {{"case", name}}, [&]() -> Json {
      const double seconds = meeting_seconds(as, ranks, near);
      if (seconds == 0) return {{"skipped", "processes take turns"}};
      fmt::print("{:72} {:10.1f} us\n", name, seconds * 1e6);
      return {{"microseconds", seconds * 1e6}};
    });
  }
}

/// Who makes a copy inside the GPU.
void measure_makers(uint64_t bytes, const CopyRates& copy, BenchReport& report) {
  const struct {
    QueueKind kind;
    Flag flag;
    bool from_host;
  } cases[] = {{QueueKind::copy_engine, Flag::overlap, false},
               {QueueKind::copy_engine, Flag::by_choice, false},
               {QueueKind::compute, Flag::by_choice, false},
               {QueueKind::copy_engine, Flag::overlap, true}};
  for (const auto& [kind, flag, from_host] : cases) {
    const std::string name =
        fmt::format("a copy {}beside full compute cores, {} queue, {}", from_host ? "from the host " : "",
                    kind == QueueKind::compute ? "compute" : "engine", text_of(flag));
    report.add("cases", {{"case", name}}, [&, kind = kind, flag = flag, from_host = from_host]() -> Json {
      const double rate = rate_beside_full_cores(kind, flag, from_host, bytes);
      const char* by = rate > 0 ? "copy engines" : "compute cores";
      fmt::print("{:56} by {}: {:.1f} GB/s ({})\n", name, by, rate / 1e9, copy.driver_text());
      return {{"made_by", by}, {"bytes_per_second", rate}, {"fraction_of_ceiling", rate / copy.ceiling()}};
    });
  }
}

void measure_sums(double ceiling, BenchReport& report) {
  for (const Element element : {Element::float32, Element::bfloat16})
    for (const int blocks : {0, 8, 16, 32}) {
      const std::string name =
          fmt::format("sum of 8, {}, {} blocks", element == Element::float32 ? "float32" : "bfloat16",
                      blocks == 0 ? "all" : std::to_string(blocks));
      report.add("cases", {{"case", name}}, [&, element = element, blocks = blocks]() -> Json {
        const double fraction = reduction_fraction(element, ceiling, blocks);
        fmt::print("{:56} {:10.1f} % of the floor\n", name, 100 * fraction);
        return {{"fraction_of_floor", fraction}};
      });
    }
}

/// The first size; others follow the rest.
void measure(const BenchArguments& asked, BenchReport& report) {
  const uint64_t bytes = asked.sizes.front();
  const auto copy = measured<CopyRates>(As::threads, 1, [bytes](Rank& rank, CopyRates& rates) {
    rates = measure_copy_rates(rank.device(), std::min(16 * bytes, 1024 * mebibyte));
  });
  copy.tell(report.facts());
  const auto measure_exchanges = [&](As as, uint64_t size) {
    for (const Collective which : {Collective::alltoall, Collective::allgather})
      for (const Flag flag : {Flag::by_choice, Flag::overlap})
        measure_exchange({as, {which, asked.ranks, size}, flag}, copy, report);
  };
  const std::vector<As> kinds = asked.only_processes ? std::vector{As::processes}
                                : asked.only_threads ? std::vector{As::threads}
                                                     : std::vector{As::threads, As::processes};
  for (const As as : kinds) {
    measure_exchanges(as, bytes);
    measure_signals(as, bytes, report);
    measure_meetings(as, asked.ranks, report);
  }
  if (!asked.only_processes) {
    measure_makers(std::min(256 * mebibyte, 4 * bytes), copy, report);
    if (bytes >= least_to_believe) measure_sums(copy.ceiling(), report);
  }
  for (const uint64_t size : std::span(asked.sizes).subspan(1)) {
    if (!has_room(asked.ranks, size)) continue;
    for (const As as : kinds) measure_exchanges(as, size);
  }
}

}  // namespace
}  // namespace epccl::device::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return epccl::device::test::bench_main("bench_copies", argc, argv, epccl::device::test::measure);
}
