#include "ep/layout/sum_builder.hpp"

#include <utility>

namespace epccl::ep {

SumBuilder::SumBuilder(plan::RowTables& tables, uint32_t rows)
    : tables_(tables), first_sum_(static_cast<uint32_t>(tables.sum_begin.size())), next_(rows, 0) {}

void SumBuilder::begin() {
  auto at = static_cast<uint32_t>(tables_.terms.size());
  tables_.sum_begin.reserve(tables_.sum_begin.size() + next_.size() + 1);
  for (uint32_t& next : next_) {
    tables_.sum_begin.push_back(at);
    next = std::exchange(at, at + next);
  }
  tables_.terms.resize(at);
}

}  // namespace epccl::ep
