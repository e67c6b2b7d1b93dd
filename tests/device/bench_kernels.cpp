// How fast the CUDA kernels are, against what the same GPU's own copies reach: the bytes that a kernel has to move at least, over its
// time, as a fraction of the rate of a large device-to-device copy (which reads and writes every byte). Needs a GPU.
//   bench_kernels [FILE] [blocks]      prints a table, and writes FILE as JSON after each case; `blocks`: with other numbers of blocks, too
// Exit codes: 0 measured; 77 there is no GPU; 1 something failed: what did is named in FILE, beside what was measured.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "bench_report.hpp"
#include "copy_ceiling.hpp"
#include "device/host/fp8.hpp"

namespace epccl::device::cuda {
namespace {

using namespace kernels;

constexpr uint32_t tokens = 4096, hidden = 7168, topk = 8, peers = 8, experts = 256;
constexpr uint64_t row_bytes = uint64_t{hidden} * 2, scale_bytes = e4m3_scales(hidden) * sizeof(float);
constexpr int skipped = 77;

using test::must;
using test::take;

/// Memory of the device, or of the host where the device reads it.
class Memory {
 public:
  Memory(Device& device, uint64_t bytes, MemoryKind kind = MemoryKind::plain)
      : device_(device), bytes_(bytes), data_(take(device.allocate(kind, std::max<uint64_t>(bytes, 1)))) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { static_cast<void>(device_.free(data_)); }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  uint64_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  Device& device_;
  uint64_t bytes_;
  void* data_;
};

class Bench {
 public:
  Bench(Device& device, const char* file, bool explores)
      : device_(device),
        explores_(explores),
        report_(file),
        queue_(take(device.make_queue(QueueKind::compute))),
        grid_(take(grid_of(*queue_))),
        tokens_(device, tokens * row_bytes),
        received_(device, uint64_t{tokens} * topk * row_bytes),
        quantised_(device, uint64_t{tokens} * topk * hidden),
        scales_(device, uint64_t{tokens} * topk * scale_bytes),
        weights_(device, uint64_t{tokens} * topk * topk * sizeof(float)),
        targets_(device, uint64_t{tokens} * topk * sizeof(Target)),
        terms_(device, uint64_t{tokens} * topk * sizeof(Term)),
        counts_(device, tokens * sizeof(uint32_t)) {
    fill_randomly(tokens_);
    fill_randomly(received_);
    std::vector<float> weights(weights_.bytes() / sizeof(float), 0.125F);
    put(weights_, weights);
    make_routing();
  }

  int run() {
    fmt::print("{}\n\n{:<34}{:>10}{:>10}{:>9}  {}\n", device_.description(), "", "us", "GB/s", "of copy",
               "blocks");
    const test::CopyRates copy = test::measure_copy_rates(device_, uint64_t{1} << 30);
    copy.tell(report_.facts());
    ceiling_ = 2 * copy.ceiling() / 1e9;  // a copy reads each byte and writes it
    permute();
    combine();
    float8();
    reductions();
    layouts();
    small_copies();
    return report_.has_failures() ? 1 : 0;
  }

 private:
  // --- data ---

  template <class T>
  void put(const Memory& to, const std::vector<T>& values) {
    const Memory pinned(device_, values.size() * sizeof(T), MemoryKind::pinned);
    std::memcpy(pinned.data(), values.data(), pinned.bytes());
    const CopyWork copy{to.data(), pinned.data(), pinned.bytes()};
    must(queue_->copy({&copy, 1}));
    must(queue_->synchronize());
  }
  /// With ordinary bfloat16.
  void fill_randomly(const Memory& memory) {
    std::mt19937_64 random(1);
    std::vector<uint16_t> some(8 << 20);
    for (uint16_t& number : some) number = static_cast<uint16_t>((random() & 0x80ff) | 0x3f00);
    for (uint64_t at = 0; at < memory.bytes(); at += some.size() * 2) {
      some.resize(std::min<uint64_t>(some.size(), (memory.bytes() - at) / 2));
      const Memory pinned(device_, some.size() * 2, MemoryKind::pinned);
      std::memcpy(pinned.data(), some.data(), pinned.bytes());
      const CopyWork copy{memory.data() + at, pinned.data(), pinned.bytes()};
      must(queue_->copy({&copy, 1}));
      must(queue_->synchronize());
    }
  }
  /// Every token to 8 different experts out of 256, spread over 8 peers; rows in the order of experts.
  void make_routing() {
    std::mt19937_64 random(2);
    std::vector<std::vector<uint32_t>> entries(experts);
    std::vector<uint32_t> all(experts);
    std::iota(all.begin(), all.end(), 0U);
    table_.resize(uint64_t{tokens} * topk);
    for (uint32_t token = 0; token < tokens; ++token) {
      for (uint32_t place = 0; place < topk; ++place) {
        std::swap(all[place], all[place + random() % (experts - place)]);
        table_[token * topk + place] = all[place];
        entries[all[place]].push_back(token * topk + place);
      }
    }
    std::vector<Target> targets(table_.size());
    std::vector<uint32_t> rows(peers, 0);
    for (uint32_t expert = 0; expert < experts; ++expert)
      for (const uint32_t entry : entries[expert]) {
        const uint32_t peer = expert / (experts / peers);
        targets[entry] = {rows[peer]++, peer};
      }
    // One peer's rows behind the other's.
    first_row_.assign(peers, 0);
    std::exclusive_scan(rows.begin(), rows.end(), first_row_.begin(), 0U);
    put(targets_, targets);
    TermsParameters parameters;
    parameters.targets = targets_.as<Target>();
    parameters.rows.most = tokens;
    parameters.width = topk;
    parameters.by_expert = 1;
    parameters.terms = terms_.as<Term>();
    parameters.counts = counts_.as<uint32_t>();
    must(queue_kernel(*queue_, terms_launch(parameters, grid_)));
    must(queue_->synchronize());
  }

