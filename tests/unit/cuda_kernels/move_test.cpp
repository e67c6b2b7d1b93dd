// Kernels that move rows by list, run on the host, against copies and the host's float8.
#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "device/host/fp8.hpp"
#include "launched.hpp"
#include "row_problem.hpp"

namespace epccl::device::kernels::testing {
namespace {

constexpr int repetitions = 150;

/// A row count as the device may find it: less than there could be.
struct Counted {
  explicit Counted(uint32_t most_rows, std::mt19937_64& random)
      : most(most_rows),
        found(std::make_unique<uint32_t>(random() % (most_rows + 3))),
        on_device(random() % 3 == 0) {}
  RowCount count() const { return {on_device ? found.get() : nullptr, most}; }
  uint32_t rows() const { return on_device ? std::min(*found, most) : most; }
  uint32_t most;
  std::unique_ptr<uint32_t> found;
  bool on_device;
};

class MoveKernels : public ::testing::Test {
 protected:
  std::mt19937_64 random = device::testing::seeded_generator();

  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random() % limit); }

  /// Lists of sources and destinations of `rows` rows.
  void make_lists(uint32_t rows) {
    source_rows = rows + below(5);
    destination_rows = rows + below(5);
    source_first = below(100);
    destination_first = below(100);
    sources = random_list(rows, source_rows, source_first, random);
    destinations = random_list(rows, destination_rows, destination_first, random);
  }
  void use_lists(MoveParameters& parameters) {
    parameters.sources = list_of(sources, source_first);
    parameters.destinations = list_of(destinations, destination_first);
  }
  /// use(from, to) for each row that is moved.
  template <class Use>
  void for_each(uint32_t rows, Use use) {
    for (uint32_t i = 0; i < rows; ++i) {
      const uint32_t from = row_in(sources, source_first, i), to = row_in(destinations, destination_first, i);
      if (from != no_row && to != no_row) use(from, to);
    }
  }

  uint32_t source_rows = 0, destination_rows = 0, source_first = 0, destination_first = 0;
  std::vector<uint32_t> sources, destinations;
};

TEST_F(MoveKernels, CopyAllPartsOfRowsByList) {
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    const Counted counted(below(12), random);
    make_lists(counted.most);
    MoveParameters parameters;
    use_lists(parameters);
    parameters.rows = counted.count();
    parameters.part_count = 1 + below(max_row_parts);
    std::deque<Rows> from, to;
    for (uint32_t part = 0; part < parameters.part_count; ++part) {
      const uint64_t bytes = below(3) == 0 ? below(60) : 1 + below(5000);
      const bool aligned = below(3) != 0;
      Rows& source = from.emplace_back(source_rows, bytes, aligned, random);
      Rows& destination = to.emplace_back(destination_rows, bytes, aligned && below(4) != 0, random);
      parameters.parts[part] = {source.array(), destination.array(), bytes};
      for_each(counted.rows(),
               [&](uint32_t i, uint32_t k) { std::copy_n(source.row(i), bytes, destination.expected(k)); });
    }
    run(move_launch(parameters, random_grid(random)), random);
    for (Rows& destination : to) ASSERT_TRUE(destination.as_expected()) << "repetition " << repetition;
  }
}

TEST_F(MoveKernels, ClearRowsThatHaveNoEntry) {
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    std::vector<uint32_t> entries(1 + below(12));
    for (uint32_t& entry : entries) entry = below(2) == 0 ? no_row : below(1000);
    MoveParameters parameters;
    parameters.sources.list = entries.data();
    parameters.rows.most = static_cast<uint32_t>(entries.size());
    parameters.part_count = 1 + below(2);
    std::deque<Rows> cleared;
    for (uint32_t part = 0; part < parameters.part_count; ++part) {
      const uint64_t bytes = 1 + below(5000);
      Rows& rows = cleared.emplace_back(parameters.rows.most, bytes, below(2) == 0, random);
      parameters.parts[part].destination = rows.array();
      parameters.parts[part].bytes = bytes;
      for (uint32_t row = 0; row < entries.size(); ++row)
        if (entries[row] == no_row) std::memset(rows.expected(row), 0, bytes);
    }
    run(clear_launch(parameters, random_grid(random)), random);
    for (Rows& rows : cleared) ASSERT_TRUE(rows.as_expected()) << "repetition " << repetition;
  }
}

