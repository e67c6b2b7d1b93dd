// What collectives of the C API reach between ranks that share one GPU, as threads and as processes, against that GPU's own large
// device-to-device copy. The floor of a call is the bytes that have to be read and written at least, at the rate of that copy (which
// reads and writes each byte). Needs a GPU.
//   bench_collectives [FILE] [MEGABYTES A RANK] [RANKS] [processes]     prints a table, and writes FILE as JSON;
//                                                                           `processes`: only what ranks as processes reach
// Exit codes: 0 measured; 77 there is no GPU; 1 something failed.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../multiprocess/api_cuda/gpu_rank.hpp"
#include "copy_ceiling.hpp"
#include "measured.hpp"

namespace epccl::device::test {
namespace {

using Json = nlohmann::ordered_json;
using tests::GpuRank;
constexpr int rounds = 10;
constexpr uint64_t mebibyte = uint64_t{1} << 20;

/// What a measurement's processes share.
struct Board {
  epcclUniqueId id{};
  double result = 0;
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

enum class Collective { alltoall, allgather, reduce_scatter, allreduce };
const char* text_of(Collective which) {
  constexpr const char* names[] = {"alltoall", "allgather", "reduce_scatter", "allreduce"};
  return names[static_cast<int>(which)];
}
bool adds(Collective which) {
  return which == Collective::reduce_scatter || which == Collective::allreduce;
}

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
  Collective which;
  As as;
  int ranks;
  uint64_t bytes;  // of the larger buffer of a rank
  int blocks = 0;  // maxCTAs; 0: the library's choice

