// The ceiling that copies and kernels are held against: the rate of a large copy inside the GPU, made in the best of several ways. No
// single one is it everywhere: drivers before CUDA 13 let copies reach two thirds of an H200's memory (NVIDIA/cccl#1672), those from
// 13.1 on take the hint to overlap with compute as an order to use one engine (NVIDIA/nccl#2177).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/clock.hpp"
#include "device/gpus.hpp"
#include "device/kernels/kernel_queue.hpp"
#include "results.hpp"

namespace epccl::device::test {

/// Each way and the flag that the driver gets.
inline constexpr std::array ways_to_copy{"compute queue, default flag", "engine queue, hint to overlap",
                                         "engine queue, default flag", "kernel epccl_move"};

struct CopyRates {
  std::array<double, ways_to_copy.size()> bytes_per_second{};  // read, and written as well; 0: not possible
  int driver = 0;                                              // its version of CUDA: 13000 for 13.0

  /// What every goal is held against.
  double ceiling() const { return *std::ranges::max_element(bytes_per_second); }
  std::string driver_text() const {
    return fmt::format("driver of CUDA {}.{}", driver / 1000, driver % 1000 / 10);
  }
  /// Prints a line for each way, and adds them to a program's report.
  void tell(nlohmann::ordered_json& report) const {
    report["copy_ceiling_bytes_per_second"] = ceiling();
    report["cuda_driver"] = driver;
    for (size_t way = 0; way < ways_to_copy.size(); ++way) {
      report["large_copy_bytes_per_second"][ways_to_copy[way]] = bytes_per_second[way];
      fmt::print("{:56} {:10.1f} GB/s ({})\n", fmt::format("one large copy, {}", ways_to_copy[way]),
                 bytes_per_second[way] / 1e9, driver_text());
    }
  }
};

namespace ceiling {

class Memory {
 public:
  Memory(Device& device, uint64_t bytes)
      : device_(device), data_(take(device.allocate(MemoryKind::plain, bytes))) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { static_cast<void>(device_.free(data_)); }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  Device& device_;
  void* const data_;
};

/// Several in a row, so that what it takes to start one counts for little; the best of some times.
template <typename Work>
double rate_of(Queue& queue, uint64_t bytes, const Work& work) {
  constexpr int in_a_row = 8, times = 5;
  double best = std::numeric_limits<double>::max();
  for (int time = -1; time < times; ++time) {  // the first one warms up
    const double begin = now_seconds();
    for (int i = 0; i < in_a_row; ++i) must(work());
    must(queue.synchronize());
    if (time >= 0) best = std::min(best, (now_seconds() - begin) / in_a_row);
  }
  return static_cast<double>(bytes) / best;
}

/// As a list, since the flag is a list's.
inline double rate_of_engine(Device& device, std::byte* to, const std::byte* from, uint64_t bytes,
                             bool may_use_cores) {
  constexpr uint64_t pieces = 8;
  std::vector<CopyWork> list;
  for (uint64_t i = 0; i < pieces; ++i) {
    list.push_back({to + i * (bytes / pieces), from + i * (bytes / pieces), bytes / pieces});
    list.back().may_use_cores = may_use_cores;
  }
  const auto queue = take(device.make_queue(QueueKind::copy_engine));
  return rate_of(*queue, bytes, [&] { return queue->copy(list); });
}

}  // namespace ceiling

/// Smaller buffers are there to try a program, on a double of the driver; their figures mean nothing.
inline constexpr uint64_t least_to_believe = 8 << 20;

/// Copies until the GPU's clocks have risen: where it had nothing to do they are a fraction of what they are under load. By each rank,
/// before the barrier that the measured calls begin with.
inline void raise_clocks(Device& device, uint64_t bytes) {
  constexpr double time_to_rise = 0.3;
  constexpr uint64_t enough = 64 << 20;
  const uint64_t copied = std::min(bytes, enough);
  const ceiling::Memory from(device, copied), to(device, copied);
  const auto queue = take(device.make_queue(QueueKind::compute));
  const CopyWork work{to.data(), from.data(), copied};
  const double until = now_seconds() + (bytes >= least_to_believe ? time_to_rise : 0);
  do {
    for (int i = 0; i < 4; ++i) must(queue->copy({&work, 1}));
    must(queue->synchronize());
  } while (now_seconds() < until);
}

/// `bytes`: a multiple of 1 MiB, many times what the caches hold.
inline CopyRates measure_copy_rates(Device& device, uint64_t bytes) {
  constexpr uint64_t row = 64 << 10;
  raise_clocks(device, bytes);
  const ceiling::Memory from(device, bytes), to(device, bytes);
  const auto compute = take(device.make_queue(QueueKind::compute));
  const CopyWork work{to.data(), from.data(), bytes};
  CopyRates rates;
  rates.driver = cuda_driver_version();
  rates.bytes_per_second[0] = ceiling::rate_of(*compute, bytes, [&] { return compute->copy({&work, 1}); });
  rates.bytes_per_second[1] = ceiling::rate_of_engine(device, to.data(), from.data(), bytes, false);
  rates.bytes_per_second[2] = ceiling::rate_of_engine(device, to.data(), from.data(), bytes, true);
  if (!kernels::has_kernels(*compute)) return rates;
  kernels::MoveParameters move;
  move.parts[0] = {{from.data(), row}, {to.data(), row}, row};
  move.part_count = 1;
  move.rows.most = static_cast<uint32_t>(bytes / row);
  const auto launch = kernels::move_launch(move, take(kernels::grid_of(*compute)));
  rates.bytes_per_second[3] =
      ceiling::rate_of(*compute, bytes, [&] { return kernels::queue_kernel(*compute, launch); });
  return rates;
}

}  // namespace epccl::device::test
