// The reduction kernels, run on the host, give the bits of the host's reductions.
#include <gtest/gtest.h>
#include <span>

#include <string>
#include <vector>

#include "../device/numbers.hpp"
#include "../device/reduction_oracle.hpp"
#include "buffer.hpp"
#include "launched.hpp"

namespace epccl::device::kernels::testing {
namespace {

using device::testing::all_elements;
using device::testing::all_ops;
using device::testing::Kind;
using device::testing::text_of;

/// How far buffers are from 16-byte boundaries.
enum class Place : uint8_t {
  aligned,
  alike,        // all as far, whole elements
  by_elements,  // each by other whole elements
  anyhow,
};
constexpr Place places[] = {Place::aligned, Place::alike, Place::by_elements, Place::anyhow};

class Problem {
 public:
  Problem(Element element, ReduceOp op, size_t sources, uint64_t elements, Place place,
          std::mt19937_64& random)
      : random_(random),
        reduction_{element, op, 0, 1 + static_cast<int>(random() % 300)},
        elements_(elements),
        place_(place),
        alike_(random() % 16),
        final_(random() % 2 == 0) {
    kind_ = std::array{Kind::ordinary, Kind::wide, Kind::any_bits}[random() % 3];
    reduction_.scalar_bits = number();
    for (size_t s = 0; s < sources; ++s) {
      Buffer& buffer = buffers_.emplace_back(make_buffer());
      for (uint64_t i = 0; i < elements_; ++i) set(buffer, i, number());
      sources_.push_back({buffer.data(), random() % 2 == 0});
    }
    expected_.resize(bytes());
    reduce(reduction_, sources_, final_, expected_.data(), elements_);
  }

  std::vector<Buffer>& buffers() { return buffers_; }
  Buffer make_buffer() { return Buffer(bytes(), misaligned()); }

  /// In all of them.
  void expect_in(std::span<Buffer*> results) {
    Buffer& destination = *results.front();
    std::vector<std::byte*> also;
    for (Buffer* place : results.subspan(1)) also.push_back(place->data());
    const Grid grid{1 + static_cast<uint32_t>(random_() % 3)};
    Reduction given = reduction_;
    Buffer scalar(bytes_of(given.element), 0);
    std::memcpy(scalar.data(), &given.scalar_bits, scalar.size());
    // The scalar may be the device's.
    const bool on_device = random_() % 2 == 0;
    if (on_device) given.scalar_bits = ~given.scalar_bits;
    run(reduce_launch(given, sources_, final_, destination.data(), elements_, grid,
                      on_device ? scalar.data() : nullptr, also),
        random_);
    for (const Buffer* place : results) {
      ASSERT_TRUE(std::ranges::equal(place->bytes(), expected_)) << text();
      ASSERT_TRUE(place->intact()) << text();
    }
  }
  void expect_in(Buffer& destination) {
    Buffer* place = &destination;
    expect_in({&place, 1});
  }

 private:
  uint64_t bytes() const { return elements_ * bytes_of(reduction_.element); }
  uint64_t misaligned() {
    const uint64_t size = bytes_of(reduction_.element);
    if (place_ == Place::aligned) return 0;
    if (place_ == Place::alike) return alike_ / size * size;
    return place_ == Place::anyhow ? random_() % 16 : random_() % 16 / size * size;
  }
  uint64_t number() {
    const Element element = reduction_.element;
    if (element == Element::float64) {
      if (kind_ == Kind::any_bits && random_() % 8 == 0) return random_() | 0x7ff0000000000000;
      if (kind_ != Kind::ordinary) return random_();
      return std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(random_())) * 0x1p-62);
    }
    if (device::testing::is_float(element))
      return random_element(device::testing::format_of(element), kind_, random_);
    return kind_ == Kind::ordinary ? random_() % 100 : random_();
  }
  void set(Buffer& buffer, uint64_t i, uint64_t bits) const {
    std::memcpy(buffer.data() + i * bytes_of(reduction_.element), &bits, bytes_of(reduction_.element));
  }
  std::string text() const {
    return std::string(text_of(reduction_.element)) + " " + text_of(reduction_.op) + ", " +
           std::to_string(buffers_.size()) + " sources of " + std::to_string(elements_) +
           " elements, placed " + std::to_string(static_cast<int>(place_)) + ", final " +
           std::to_string(final_) + ", ranks " + std::to_string(reduction_.ranks);
  }

