// The double of the driver has the code of all kernels: it runs them on the host.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <type_traits>

#include "../cuda_kernels/launched.hpp"
#include "device/kernels/kernel_list.hpp"
#include "fake_driver.hpp"

namespace epccl::device::kernels::testing {
namespace {

template <class Parameters>
void bring(const char* name, void (*run)(const void*, unsigned, unsigned)) {
  fake_cuda_kernel(name, sizeof(Parameters), run);
}

/// What moves through memory, each byte once.
template <class Parameters>
uint64_t bytes_of(const Parameters&) {
  return 0;
}
uint64_t bytes_of(const ReduceParameters& sum) {
  return sum.bytes * (sum.source_count + 1 + sum.also_count);
}
uint32_t count_of(const RowCount& rows) {
  return rows.counted == nullptr ? rows.most : std::min(rows.most, *rows.counted);
}
/// Rows are read once, however many places they are written to.
uint64_t bytes_of(const MoveParameters& move) {
  const auto row_of = [](const RowList& list, uint32_t i) { return list.list == nullptr ? i : list.list[i]; };
  const bool clears = move.parts[0].source.data == nullptr;
  uint64_t rows = 0, bytes = 0;
  for (uint32_t i = 0; i < count_of(move.rows); ++i)
    rows += (row_of(move.sources, i) == no_row) == clears && row_of(move.destinations, i) != no_row ? 1 : 0;
  for (uint32_t part = 0; part < move.part_count; ++part)
    bytes += (clears ? 1 : 2) * rows * move.parts[part].bytes;
  return bytes;
}
uint64_t bytes_of(const SpreadParameters& spread) {
  const uint64_t rows = count_of(spread.rows);
  uint64_t places = 0, bytes = 0;
  for (uint64_t i = 0; i < rows * spread.width; ++i)
    places += spread.targets == nullptr || spread.targets[i].row != no_row ? 1 : 0;
  for (uint32_t part = 0; part < spread.part_count; ++part)
    bytes += rows * spread.parts[part].bytes + places * spread.parts[part].destination_stride;
  return bytes;
}
uint64_t bytes_of(const CopiesParameters& copies) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < copies.copy_count; ++i) bytes += 2 * copies.copies[i].bytes;
  return bytes;
}

/// What a kernel is given of words, by where it finds them.
template <class Parameters>
void find_words(Parameters&) {}
void find_words(WordParameters& words) {
  const auto find = [](auto*& word) {
    using Word = std::remove_reference_t<decltype(word)>;
    if (word != nullptr) word = static_cast<Word>(fake_cuda_bytes(word, sizeof *word));
  };
  for (uint32_t i = 0; i < words.awaited_count; ++i) find(words.awaited[i].word), find(words.awaited[i].near);
  for (uint32_t i = 0; i < words.raised_count; ++i) find(words.raised[i].word), find(words.raised[i].near);
}

#define EPCCL_BRING(entry, Parameters)                                                    \
  bring<Parameters>(#entry, [](const void* bytes, unsigned blocks, unsigned threads) {    \
    Launch<Parameters> launch{{#entry, Image::reduce}, blocks, threads, {}, 0};           \
    std::memcpy(static_cast<void*>(&launch.parameters), bytes, sizeof launch.parameters); \
    find_words(launch.parameters);                                                        \
    fake_cuda_count("bytes of kernels", static_cast<long>(bytes_of(launch.parameters)));  \
    std::mt19937_64 random(1);                                                            \
    run_on_host(launch, random);                                                          \
  });
#define EPCCL_BRING_REDUCE(entry, body) EPCCL_BRING(entry, ReduceParameters)
#define EPCCL_BRING_MOVE(entry, body) EPCCL_BRING(entry, MoveParameters)
#define EPCCL_BRING_SPREAD(entry, body) EPCCL_BRING(entry, SpreadParameters)
#define EPCCL_BRING_SUM(entry, body) EPCCL_BRING(entry, SumParameters)
#define EPCCL_BRING_LAYOUT(entry, body) EPCCL_BRING(entry, LayoutParameters)
#define EPCCL_BRING_TERMS(entry, body) EPCCL_BRING(entry, TermsParameters)
#define EPCCL_BRING_STREAMS(entry, body) EPCCL_BRING(entry, TokenStreamParameters)
#define EPCCL_BRING_WEIGHTS(entry, body) EPCCL_BRING(entry, WeightsParameters)
#define EPCCL_BRING_COUNTERS(entry, body) EPCCL_BRING(entry, CountersParameters)
#define EPCCL_BRING_TOPK(entry, body) EPCCL_BRING(entry, TopkParameters)
#define EPCCL_BRING_COPIES(entry, body) EPCCL_BRING(entry, CopiesParameters)
#define EPCCL_BRING_SIGNALS(entry, body) EPCCL_BRING(entry, SignalParameters)
#define EPCCL_BRING_HOST_CALL(entry, body) EPCCL_BRING(entry, HostCallParameters)
#define EPCCL_BRING_WORDS(entry, body) EPCCL_BRING(entry, WordParameters)

[[maybe_unused]] const bool all_brought = [] {
  setenv("FAKE_CUDA_OPEN", "1", 1);
  EPCCL_REDUCE_KERNELS(EPCCL_BRING_REDUCE)
  EPCCL_MOVE_KERNELS(EPCCL_BRING_MOVE)
  EPCCL_SPREAD_KERNELS(EPCCL_BRING_SPREAD)
  EPCCL_SUM_KERNELS(EPCCL_BRING_SUM)
  EPCCL_LAYOUT_KERNELS(EPCCL_BRING_LAYOUT)
  EPCCL_TERMS_KERNELS(EPCCL_BRING_TERMS)
  EPCCL_TOKEN_STREAMS_KERNELS(EPCCL_BRING_STREAMS)
  EPCCL_WEIGHTS_KERNELS(EPCCL_BRING_WEIGHTS)
  EPCCL_COUNTERS_KERNELS(EPCCL_BRING_COUNTERS)
  EPCCL_TOPK_KERNELS(EPCCL_BRING_TOPK)
  EPCCL_COPIES_KERNELS(EPCCL_BRING_COPIES)
  EPCCL_SIGNALS_KERNELS(EPCCL_BRING_SIGNALS)
  EPCCL_HOST_CALL_KERNELS(EPCCL_BRING_HOST_CALL)
  EPCCL_WORDS_KERNELS(EPCCL_BRING_WORDS)
  return true;
}();

}  // namespace
}  // namespace epccl::device::kernels::testing