TEST_F(MoveKernels, DequantiseAsTheHost) {
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    const Counted counted(below(8), random);
    make_lists(counted.most);
    const RowType type = random_type(random);
    const uint32_t elements = random_elements(random);
    const bool aligned = below(2) == 0;
    Rows values(source_rows, elements, aligned, random),
        scales(source_rows, 4 * e4m3_scales(elements), aligned, random),
        weights(source_rows, 32, aligned, random),
        made(destination_rows, elements * element_bytes(type), aligned, random),
        moved(destination_rows, 32, aligned, random);
    scales.fill(RowType::float32, random_kind(random), random);
    MoveParameters parameters;
    use_lists(parameters);
    parameters.rows = counted.count();
    parameters.part_count = 3;
    parameters.elements = elements;
    parameters.parts[0] = {values.array(), made.array(), elements};
    parameters.parts[1] = {scales.array(), {}, 4 * e4m3_scales(elements)};
    parameters.parts[2] = {weights.array(), moved.array(), 32};
    for_each(counted.rows(), [&](uint32_t from, uint32_t to) {
      dequantise_e4m3(values.row(from), scales.row(from), elements, type, made.expected(to));
      std::memcpy(moved.expected(to), weights.row(from), 32);
    });
    run(dequantise_launch(type, parameters, random_grid(random)), random);
    ASSERT_TRUE(made.as_expected()) << "repetition " << repetition << ", " << elements << " elements";
    ASSERT_TRUE(moved.as_expected());
  }
}

/// Rows that go to places at some peers, no two to one.
class SpreadKernels : public MoveKernels {
 protected:
  void make_targets(uint32_t rows) {
    peers = 1 + below(5);
    width = 1 + below(9);
    rows_of_peer = rows * width / peers + 1 + below(4);
    std::vector<Target> places;
    for (uint32_t peer = 0; peer < peers; ++peer)
      for (uint32_t row = 0; row < rows_of_peer; ++row) places.push_back({row, peer});
    std::ranges::shuffle(places, random);
    targets.assign(places.begin(), places.begin() + static_cast<ptrdiff_t>(rows * width));
    for (Target& target : targets)
      if (below(4) == 0) target = {};
    source_rows = rows + below(5);
    source_first = below(100);
    sources = random_list(rows, source_rows, source_first, random);
  }
  /// The rows of all peers, with `bytes` each.
  std::deque<Rows> destinations_of(SpreadParameters::Part& part, uint64_t bytes, bool aligned) {
    std::deque<Rows> all;
    for (uint32_t peer = 0; peer < peers; ++peer) {
      std::mt19937_64 same = stride_random;  // and so the same stride
      Rows& rows = all.emplace_back(rows_of_peer, bytes, aligned, same);
      part.destinations[peer] = rows.array().data;
      part.destination_stride = rows.array().stride;
    }
    return all;
  }
  /// use(from, target) for each copy that is made.
  template <class Use>
  void for_each_copy(uint32_t rows, Use use) {
    for (uint32_t i = 0; i < rows; ++i) {
      const uint32_t from = row_in(sources, source_first, i);
      for (uint32_t place = 0; place < width && from != no_row; ++place)
        if (const Target& target = targets[i * width + place]; target.row != no_row) use(from, target);
    }
  }
  SpreadParameters parameters_of(const Counted& counted) {
    SpreadParameters parameters;
    parameters.sources = list_of(sources, source_first);
    parameters.targets = targets.data();
    parameters.rows = counted.count();
    parameters.width = width;
    return parameters;
  }

  std::mt19937_64 stride_random{1};
  uint32_t peers = 0, width = 0, rows_of_peer = 0;
  std::vector<Target> targets;
};

TEST_F(SpreadKernels, CopyEachRowToAllItsPlaces) {
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    stride_random.seed(random());
    const Counted counted(below(10), random);
    make_targets(counted.most);
    SpreadParameters parameters = parameters_of(counted);
    parameters.part_count = 1 + below(max_row_parts);
    std::deque<Rows> from;
    std::deque<std::deque<Rows>> to;
    for (uint32_t part = 0; part < parameters.part_count; ++part) {
      const uint64_t bytes = below(3) == 0 ? below(60) : 1 + below(5000);
      const bool aligned = below(3) != 0;
      Rows& source = from.emplace_back(source_rows, bytes, aligned, random);
      parameters.parts[part].source = source.array();
      parameters.parts[part].bytes = bytes;
      auto& all = to.emplace_back(destinations_of(parameters.parts[part], bytes, aligned && below(4) != 0));
      for_each_copy(counted.rows(), [&](uint32_t i, Target target) {
        std::copy_n(source.row(i), bytes, all[target.peer].expected(target.row));
      });
    }
    run(spread_launch(parameters, random_grid(random)), random);
    for (auto& all : to)
      for (Rows& rows : all) ASSERT_TRUE(rows.as_expected()) << "repetition " << repetition;
  }
}

