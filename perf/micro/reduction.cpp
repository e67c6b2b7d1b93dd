// Reducing a buffer of each source into another, within the caches and beyond them.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "device/host/reduction.hpp"

namespace epccl {
namespace {

using device::Element;
using device::ReduceOp;

constexpr const char* name_of(Element element) {
  constexpr const char* names[] = {"int8",    "uint8",   "int32",   "uint32",   "int64", "uint64",
                                   "float16", "float32", "float64", "bfloat16", "e4m3",  "e5m2"};
  return names[static_cast<int>(element)];
}

/// In every type an ordinary number: arithmetic with subnormals would be timed otherwise.
constexpr std::byte ordinary{0x3c};

/// Bytes a second are those read and written.
void reduce_sources(benchmark::State& state, Element element, ReduceOp op) {
  const auto count = static_cast<size_t>(state.range(0)), bytes = static_cast<size_t>(state.range(1));
  std::vector<std::vector<std::byte>> buffers(count + 1, std::vector<std::byte>(bytes, ordinary));
  std::vector<device::ReduceSource> sources;
  for (size_t s = 0; s < count; ++s) sources.push_back({buffers[s].data(), true});
  for (auto _ : state) {
    device::reduce({element, op, 0, 8}, sources, true, buffers.back().data(), bytes / bytes_of(element));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>((count + 1) * bytes));
}

/// What memory gives: the same with memcpy alone, a source at a time.
void copy_sources(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<std::byte> from(bytes, std::byte{1}), to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(2 * bytes));
}

const int registered = [] {
  for (const int64_t bytes : {64 << 10, 16 << 20}) {
    benchmark::RegisterBenchmark("copy", copy_sources)->ArgName("bytes")->Arg(bytes);
    for (const int64_t sources : {2, 8}) {
      const auto add = [&](const std::string& name, Element element, ReduceOp op) {
        benchmark::RegisterBenchmark(("reduce_" + name + "_" + name_of(element)).c_str(), reduce_sources,
                                     element, op)
            ->ArgNames({"sources", "bytes"})
            ->Args({sources, bytes});
      };
      for (int element = 0; element < device::element_kinds; ++element)
        add("sum", static_cast<Element>(element), ReduceOp::sum);
      add("max", Element::float32, ReduceOp::max);
      add("max", Element::bfloat16, ReduceOp::max);
      add("avg", Element::bfloat16, ReduceOp::avg);
      add("avg", Element::int32, ReduceOp::avg);
    }
  }
  return 0;
}();

}  // namespace
}  // namespace epccl
