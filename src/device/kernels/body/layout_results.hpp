// From a layout that is there (body/layout.hpp) to what sums need and callers ask for.
#pragma once

#include "device/kernels/body/copies.hpp"
#include "device/kernels/body/layout.hpp"

namespace epccl::device::kernels {

/// The terms of one token's sum inside the node, from its `width` targets. Returns how many there are.
EPCCL_DEVICE uint32_t put_terms(const Target* targets, uint32_t width, bool by_expert, Term* terms) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < width; ++i) {
    const Target own = load_eight(targets + i);
    if (own.row == no_row) continue;
    ++kept;
    uint32_t place = 0;
    bool last_of_rank = true, last = true;
    for (uint32_t k = 0; k < width; ++k) {
      const Target other = load_eight(targets + k);
      if (other.row == no_row || k == i) continue;
      const bool before = other.peer < own.peer || (other.peer == own.peer && k < i);
      place += before ? 1 : 0;
      last = last && before;
      last_of_rank = last_of_rank && (before || other.peer != own.peer);
    }
    Term term;
    term.row = own.row;
    term.source = static_cast<uint16_t>(own.peer);
    if (by_expert) term.weight = static_cast<uint8_t>(i);
    term.ends = static_cast<uint8_t>((last_of_rank ? Term::rank_sum : 0) | (last ? Term::node_sum : 0));
    terms[place] = term;
  }
  return kept;
}

EPCCL_DEVICE void make_terms(const TermsParameters& parameters, uint64_t token) {
  const uint64_t at = token * parameters.width;
  parameters.counts[token] =
      put_terms(parameters.targets + at, parameters.width, parameters.by_expert != 0, parameters.terms + at);
}

template <class Warp>
EPCCL_DEVICE void terms_body(const Warp& warp, const TermsParameters& parameters) {
  for_each_number(warp, rows_of(parameters.rows), [&](uint64_t token) { make_terms(parameters, token); });
}

EPCCL_DEVICE bool is_used(const WeightsParameters& parameters, uint64_t i) {
  if (parameters.topk_wide != 0) return static_cast<const int64_t*>(parameters.row_topk)[i] >= 0;
  return static_cast<const int32_t*>(parameters.row_topk)[i] >= 0;
}

template <class Warp>
EPCCL_DEVICE void weights_body(const Warp& warp, const WeightsParameters& parameters) {
  const uint64_t rows = rows_of(parameters.rows), k = parameters.k;
  if (parameters.row_entries == nullptr) {
    for_each_number(warp, rows * k, [&](uint64_t i) {
      parameters.weights[i] = is_used(parameters, i) ? parameters.brought[i] : 0;
    });
    return;
  }
  for_each_number(warp, rows, [&](uint64_t row) {
    const uint32_t entry = parameters.row_entries[row];
    parameters.weights[row] = entry == no_row ? 0 : parameters.brought[row * k + position_of(entry)];
  });
}

EPCCL_DEVICE void put_counter(const CountersParameters::Numbers& numbers, uint64_t i, uint32_t value) {
  if (numbers.data != nullptr) put_number(numbers.data, numbers.wide, i, value);
}

/// The first one that the host has not read yet stays.
EPCCL_DEVICE void tell_wrong_entry(const CountersParameters& parameters, uint64_t source) {
  const uint32_t at = parameters.wrong[source];
  if (at == no_row) return;
  WrongEntry& entry = parameters.wrong_entries[source];
  if (load_acquire(&entry.found) != 0) return;
  const std::byte* const record = parameters.records + source * parameters.record_bytes;
  const std::byte* const table = record + parameters.table_at;
  const bool wide = *reinterpret_cast<const uint32_t*>(record + parameters.wide_at) != 0;
  entry.at = at;
  entry.id = wide ? reinterpret_cast<const int64_t*>(table)[at] : reinterpret_cast<const int32_t*>(table)[at];
  store_release(&entry.found, 1);
}

template <class Warp>
EPCCL_DEVICE void counters_body(const Warp& warp, const CountersParameters& parameters) {
  const LayoutShape& shape = parameters.shape;
  for_each_number(warp, parameters.expert_count, [&](uint64_t i) {
    const uint64_t expert = parameters.first_expert + i;
    const uint32_t entries = parameters.entries[expert], capacity = parameters.capacity;
    const uint32_t kept = capacity > 0 && entries > capacity ? capacity : entries;
    put_counter(parameters.expert_counters, i, kept);
    put_counter(parameters.expert_offsets, i, parameters.zone_begin[expert]);
    put_counter(parameters.dropped_counters, i, entries - kept);
  });
  for_each_number(warp, shape.sources, [&](uint64_t source) {
    put_counter(parameters.source_counters, source,
                parameters.totals[source * shape.keys() + shape.rank_tokens_key(parameters.rank)]);
    if (source == 0) put_counter(parameters.total, 0, parameters.rows[parameters.rank]);
    if (parameters.wrong_entries != nullptr) tell_wrong_entry(parameters, source);
  });
}

template <class Warp>
EPCCL_DEVICE void topk_body(const Warp& warp, const TopkParameters& parameters) {
  const uint64_t k = parameters.k;
  for_each_number(warp, rows_of(parameters.rows) * k, [&](uint64_t i) {
    int64_t id = -1;
    if (parameters.row_entries == nullptr) {
      id = parameters.row_topk[i];
    } else if (const uint32_t entry = parameters.row_entries[i / k];
               entry != no_row && position_of(entry) == i % k) {
      id = entry >> 7;
    }
    put_number(parameters.topk, parameters.wide, i, id);
  });
}

}  // namespace epccl::device::kernels