/// Rows that become float8 on their way.
class QuantiseKernels : public SpreadKernels {
 protected:
  struct Alignment {
    bool tokens = false, scales = false;
  };
  void run_and_compare(RowType type, uint32_t elements, Alignment aligned, uint32_t is_whole) {
    stride_random.seed(random());
    const Counted counted(below(6), random);
    make_targets(counted.most);
    const uint64_t scale_bytes = 4 * e4m3_scales(elements);
    Rows tokens(source_rows, elements * element_bytes(type), aligned.tokens, random),
        weights(source_rows, 32, aligned.tokens, random);
    tokens.fill(type, random_kind(random), random);
    tokens.spoil(type, random);
    SpreadParameters parameters = parameters_of(counted);
    parameters.part_count = 3;
    parameters.elements = elements;
    parameters.parts[0].source = tokens.array();
    parameters.parts[0].bytes = elements * element_bytes(type);
    parameters.parts[1].bytes = scale_bytes;
    parameters.parts[2].source = weights.array();
    parameters.parts[2].bytes = 32;
    auto values = destinations_of(parameters.parts[0], elements, aligned.tokens),
         scales = destinations_of(parameters.parts[1], scale_bytes, aligned.scales),
         moved = destinations_of(parameters.parts[2], 32, aligned.tokens);
    for_each_copy(counted.rows(), [&](uint32_t from, Target to) {
      quantise_e4m3(type, tokens.row(from), elements, values[to.peer].expected(to.row),
                    scales[to.peer].expected(to.row));
      std::memcpy(moved[to.peer].expected(to.row), weights.row(from), 32);
    });
    const auto launch = quantise_launch(type, parameters, random_grid(random));
    if (is_whole != any) {
      ASSERT_EQ(launch.parameters.aligned, is_whole);
    }
    run(launch, random);
    for (uint32_t peer = 0; peer < peers; ++peer) {
      ASSERT_TRUE(values[peer].as_expected()) << elements << " elements";
      ASSERT_TRUE(scales[peer].as_expected()) << elements << " elements";
      ASSERT_TRUE(moved[peer].as_expected());
    }
  }
  static constexpr uint32_t any = 2;
};

TEST_F(QuantiseKernels, GiveTheHostsBits) {
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    SCOPED_TRACE(repetition);
    const Alignment aligned{below(2) == 0, below(2) == 0};
    ASSERT_NO_FATAL_FAILURE(run_and_compare(random_type(random), random_elements(random), aligned, any));
  }
}

TEST_F(QuantiseKernels, GiveTheHostsBitsOfRowsThatAreReadAndWrittenInWholeVectors) {
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    SCOPED_TRACE(repetition);
    const uint32_t elements = 16 * (1 + below(200));
    ASSERT_NO_FATAL_FAILURE(run_and_compare(random_type(random), elements, {true, true}, 1));
  }
}

TEST_F(SpreadKernels, WithoutTargetsRowsKeepTheirNumbers) {
  Rows tokens(7, 512, true, random), made(7, 256, true, random), scales(7, 8, true, random);
  tokens.fill(RowType::bfloat16, device::testing::Kind::ordinary, random);
  SpreadParameters parameters;
  parameters.rows.most = 7;
  parameters.width = 1;
  parameters.part_count = 2;
  parameters.elements = 256;
  parameters.parts[0] = {tokens.array(), 512, made.array().stride, {made.array().data}};
  parameters.parts[1] = {{}, 8, scales.array().stride, {scales.array().data}};
  for (uint32_t row = 0; row < 7; ++row)
    quantise_e4m3(RowType::bfloat16, tokens.row(row), 256, made.expected(row), scales.expected(row));
  const auto launch = quantise_launch(RowType::bfloat16, parameters, {});
  EXPECT_EQ(launch.least_bytes, 7 * (512U + 256 + 8));
  run(launch, random);
  EXPECT_TRUE(made.as_expected());
  EXPECT_TRUE(scales.as_expected());
}

}  // namespace
}  // namespace epccl::device::kernels::testing