  // --- measuring ---

  /// Microseconds of one `work`, of many in a row; the best of some times.
  double time_of(const std::function<void()>& work) {
    using Clock = std::chrono::steady_clock;
    const auto microseconds = [&](int repetitions) {
      must(queue_->synchronize());
      const auto begin = Clock::now();
      for (int i = 0; i < repetitions; ++i) work();
      must(queue_->synchronize());
      return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / repetitions;
    };
    microseconds(3);
    const int repetitions = std::clamp(static_cast<int>(50000 / microseconds(3)), 5, 2000);
    double best = microseconds(repetitions);
    for (int i = 0; i < 4; ++i) best = std::min(best, microseconds(repetitions));
    return best;
  }

  /// `work` moves so many bytes at least, with so many blocks; 0: it is no kernel.
  void measure(const std::string& name, const std::function<void()>& work, uint64_t bytes, uint32_t blocks) {
    report_.set(name, [&]() -> test::BenchReport::Json {
      const double microseconds = time_of(work), rate = static_cast<double>(bytes) / microseconds / 1e3;
      fmt::print("{:<34}{:>10.1f}{:>10.0f}{:>8.1f}%  {}\n", name, microseconds, rate, 100 * rate / ceiling_,
                 blocks);
      return {{"us", microseconds},
              {"bytes", bytes},
              {"GBps", rate},
              {"of_copy", rate / ceiling_},
              {"blocks", blocks}};
    });
  }
  template <class Parameters>
  void measure(const std::string& name, const Launch<Parameters>& launch) {
    measure(
        name, [&] { must(queue_kernel(*queue_, launch)); }, launch.least_bytes, launch.blocks);
    if (!explores_) return;
    for (const uint32_t of_multiprocessor : {2U, 3U, 4U, 6U, 8U, 16U, 32U, 64U}) {
      Launch<Parameters> other = launch;
      other.blocks = of_multiprocessor * grid_.multiprocessors;
      measure(
          fmt::format("{}, {} a multiprocessor", name, of_multiprocessor),
          [&] { must(queue_kernel(*queue_, other)); }, other.least_bytes, other.blocks);
    }
  }

  // --- what is measured ---

  RowArray tokens_array() const { return {tokens_.data(), row_bytes}; }

  /// To all peers; each part has one array for all of them.
  SpreadParameters to_peers(const Memory& rows, uint64_t stride) const {
    SpreadParameters parameters;
    parameters.parts[0] = {tokens_array(), row_bytes, stride, {}};
    for (uint32_t peer = 0; peer < peers; ++peer)
      parameters.parts[0].destinations[peer] = rows.data() + first_row_[peer] * stride;
    parameters.part_count = 1;
    parameters.targets = targets_.as<Target>();
    parameters.rows.most = tokens;
    parameters.width = topk;
    return parameters;
  }
  SpreadParameters quantised_to_peers() const {
    SpreadParameters parameters = to_peers(quantised_, hidden);
    parameters.parts[1].bytes = parameters.parts[1].destination_stride = scale_bytes;
    for (uint32_t peer = 0; peer < peers; ++peer)
      parameters.parts[1].destinations[peer] = scales_.data() + first_row_[peer] * scale_bytes;
    parameters.part_count = 2;
    parameters.elements = hidden;
    return parameters;
  }

  void permute() {
    measure("permute (spread, top-8)", spread_launch(to_peers(received_, row_bytes), grid_));
    MoveParameters move;
    move.parts[0] = {tokens_array(), {received_.data(), row_bytes}, row_bytes};
    move.part_count = 1;
    move.rows.most = tokens;
    measure("move rows", move_launch(move, grid_));
  }

