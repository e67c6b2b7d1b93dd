#include "runtime/queues/hand_outs.hpp"

#include <algorithm>

namespace epccl::runtime {
namespace {

/// Fills the table, hand-out by hand-out.
class Filler {
 public:
  Filler(const DeviceProgram& program, const topology::Cluster& cluster)
      : program_(program), cluster_(cluster) {}

  HandOutTable fill() && {
    for (const plan::HandOut& hand_out : program_.hand_outs) add(hand_out);
    return std::move(table_);
  }

 private:
  const plan::Step& step(uint32_t index) const { return program_.plan.steps[index].step; }
  uint32_t listed(uint32_t list, uint32_t i) const { return program_.plan.tables->rows[list + i]; }

  /// use(row of the block, step, place in its lists) for each copy of a row.
  template <typename Use>
  void for_each_copy(const plan::HandOut& hand_out, Use use) const {
    for (uint32_t index = hand_out.first; index < hand_out.first + hand_out.count; ++index) {
      const plan::Step& each = step(index);
      for (uint32_t i = 0; i < each.rows; ++i)
        use(each.source_list == plan::Step::no_list ? i : listed(each.source_list, i) - each.source_first_row,
            each, i);
    }
  }

  // Row numbers of its rank's output: where rows are listed the output begins with the first.
  static uint32_t row_at(const plan::Step& each) {
    return static_cast<uint32_t>(each.destination.offset / each.bytes);
  }
  uint32_t target_row(const plan::Step& each, uint32_t i) const {
    if (each.destination_list == plan::Step::no_list) return row_at(each) + i;
    return row_at(each) + listed(each.destination_list, i) - each.destination_first_row;
  }

  void add(const plan::HandOut& hand_out) {
    places_.clear();
    for_each_copy(hand_out, [&](uint32_t row, const plan::Step&, uint32_t) {
      if (row >= places_.size()) places_.resize(size_t{row} + 1);
      ++places_[row];
    });
    const uint32_t width = places_.empty() ? 0 : *std::ranges::max_element(places_);
    const HandOutRows rows{table_.targets.size(), static_cast<uint32_t>(places_.size()), width};
    table_.hand_outs.push_back(rows);
    table_.targets.resize(rows.first + uint64_t{rows.rows} * width);
    std::ranges::fill(places_, 0);
    for_each_copy(hand_out, [&](uint32_t row, const plan::Step& each, uint32_t i) {
      table_.targets[rows.first + uint64_t{row} * width + places_[row]++] = {
          target_row(each, i), static_cast<uint32_t>(cluster_.local_of(each.destination.rank))};
    });
  }

  const DeviceProgram& program_;
  const topology::Cluster& cluster_;
  HandOutTable table_;
  std::vector<uint32_t> places_;  // by row of the block: taken
};

}  // namespace

HandOutTable make_hand_out_table(const DeviceProgram& program, const topology::Cluster& cluster) {
  return Filler(program, cluster).fill();
}

}  // namespace epccl::runtime
