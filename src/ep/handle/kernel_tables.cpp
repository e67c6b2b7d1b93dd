#include "ep/handle/kernel_tables.hpp"

#include <algorithm>

#include "device/kernels/kernel_queue.hpp"
#include "ep/handle/array_pieces.hpp"
#include "ep/handle/handle.hpp"

namespace epccl::ep {
namespace {

using device::kernels::no_row;
using device::kernels::Target;
using device::kernels::Term;

constexpr uint8_t alone = Term::rank_sum | Term::node_sum;

/// use(token, slot, entry, local) of every entry of this rank's tokens; `slot` may be NodeSlots::dropped.
template <typename Use>
void for_each_own_entry(const Handle& handle, Use use) {
  const topology::Cluster& cluster = handle.group().cluster();
  const int rank = handle.group().rank(), node = cluster.node_of(rank);
  for (size_t local = 0; local < static_cast<size_t>(cluster.local_size(node)); ++local) {
    const int peer = cluster.rank_at(node, static_cast<int>(local));
    const RankRows rows = handle.routing().to_rank(peer);
    for_each_entry(handle.node_slots(), rank, local, handle.group().experts().first(peer), rows,
                   [&](uint32_t row, uint32_t slot, Entry entry) {
                     use(rows.tokens[row], slot, entry, static_cast<uint32_t>(local));
                   });
  }
}

}  // namespace

// The same order for the size of all and for the place of each.
template <typename Use>
void KernelTables::lay_out(const Limits& limits, KernelTables* tables, Use use) {
  const uint64_t entries = limits.tokens * limits.k;
  const auto section = [&](auto KernelTables::*member, uint64_t count) {
    using Member = std::remove_reference_t<decltype(tables->*member)>;
    use(tables != nullptr ? &(tables->*member) : static_cast<Member*>(nullptr), count);
  };
  section(&KernelTables::targets_, entries);
  section(&KernelTables::terms_, entries);
  section(&KernelTables::term_counts_, limits.tokens);
  section(&KernelTables::row_entries_, limits.rows);
  section(&KernelTables::row_topk_, limits.rows * limits.k);
  section(&KernelTables::row_terms_, limits.rows);
  section(&KernelTables::row_counts_, limits.rows);
  section(&KernelTables::homes_, entries);
  section(&KernelTables::home_counts_, entries);
  section(&KernelTables::given_, limits.given);
  section(&KernelTables::given_counts_, limits.given);
}

uint64_t KernelTables::bytes(const Limits& limits) {
  uint64_t bytes = 0;
  lay_out(limits, nullptr,
          [&](auto* section, uint64_t count) { bytes += whole_arrays(count * sizeof(*section->here)); });
  return bytes;
}

KernelTables::KernelTables(const Limits& limits, runtime::DeviceRooms::Borrowed there,
                           runtime::DeviceRooms::Borrowed here)
    : limits_(limits), there_(std::move(there)), here_(std::move(here)) {
  place_sections();
}

KernelTables::KernelTables(const Limits& limits, runtime::DeviceRooms::Borrowed there)
    : limits_(limits), there_(std::move(there)) {
  place_sections();
  has_targets_ = has_terms_ = has_rows_ = has_homes_ = true;
  has_given_ = limits.given > 0;
}

void KernelTables::place_sections() {
  uint64_t at = 0;
  lay_out(limits_, this, [&](auto* section, uint64_t count) {
    using Element = std::remove_reference_t<decltype(*section->here)>;
    section->there = reinterpret_cast<Element*>(there_->data() + at);
    if (here_ != nullptr) section->here = reinterpret_cast<Element*>(here_->data() + at);
    section->room = count;
    at += whole_arrays(count * sizeof(Element));
  });
}

void KernelTables::make_by(device::kernels::LayoutParameters& layout,
                           device::kernels::TermsParameters& terms) const {
  layout.targets = targets_.there;
  layout.homes = homes_.there;
  layout.home_counts = home_counts_.there;
  layout.most_rows = static_cast<uint32_t>(limits_.rows);
  if (layout.rules.by_expert != 0) {
    layout.row_entries = row_entries_.there;
    layout.row_terms = row_terms_.there;
    layout.row_counts = row_counts_.there;
  } else {
    layout.row_topk = row_topk_.there;
  }
  if (limits_.given > 0) {
    layout.given = given_.there;
    layout.given_counts = given_counts_.there;
  }
  terms.targets = targets_.there;
  terms.terms = terms_.there;
  terms.counts = term_counts_.there;
}

Status KernelTables::check(const Handle& handle) const {
  if (uint64_t{handle.tokens()} * handle.k() <= limits_.tokens * limits_.k &&
      handle.tokens() <= limits_.tokens && handle.slots() <= limits_.rows &&
      uint64_t{handle.slots()} * handle.k() <= limits_.rows * limits_.k) {
    const uint64_t most = std::max<uint64_t>(handle.tokens(), handle.slots()) * handle.k();
    if (most < no_row) return {};
    return error(Code::invalid_argument, "{} entries of a top-k table: kernels can number {}", most, no_row);
  }
  return error(
      Code::invalid_usage,
      "the handle has {} tokens, top-{}, {} rows, and had other sizes when the call was made: it was "
      "updated by another thread meanwhile",
      handle.tokens(), handle.k(), handle.slots());
}

template <typename T>
Status KernelTables::upload(device::Queue& queue, const Section<T>& section, uint64_t count) {
  if (count == 0) return {};
  const device::CopyWork work{reinterpret_cast<std::byte*>(section.there),
                              reinterpret_cast<const std::byte*>(section.here), count * sizeof(T)};
  return queue.copy({&work, 1});
}

Status KernelTables::need_targets(const Handle& handle, device::Queue& queue) {
  if (has_targets_) return {};
  EPCCL_TRY(check(handle));
  const uint64_t entries = uint64_t{handle.tokens()} * handle.k();
  std::fill_n(targets_.here, entries, Target{});
  const bool by_expert = handle.node_slots().by_expert();
  for_each_own_entry(handle, [&](uint32_t token, uint32_t slot, Entry entry, uint32_t local) {
    const bool has_row = by_expert ? slot != NodeSlots::dropped : entry.first();
    if (has_row) targets_.here[uint64_t{token} * handle.k() + entry.k()] = {slot, local};
  });
  EPCCL_TRY(upload(queue, targets_, entries));
  has_targets_ = true;
  return {};
}

Status KernelTables::need_terms(const Handle& handle, device::Queue& queue) {
  if (has_terms_) return {};
  EPCCL_TRY(need_targets(handle, queue));
  device::kernels::TermsParameters parameters;
  parameters.targets = targets_.there;
  parameters.rows.most = handle.tokens();
  parameters.width = handle.k();
  parameters.by_expert = handle.node_slots().by_expert() ? 1 : 0;
  parameters.terms = terms_.there;
  parameters.counts = term_counts_.there;
  EPCCL_ASSIGN(const device::kernels::Grid grid, device::kernels::grid_of(queue));
  EPCCL_TRY(device::kernels::queue_kernel(queue, device::kernels::terms_launch(parameters, grid)));
  has_terms_ = true;
  return {};
}

Status KernelTables::need_rows(const Handle& handle, device::Queue& queue) {
  if (has_rows_) return {};
  EPCCL_TRY(check(handle));
  const uint64_t rows = handle.slots(), k = handle.k();
  if (!handle.node_slots().by_expert()) {
    std::fill_n(row_topk_.here, rows * k, -1);
    handle.for_each_slot([&](uint32_t slot, Entry entry) {
      row_topk_.here[slot * k + entry.k()] = static_cast<int32_t>(entry.expert());
    });
    EPCCL_TRY(upload(queue, row_topk_, rows * k));
  } else {
    std::fill_n(row_entries_.here, rows, no_row);
    std::fill_n(row_terms_.here, rows, Term{});
    std::fill_n(row_counts_.here, rows, 0U);
    handle.for_each_slot([&](uint32_t slot, Entry entry) {
      row_entries_.here[slot] = entry.word;
      row_terms_.here[slot] = {slot, 0, static_cast<uint8_t>(entry.k()), alone};
      row_counts_.here[slot] = 1;
    });
    EPCCL_TRY(upload(queue, row_entries_, rows));
    EPCCL_TRY(upload(queue, row_terms_, rows));
    EPCCL_TRY(upload(queue, row_counts_, rows));
  }
  has_rows_ = true;
  return {};
}

Status KernelTables::need_homes(const Handle& handle, device::Queue& queue) {
  if (has_homes_) return {};
  EPCCL_TRY(check(handle));
  const uint64_t k = handle.k(), entries = handle.tokens() * k;
  std::fill_n(homes_.here, entries, Term{});
  std::fill_n(home_counts_.here, entries, 0U);
  const bool by_expert = handle.node_slots().by_expert();
  for_each_own_entry(handle, [&](uint32_t token, uint32_t slot, Entry entry, uint32_t local) {
    if (slot == NodeSlots::dropped) return;
    const uint64_t at = token * k + entry.k();
    const uint64_t row = by_expert ? slot : slot * k + entry.k();
    homes_.here[at] = {static_cast<uint32_t>(row), static_cast<uint16_t>(local), Term::unweighted, alone};
    home_counts_.here[at] = 1;
  });
  EPCCL_TRY(upload(queue, homes_, entries));
  EPCCL_TRY(upload(queue, home_counts_, entries));
  has_homes_ = true;
  return {};
}

Status KernelTables::need_given(const Handle& handle, device::Queue& queue) {
  if (has_given_) return {};
  EPCCL_TRY(check(handle));
  const uint64_t k = handle.k(), entries = handle.slots() * k;
  if (entries > given_.room)
    return error(Code::internal_error, "{} weights to give back, but room for {}", entries, given_.room);
  std::fill_n(given_.here, entries, Term{});
  std::fill_n(given_counts_.here, entries, 0U);
  const bool by_expert = handle.node_slots().by_expert();
  handle.for_each_slot([&](uint32_t slot, Entry entry) {
    const uint64_t at = slot * k + entry.k();
    given_.here[at] = {static_cast<uint32_t>(by_expert ? slot : at), 0, Term::unweighted, alone};
    given_counts_.here[at] = 1;
  });
  EPCCL_TRY(upload(queue, given_, entries));
  EPCCL_TRY(upload(queue, given_counts_, entries));
  has_given_ = true;
  return {};
}

}  // namespace epccl::ep