  SumParameters from_peers(bool weighted, bool float8) const {
    SumParameters parameters;
    for (uint32_t peer = 0; peer < peers; ++peer) {
      const uint64_t first = first_row_[peer], stride = float8 ? hidden : row_bytes;
      const std::byte* rows = (float8 ? quantised_ : received_).data() + first * stride;
      parameters.sources[peer] = {rows, stride, weighted ? weights_.as<float>() + first * topk : nullptr,
                                  scales_.data() + first * scale_bytes, scale_bytes};
    }
    parameters.destination = {tokens_.data(), row_bytes};
    parameters.terms = terms_.as<Term>();
    parameters.counts = counts_.as<uint32_t>();
    parameters.width = topk;
    parameters.weights_per_row = topk;
    parameters.elements = hidden;
    parameters.rows.most = tokens;
    return parameters;
  }

  void combine() {
    const auto launch = [&](Operands operands, bool weighted) {
      return sum_launch(RowType::bfloat16, operands, from_peers(weighted, operands == Operands::float8),
                        uint64_t{tokens} * topk, grid_);
    };
    measure("unpermute (sum)", launch(Operands::plain, false));
    measure("weighted combine", launch(Operands::plain, true));
    measure("permute, quantised", quantise_launch(RowType::bfloat16, quantised_to_peers(), grid_));
    measure("weighted combine of float8", launch(Operands::float8, true));
  }

  void float8() {
    SpreadParameters quantise = quantised_to_peers();
    quantise.targets = nullptr;
    quantise.width = 1;
    // One slice after the other: the same one would stay in the GPU's cache.
    std::vector<Launch<SpreadParameters>> slices;
    for (uint32_t slice = 0; slice < topk; ++slice) {
      const uint64_t row = uint64_t{slice} * tokens;
      quantise.parts[0].source.data = received_.data() + row * row_bytes;
      quantise.parts[0].destinations[0] = quantised_.data() + row * hidden;
      quantise.parts[1].destinations[0] = scales_.data() + row * scale_bytes;
      slices.push_back(quantise_launch(RowType::bfloat16, quantise, grid_));
    }
    uint32_t next = 0;
    const auto measure_slices = [&](const std::string& name) {
      measure(
          name, [&] { must(queue_kernel(*queue_, slices[next++ % topk])); }, slices[0].least_bytes,
          slices[0].blocks);
    };
    measure_slices("FP8 quantise");
    for (const uint32_t of_multiprocessor : {2U, 3U, 4U, 6U, 8U, 16U, 32U, 64U}) {
      if (!explores_) break;
      for (auto& slice : slices) slice.blocks = of_multiprocessor * grid_.multiprocessors;
      measure_slices(fmt::format("FP8 quantise, {} a multiprocessor", of_multiprocessor));
    }
    // What short copies reach that read and write as much: the ceiling is that of long ones.
    const uint64_t half = slices[0].least_bytes / 2 / 16 * 16;
    std::vector<CopyWork> copies;
    for (uint32_t slice = 0; slice < topk; ++slice)
      copies.push_back({quantised_.data() + uint64_t{slice} * tokens * hidden / 2,
                        received_.data() + uint64_t{slice} * tokens * row_bytes, half});
    measure(
        "a copy of as much",
        [&] {
          must(queue_->copy({&copies[next++ % topk], 1}));
        },
        2 * half, 0);
    MoveParameters back;
    back.parts[0] = {{quantised_.data(), hidden}, {received_.data(), row_bytes}, hidden};
    back.parts[1] = {{scales_.data(), scale_bytes}, {}, scale_bytes};
    back.part_count = 2;
    back.elements = hidden;
    back.rows.most = tokens;
    measure("FP8 dequantise", dequantise_launch(RowType::bfloat16, back, grid_));
  }

  void reductions() {
    for (const Element element : {Element::float32, Element::bfloat16})
      for (const uint32_t sources : {2U, 8U})
        for (const uint32_t blocks : {0U, 16U, 32U}) {
          const uint64_t bytes = (received_.bytes() / 8) / 16 * 16;
          std::vector<ReduceSource> list;
          for (uint32_t s = 0; s < sources; ++s) list.push_back({received_.data() + s * bytes, true});
          Grid grid = grid_;
          grid.most_blocks = blocks;
          measure(
              fmt::format("reduce {} of {}, {} blocks", element == Element::float32 ? "float32" : "bfloat16",
                          sources, blocks == 0 ? "all" : std::to_string(blocks)),
              reduce_launch({.element = element}, list, true, tokens_.data(),
                            std::min(bytes, tokens_.bytes()) / device::bytes_of(element), grid));
        }
  }

