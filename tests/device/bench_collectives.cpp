// What collectives of the C API reach between ranks that share one GPU, as threads and as processes, against that GPU's own large
// device-to-device copy. The floor of a call is the bytes that have to be read and written at least, at the rate of that copy (which
// reads and writes each byte). Needs a GPU.
//   bench_collectives [FILE] [MEGABYTES A RANK,...] [RANKS] [processes|threads] [ways]
// prints a table, and writes FILE as JSON after each case. The words: only what ranks reach that are such; only the ways in which calls are
// queued and signal (EPCCL_CUDA_AHEAD, EPCCL_CUDA_SIGNALS), all collectives.
// Exit codes: 0 measured; 77 there is no GPU; 1 something failed: what did is named in FILE, beside what was measured.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>

#include "../multiprocess/api_cuda/gpu_rank.hpp"
#include "bench_main.hpp"
#include "bench_report.hpp"
#include "copy_ceiling.hpp"
#include "floors.hpp"
#include "measured.hpp"

namespace epccl::device::test {
namespace {

using Json = BenchReport::Json;
using tests::GpuRank;
constexpr int rounds = 30;
constexpr int rows = 7, calls_in_a_row = 10;
constexpr Collective every_collective[] = {Collective::alltoall, Collective::allgather,
                                           Collective::reduce_scatter, Collective::allreduce};

/// Of one call, in medians.
struct Seconds {
  double alone = 0;  // from a barrier until its stream is through
  double in_a_row =
      0;  // of a row of them, of which only the last is waited for, as nccl-tests measures, and the ceiling is measured
};

/// What a measurement's processes share.
struct Board {
  epcclUniqueId id{};
  Seconds result;
};

void call_ok(epcclResult_t result) {
  if (result != epcclSuccess) throw std::runtime_error(epcclGetLastError(nullptr));
}
void driver_ok(CUresult result) {
  if (result != CUDA_SUCCESS)
    throw std::runtime_error(fmt::format("CUDA error {}", static_cast<int>(result)));
}

/// Memory that peers can map (EPCCL_DEVICE=cuda).
class Buffer {
 public:
  explicit Buffer(uint64_t bytes) { call_ok(epcclMemAlloc(&data_, bytes)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { static_cast<void>(epcclMemFree(data_)); }
  void* data() const { return data_; }
  CUdeviceptr address(uint64_t offset = 0) const { return reinterpret_cast<CUdeviceptr>(data_) + offset; }

 private:
  void* data_ = nullptr;
};

/// Elements of small whole numbers: exact in every datatype here.
template <typename T>
struct Kind;
template <>
struct Kind<float> {
  static constexpr epcclDataType_t type = epcclFloat32;
  static float of(int number) { return static_cast<float>(number); }
};
template <>
struct Kind<uint16_t> {
  static constexpr epcclDataType_t type = epcclBfloat16;
  static uint16_t of(int number) {
    const auto value = static_cast<float>(number);
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<uint16_t>(bits >> 16);
  }
};

struct Case {
  As as;
  Amount amount;
  int blocks = 0;  // maxCTAs; 0: the library's choice
};

template <typename T>
void call(const Case& what, const Buffer& input, const Buffer& output, epcclComm_t comm,
          epcclStream_t stream) {
  const size_t count = what.amount.bytes / sizeof(T), block = count / static_cast<size_t>(what.amount.ranks);
  constexpr epcclDataType_t type = Kind<T>::type;
  switch (what.amount.which) {
    case Collective::alltoall:
      return call_ok(epcclAlltoall(input.data(), output.data(), block, type, comm, stream));
    case Collective::allgather:
      return call_ok(epcclAllGather(input.data(), output.data(), block, type, comm, stream));
    case Collective::reduce_scatter:
      return call_ok(epcclReduceScatter(input.data(), output.data(), block, type, epcclSum, comm, stream));
    case Collective::allreduce:
      return call_ok(epcclAllReduce(input.data(), output.data(), count, type, epcclSum, comm, stream));
  }
}

/// The last element of what was received.
template <typename T>
void check(const Case& what, const GpuRank& gpu, const Buffer& output) {
  const uint64_t ranks = static_cast<uint64_t>(what.amount.ranks), elements = what.amount.bytes / sizeof(T);
  const uint64_t block = elements / ranks;
  const uint64_t received = what.amount.which == Collective::reduce_scatter ? block
                            : what.amount.which == Collective::allreduce    ? elements
                                                                            : block * ranks;
  T last{};
  driver_ok(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(&last), output.address((received - 1) * sizeof(T)),
                          sizeof(T), gpu.stream()));
  driver_ok(cuStreamSynchronize(gpu.stream()));
  const T expected = Kind<T>::of(adds(what.amount.which) ? what.amount.ranks * (what.amount.ranks + 1) / 2
                                                         : what.amount.ranks);
  if (last != expected)
    throw std::runtime_error(fmt::format("{}: a wrong result", text_of(what.amount.which)));
}

/// From a barrier until the calls that `work` makes are over, of one of `calls`; the median, on rank 0.
template <typename Work>
double median_seconds(Rank& rank, const GpuRank& gpu, int times, int calls, const Work& work) {
  constexpr int warm_up = 3;
  std::vector<double> seconds;
  for (int time = -warm_up; time < times; ++time) {
    rank.barrier();
    const double begin = now_seconds();
    for (int i = 0; i < calls; ++i) work();
    driver_ok(cuStreamSynchronize(gpu.stream()));
    if (time >= 0) seconds.push_back((now_seconds() - begin) / calls);
  }
  return median_of(std::move(seconds));
}

template <typename T>
Seconds seconds_of(const Case& what) {
  const auto work = [&](Rank& rank, Board& board) {
    const GpuRank gpu;
    if (rank.number() == 0) call_ok(epcclGetUniqueId(&board.id));
    rank.barrier();
    epcclComm_t comm = nullptr;
    epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
    if (what.blocks > 0) config.maxCTAs = what.blocks;
    call_ok(epcclCommInitRankConfig(&comm, rank.count(), board.id, rank.number(), &config));
    {
      const Buffer input(what.amount.bytes), output(what.amount.bytes);
      const std::vector<T> values(what.amount.bytes / sizeof(T), Kind<T>::of(rank.number() + 1));
      driver_ok(cuMemcpyAsync(input.address(), reinterpret_cast<CUdeviceptr>(values.data()),
                              what.amount.bytes, gpu.stream()));
      driver_ok(cuStreamSynchronize(gpu.stream()));
      raise_clocks(rank.device(), what.amount.bytes);
      const auto call_once = [&] { call<T>(what, input, output, comm, gpu.as_epccl()); };
      const Seconds seconds{median_seconds(rank, gpu, rounds, 1, call_once),
                            median_seconds(rank, gpu, rows, calls_in_a_row, call_once)};
      check<T>(what, gpu, output);
      if (rank.number() == 0) board.result = seconds;
      rank.barrier();  // memory is freed when nobody waits any more
    }
    call_ok(epcclCommDestroy(comm));
  };
  return measured<Board>(what.as, what.amount.ranks, work).result;
}

/// What sums take with fewer and more blocks than the library chooses.
void measure_blocks(const BenchArguments& asked, double ceiling, BenchReport& report) {
  const int ranks = asked.ranks;
  const int chosen = measured<int>(As::threads, 1, [ranks](Rank& rank, int& blocks) {
    blocks = rank.device().fewest_blocks({Demand::From::here, ranks, ranks});
  });
  report.facts()["blocks_of_a_rank"] = chosen;
  for (const Collective which : {Collective::reduce_scatter, Collective::allreduce})
    for (const int blocks : {std::max(chosen / 4, 1), std::max(chosen / 2, 1), chosen, 2 * chosen})
      report.add("sums_by_blocks", {{"collective", text_of(which)}, {"blocks", blocks}}, [&]() -> Json {
        const Case what{As::threads, {which, ranks, asked.sizes.front()}, blocks};
        const double seconds = seconds_of<float>(what).alone,
                     fraction = what.amount.floor_bytes() / ceiling / seconds;
        fmt::print("{:56} {:10.1f} us, {:5.1f} % of the floor\n",
                   fmt::format("{} float32, {} blocks a rank", text_of(which), blocks), seconds * 1e6,
                   100 * fraction);
        return {{"microseconds", seconds * 1e6}, {"fraction_of_floor", fraction}};
      });
}

/// `wide`: of float32; else of bfloat16.
void measure_collective(const Case& what, bool wide, double ceiling, BenchReport& report) {
  const Amount& amount = what.amount;
  const double goal = amount.goal(what.as == As::processes);
  const std::string name =
      fmt::format("{} {}, {} ranks as {}, {} MiB a rank", text_of(amount.which),
                  wide ? "float32" : "bfloat16", amount.ranks, text_of(what.as), amount.bytes / mebibyte);
  report.add("cases", {{"case", name}, {"goal", goal}}, [&]() -> Json {
    const Seconds seconds = wide ? seconds_of<float>(what) : seconds_of<uint16_t>(what);
    const auto fraction = [&](double of_one) { return amount.floor_bytes() / ceiling / of_one; };
    fmt::print("{:56} {:10.1f} us, {:5.1f} % of the floor; in a row {:10.1f} us, {:5.1f} % (goal {:.0f} %)\n",
               name, seconds.alone * 1e6, 100 * fraction(seconds.alone), seconds.in_a_row * 1e6,
               100 * fraction(seconds.in_a_row), 100 * goal);
    return {{"microseconds", seconds.alone * 1e6},
            {"fraction_of_floor", fraction(seconds.alone)},
            {"in_a_row_microseconds", seconds.in_a_row * 1e6},
            {"in_a_row_fraction_of_floor", fraction(seconds.in_a_row)}};
  });
}

/// What it is worth to queue calls ahead of their streams, and to signal in the GPU's memory.
void measure_ways(As as, Amount amount, double ceiling, BenchReport& report) {
  for (const char* ahead : {"0", "1"})
    for (const char* signals : {"driver", "auto"}) {
      const Json is{{"collective", text_of(amount.which)},
                    {"ranks_as", text_of(as)},
                    {"megabytes", amount.bytes / mebibyte},
                    {"EPCCL_CUDA_AHEAD", ahead},
                    {"EPCCL_CUDA_SIGNALS", signals}};
      report.add("ways", is, [&]() -> Json {
        setenv("EPCCL_CUDA_AHEAD", ahead, 1);
        setenv("EPCCL_CUDA_SIGNALS", signals, 1);
        const Seconds seconds = seconds_of<float>({as, amount});
        unsetenv("EPCCL_CUDA_AHEAD");
        unsetenv("EPCCL_CUDA_SIGNALS");
        const auto fraction = [&](double of_one) { return amount.floor_bytes() / ceiling / of_one; };
        fmt::print("{:48} {:8.1f} us, {:5.1f} %; in a row {:8.1f} us, {:5.1f} % of the floor\n",
                   fmt::format("{} {} MiB {} AHEAD={} SIGNALS={}", text_of(amount.which),
                               amount.bytes / mebibyte, text_of(as), ahead, signals),
                   seconds.alone * 1e6, 100 * fraction(seconds.alone), seconds.in_a_row * 1e6,
                   100 * fraction(seconds.in_a_row));
        return {{"microseconds", seconds.alone * 1e6},
                {"fraction_of_floor", fraction(seconds.alone)},
                {"in_a_row_microseconds", seconds.in_a_row * 1e6},
                {"in_a_row_fraction_of_floor", fraction(seconds.in_a_row)}};
      });
    }
}

/// The first size; others, of float32 alone, follow the rest.
void measure(const BenchArguments& asked, BenchReport& report) {
  const uint64_t bytes = asked.sizes.front();
  const auto copy = measured<CopyRates>(As::threads, 1, [bytes](Rank& rank, CopyRates& rates) {
    rates = measure_copy_rates(rank.device(), std::min(16 * bytes, 1024 * mebibyte));
  });
  copy.tell(report.facts());
  const double ceiling = copy.ceiling();
  std::vector<As> kinds;
  if (!asked.only_processes) kinds.push_back(As::threads);
  if (!asked.only_threads) kinds.push_back(As::processes);
  if (asked.only_ways) {
    for (const As as : kinds)
      for (const uint64_t size : asked.sizes)
        for (const Collective which : every_collective)
          measure_ways(as, {which, asked.ranks, size}, ceiling, report);
    return;
  }
  const auto measure_collectives = [&](uint64_t size, bool also_narrow) {
    for (const As as : kinds)
      for (const Collective which : every_collective) {
        const Case what{as, {which, asked.ranks, size}};
        measure_collective(what, true, ceiling, report);
        if (adds(which) && also_narrow) measure_collective(what, false, ceiling, report);
      }
  };
  measure_collectives(bytes, true);
  if (kinds.size() == 2) {
    for (const As as : kinds) measure_ways(as, {Collective::alltoall, asked.ranks, bytes}, ceiling, report);
    measure_blocks(asked, ceiling, report);
  }
  for (const uint64_t size : std::span(asked.sizes).subspan(1))
    if (has_room(asked.ranks, size)) measure_collectives(size, false);
}

}  // namespace
}  // namespace epccl::device::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  setenv("EPCCL_DEVICE", "cuda", 1);
  return epccl::device::test::bench_main("bench_collectives", argc, argv, epccl::device::test::measure);
}