  /// Bytes that a copy of the least time would copy.
  double floor_bytes() const {
    const double each = static_cast<double>(bytes), all = each * ranks;
    return which == Collective::reduce_scatter ? (all + each) / 2 : all;
  }
};

template <typename T>
void call(const Case& what, const Buffer& input, const Buffer& output, epcclComm_t comm,
          epcclStream_t stream) {
  const size_t count = what.bytes / sizeof(T), block = count / static_cast<size_t>(what.ranks);
  constexpr epcclDataType_t type = Kind<T>::type;
  switch (what.which) {
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

/// The first and the last element of the last rank's block, or of all.
template <typename T>
void check(const Case& what, const GpuRank& gpu, const Buffer& output) {
  const uint64_t bytes =
      what.which == Collective::reduce_scatter ? what.bytes / static_cast<uint64_t>(what.ranks) : what.bytes;
  T last{};
  driver_ok(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(&last), output.address(bytes - sizeof(T)), sizeof(T),
                          gpu.stream()));
  driver_ok(cuStreamSynchronize(gpu.stream()));
  const T expected = Kind<T>::of(adds(what.which) ? what.ranks * (what.ranks + 1) / 2 : what.ranks);
  if (last != expected) throw std::runtime_error(fmt::format("{}: a wrong result", text_of(what.which)));
}

template <typename T>
double seconds_of(const Case& what) {
  const auto work = [&](Rank& rank, Board& board) {
    const GpuRank gpu;
    if (rank.number() == 0) call_ok(epcclGetUniqueId(&board.id));
    rank.barrier();
    epcclComm_t comm = nullptr;
    epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
    if (what.blocks > 0) config.maxCTAs = what.blocks;
    call_ok(epcclCommInitRankConfig(&comm, rank.count(), board.id, rank.number(), &config));
    {
      const Buffer input(what.bytes), output(what.bytes);
      const std::vector<T> values(what.bytes / sizeof(T), Kind<T>::of(rank.number() + 1));
      driver_ok(cuMemcpyAsync(input.address(), reinterpret_cast<CUdeviceptr>(values.data()), what.bytes,
                              gpu.stream()));
      driver_ok(cuStreamSynchronize(gpu.stream()));
      std::vector<double> seconds;
      for (int round = -3; round < rounds; ++round) {
        rank.barrier();
        const double begin = now_seconds();
        call<T>(what, input, output, comm, gpu.as_epccl());
        driver_ok(cuStreamSynchronize(gpu.stream()));
        if (round >= 0) seconds.push_back(now_seconds() - begin);
      }
      check<T>(what, gpu, output);
      if (rank.number() == 0) board.result = median_of(std::move(seconds));
      rank.barrier();  // memory is freed when nobody waits any more
    }
    call_ok(epcclCommDestroy(comm));
  };
  return measured<Board>(what.as, what.ranks, work).result;
}

/// What sums take with fewer and more blocks than the library chooses.
void measure_blocks(uint64_t bytes, int ranks, double ceiling, Json& report) {
  const int chosen = measured<int>(As::threads, 1, [ranks](Rank& rank, int& blocks) {
    blocks = rank.device().fewest_blocks({Demand::From::here, ranks, ranks});
  });
  report["blocks_of_a_rank"] = chosen;
  for (const Collective which : {Collective::reduce_scatter, Collective::allreduce})
    for (const int blocks : {std::max(chosen / 4, 1), std::max(chosen / 2, 1), chosen, 2 * chosen}) {
      const Case what{which, As::threads, ranks, bytes, blocks};
      const double seconds = seconds_of<float>(what), fraction = what.floor_bytes() / ceiling / seconds;
      report["sums_by_blocks"].push_back({{"collective", text_of(which)},
                                          {"blocks", blocks},
                                          {"microseconds", seconds * 1e6},
                                          {"fraction_of_floor", fraction}});
      fmt::print("{:56} {:10.1f} us, {:5.1f} % of the floor\n",
                 fmt::format("{} float32, {} blocks a rank", text_of(which), blocks), seconds * 1e6,
                 100 * fraction);
    }
}

/// `only_processes`: of ranks that are processes, nothing else.
Json measure(uint64_t bytes, int ranks, bool only_processes) {
  Json report;
  const auto copy = measured<CopyRates>(As::threads, 1, [bytes](Rank& rank, CopyRates& rates) {
    rates = measure_copy_rates(rank.device(), std::min(16 * bytes, 1024 * mebibyte));
  });
  copy.tell(report);
  const double ceiling = copy.ceiling();
  for (const As as : {As::threads, As::processes}) {
    if (only_processes && as == As::threads) continue;
    for (const Collective which :
         {Collective::alltoall, Collective::allgather, Collective::reduce_scatter, Collective::allreduce})
      for (const bool wide : {true, false}) {
        if (!adds(which) && !wide) continue;
        const Case what{which, as, ranks, bytes};
        const double seconds = wide ? seconds_of<float>(what) : seconds_of<uint16_t>(what);
        const double goal = adds(which) ? 0.80 : as == As::threads ? 0.90 : 0.85;
        const double fraction = what.floor_bytes() / ceiling / seconds;
        const std::string name =
            fmt::format("{} {}, {} ranks as {}, {} MiB a rank", text_of(which), wide ? "float32" : "bfloat16",
                        ranks, text_of(as), bytes / mebibyte);
        report["cases"].push_back({{"case", name},
                                   {"microseconds", seconds * 1e6},
                                   {"fraction_of_floor", fraction},
                                   {"goal", goal}});
        fmt::print("{:56} {:10.1f} us, {:5.1f} % of the floor (goal {:.0f} %)\n", name, seconds * 1e6,
                   100 * fraction, 100 * goal);
      }
  }
  if (only_processes) return report;
  measure_blocks(bytes, ranks, ceiling, report);
  return report;
}

}  // namespace
}  // namespace epccl::device::test

int main(int argc, char** argv) {
  using namespace epccl::device::test;
  ::testing::InitGoogleTest(&argc, argv);
  setenv("EPCCL_DEVICE", "cuda", 1);
  if (const int code = ask_for_gpu(); code != 0) return code;
  try {
    const uint64_t bytes = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 64) * mebibyte;
    const int ranks = argc > 3 ? std::atoi(argv[3]) : most_ranks;
    const bool only_processes = argc > 4 && std::strcmp(argv[4], text_of(As::processes)) == 0;
    const auto report = measure(bytes, std::clamp(ranks, 1, most_ranks), only_processes);
    if (argc > 1) std::ofstream(argv[1]) << report.dump(2) << '\n';
  } catch (const std::exception& failure) {
    fmt::print(stderr, "bench_collectives: {}\n", failure.what());
    return 1;
  }
  return 0;
}
