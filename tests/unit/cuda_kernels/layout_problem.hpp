// The memory of a layout made by kernels: what goes in, and everything that comes out.
#pragma once

#include <random>
#include <vector>

#include "device/kernels/launch.hpp"
#include "ep_case.hpp"

namespace epccl::device::kernels::testing {

class DeviceLayout {
 public:
  /// What `rank` makes of all ranks' tables.
  DeviceLayout(const tests::EpCase& what, const ep::ExpertMap& experts, int rank, bool wide);
  DeviceLayout(const DeviceLayout&) = delete;
  DeviceLayout& operator=(const DeviceLayout&) = delete;

  void make(std::mt19937_64& random);

  /// How many tokens the rank has, as kernels find it.
  const uint32_t* own_tokens() const;
  const LayoutShape& shape() const { return parameters.shape; }
  uint32_t total(int source, uint32_t key) const {
    return totals[static_cast<size_t>(source) * shape().keys() + key];
  }

  LayoutParameters parameters;
  std::vector<uint32_t> totals, wrong, before, first_row, entries, zone_begin, zone_rows, rows;
  std::vector<Target> targets;
  std::vector<uint8_t> dropped;
  std::vector<uint32_t> rank_tokens, rank_entries, node_tokens, row_entries;
  std::vector<int32_t> row_topk;
  std::vector<Term> homes, row_terms;
  std::vector<uint32_t> home_counts, row_counts;
  std::vector<Term> terms;
  std::vector<uint32_t> term_counts;

 private:
  void set_tables(const tests::EpCase& what, bool wide);
  void set_places(const tests::EpCase& what, const ep::ExpertMap& experts);
  void set_results();

  std::vector<uint64_t> records_;
  std::vector<uint32_t> record_of_;
  std::vector<ExpertPlace> expert_places_;
  std::vector<RankPlace> rank_places_;
  std::vector<uint32_t> counts_;
};

}  // namespace epccl::device::kernels::testing