  std::mt19937_64& random_;
  Reduction reduction_;
  uint64_t elements_;
  Place place_;
  uint64_t alike_;
  bool final_;
  Kind kind_ = Kind::ordinary;
  std::vector<Buffer> buffers_;
  std::vector<ReduceSource> sources_;
  std::vector<std::byte> expected_;
};

class ReduceKernel : public ::testing::TestWithParam<std::tuple<Element, ReduceOp>> {};

TEST_P(ReduceKernel, GivesTheHostsBits) {
  std::mt19937_64 random = device::testing::seeded_generator();
  const auto [element, op] = GetParam();
  for (const Place place : places)
    for (const size_t sources : {1, 2, 3, 8, 64})
      for (const uint64_t elements :
           {uint64_t{0}, uint64_t{1}, uint64_t{7}, random() % 700, 2048 + random() % 9}) {
        Problem problem(element, op, sources, elements, place, random);
        Buffer destination = problem.make_buffer();
        ASSERT_NO_FATAL_FAILURE(problem.expect_in(destination));
      }
}

TEST_P(ReduceKernel, MayOverwriteAnyOfItsSources) {
  std::mt19937_64 random = device::testing::seeded_generator();
  const auto [element, op] = GetParam();
  for (const Place place : places)
    for (const size_t sources : {1, 2, 5}) {
      Problem problem(element, op, sources, 1 + random() % 1500, place, random);
      Buffer& overwritten = problem.buffers()[random() % sources];
      ASSERT_NO_FATAL_FAILURE(problem.expect_in(overwritten));
    }
}

// As ranks that share a GPU want it: each place is of its own, or one of the sources.
TEST_P(ReduceKernel, WritesTheResultToManyPlaces) {
  std::mt19937_64 random = device::testing::seeded_generator();
  const auto [element, op] = GetParam();
  for (const Place place : places)
    for (const size_t sources : {2, 3, 8}) {
      Problem problem(element, op, sources, random() % 1500, place, random);
      std::vector<Buffer> others;
      for (size_t i = 0; i < sources; ++i) others.push_back(problem.make_buffer());
      std::vector<Buffer*> results;
      for (size_t i = 0; i < sources; ++i)
        results.push_back(random() % 2 == 0 ? &others[i] : &problem.buffers()[i]);
      ASSERT_NO_FATAL_FAILURE(problem.expect_in(results));
    }
}

INSTANTIATE_TEST_SUITE_P(CudaKernels, ReduceKernel,
                         ::testing::Combine(::testing::ValuesIn(all_elements), ::testing::ValuesIn(all_ops)),
                         [](const auto& param_info) {
                           return std::string(text_of(std::get<0>(param_info.param))) + "_" +
                                  text_of(std::get<1>(param_info.param));
                         });

TEST(ReduceLaunch, UsesNoMoreBlocksThanItMay) {
  std::byte data{};
  const ReduceSource source{&data, true};
  const auto blocks = [&](uint64_t elements, uint32_t most) {
    return reduce_launch({}, {&source, 1}, true, &data, elements, {most, 100}).blocks;
  };
  EXPECT_EQ(blocks(uint64_t{1} << 30, 8), 8U);
  EXPECT_EQ(blocks(uint64_t{1} << 30, 0), 3200U) << "several times what the device runs at once";
  EXPECT_EQ(blocks(1, 8), 1U);
  EXPECT_EQ(blocks(0, 8), 0U) << "nothing to launch";
}

TEST(ReduceLaunch, CountsEveryByteOnce) {
  std::byte data{};
  const std::vector<ReduceSource> sources(3, {&data, true});
  const auto launch = reduce_launch({.element = Element::bfloat16}, sources, true, &data, 1000, {});
  EXPECT_EQ(launch.least_bytes, 3 * 2000U + 2000U);
}

}  // namespace
}  // namespace epccl::device::kernels::testing