  /// From topk_idx to targets: for one source's 4096 tokens, and in static mode for 8 sources' 128.
  void layouts() {
    for (const auto& [sources, count] : {std::pair{1U, tokens}, std::pair{peers, 128U}})
      layout(sources, count);
  }
  void layout(uint32_t sources, uint32_t count) {
    LayoutParameters parameters;
    parameters.shape = {sources, count, topk, experts, peers, 1};
    const LayoutShape& shape = parameters.shape;
    parameters.rules.by_expert = 1;
    std::vector<int64_t> records(table_.begin(),
                                 table_.begin() + static_cast<ptrdiff_t>(uint64_t{count} * topk));
    std::vector<ExpertPlace> places;
    std::vector<RankPlace> ranks;
    for (uint32_t expert = 0; expert < experts; ++expert)
      places.push_back({expert, expert / (experts / peers), 0});
    for (uint32_t rank = 0; rank < peers; ++rank)
      ranks.push_back({rank * (experts / peers), experts / peers, rank});
    const Memory tables(device_, records.size() * sizeof records[0]),
        of_experts(device_, places.size() * sizeof places[0]),
        of_ranks(device_, ranks.size() * sizeof ranks[0]);
    put(tables, records);
    put(of_experts, places);
    put(of_ranks, ranks);
    const auto words = [this](uint64_t count_of_words) {
      return Memory(device_, count_of_words * sizeof(uint32_t));
    };
    const Memory counts = words(shape.count_words()), totals = words(shape.total_words()),
                 wrong = words(sources), before = words(uint64_t{sources} * experts),
                 first_row = words(uint64_t{sources} * peers), entries = words(experts),
                 zone_begin = words(experts), zone_rows = words(experts), rows = words(peers),
                 targets = words(uint64_t{count} * topk * 2);
    // Every source has the same table.
    parameters.records = tables.data();
    parameters.wide = 1;
    parameters.experts = of_experts.as<ExpertPlace>();
    parameters.ranks = of_ranks.as<RankPlace>();
    parameters.counts = counts.as<uint32_t>();
    parameters.totals = totals.as<uint32_t>();
    parameters.wrong = wrong.as<uint32_t>();
    parameters.before = before.as<uint32_t>();
    parameters.first_row = first_row.as<uint32_t>();
    parameters.entries = entries.as<uint32_t>();
    parameters.zone_begin = zone_begin.as<uint32_t>();
    parameters.zone_rows = zone_rows.as<uint32_t>();
    parameters.rows = rows.as<uint32_t>();
    parameters.targets = targets.as<Target>();
    const auto launches = layout_launches(parameters, grid_);
    const auto all = [&] {
      for (const auto& launch : launches) must(queue_kernel(*queue_, launch));
    };
    uint64_t bytes = 0;
    for (const auto& launch : launches) bytes += launch.least_bytes;
    measure(fmt::format("layout, {} x {} tokens", sources, count), all, bytes, launches[0].blocks);
  }

  void small_copies() {
    const Memory arrived(device_, sizeof(uint32_t));
    put(arrived, std::vector<uint32_t>{0});
    std::vector<SmallCopy> copies;
    std::vector<CopyWork> same;
    for (uint32_t i = 0; i < 64; ++i) {
      copies.push_back({received_.data() + i * 4096, tokens_.data() + i * 4096, 1024});
      same.push_back({copies[i].destination, copies[i].source, 1024});
    }
    measure("64 copies of 1 KiB, kernel", copies_launch(copies, {}, arrived.as<uint32_t>(), grid_));
    measure(
        "64 of 1 KiB, as a batch of copies", [&] { must(queue_->copy(same)); }, 64 * 2048, 0);
  }

  Device& device_;
  const bool explores_;
  test::BenchReport report_;
  const std::unique_ptr<Queue> queue_;
  const Grid grid_;
  const Memory tokens_, received_, quantised_, scales_, weights_, targets_, terms_, counts_;
  std::vector<int64_t> table_;
  std::vector<uint32_t> first_row_;
  double ceiling_ = 0;  // GB/s, read and written together
};

int bench(const char* file, bool explores) {
  auto device = cuda_device(0);
  if (!device.ok()) {
    fmt::print("skipped: {}\n", device.status().message());
    return skipped;
  }
  return Bench(*device.value(), file, explores).run();
}

}  // namespace
}  // namespace epccl::device::cuda

int main(int count, char** arguments) {
  try {
    return epccl::device::cuda::bench(count > 1 ? arguments[1] : nullptr,
                                      count > 2 && std::strcmp(arguments[2], "blocks") == 0);
  } catch (const std::exception& failure) {
    fmt::print(stderr, "bench_kernels: {}\n", failure.what());
    return 1;
  }
}
