#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "device/host/fp8.hpp"
#include "device/host/row_sum.hpp"
#include "ep/calls/row_call.hpp"
#include "ep/calls/stand_ins.hpp"
#include "ep/calls/transfer.hpp"

namespace epccl::ep {
namespace {

class Dispatch {
 public:
  Dispatch(Handle& handle, const DispatchCall& call) : handle_(handle), call_(call), stand_ins_(handle) {}

  Status run() {
    EPCCL_TRY(handle_.need_lists());
    EPCCL_TRY(check_dispatch(shape_of(handle_), call_));
    EPCCL_TRY(check_weights());
    EPCCL_TRY(describe_rows());
    EPCCL_TRY(handle_.communicator().run_rows(
        handle_.plans().dispatch_plan({rows_.format.bytes, rows_.format.count == 1, rows_.fetches}), rows_,
        dispatch_text(handle_, call_), call_.progress));
    if (bounce_ != nullptr) copy_rows(call_.received, bounce_, token_bytes());
    handle_.dispatch_row_bytes = rows_.format.bytes;
    handle_.set_has_weights(call_.weights.given());
    if (call_.received_scales.given())
      copy_rows(call_.received_scales.data, rows_.output.data[1], scale_bytes());
    if (by_expert() && !handle_.node_slots().rules().undefined_padding) clear_padding();
    if (call_.received_topk.given()) write_topk();
    if (call_.received_weights.given()) write_weights();
    if (call_.weighted) multiply();
    return {};
  }

 private:
  uint64_t token_bytes() const { return call_.hidden * bytes_of(call_.received_type); }
  uint64_t scale_bytes() const { return device::e4m3_scales(call_.hidden) * sizeof(float); }
  uint64_t weight_bytes() const { return handle_.k() * sizeof(float); }
  uint64_t call_bytes() const { return (uint64_t{handle_.tokens()} + handle_.slots()) * token_bytes(); }
  bool by_expert() const { return handle_.node_slots().by_expert(); }

  Status check_weights() const {
    if (!call_.weights.given()) return {};
    const std::span all(call_.weights.data, size_t{handle_.tokens()} * handle_.k());
    const auto is_nan = [](float weight) { return std::isnan(weight); };
    auto found = std::ranges::find_if(all, is_nan);
    if (found == all.end()) return {};
    const std::vector<bool> used = used_entries();
    while (found != all.end() && !used[static_cast<size_t>(found - all.begin())])
      found = std::find_if(found + 1, all.end(), is_nan);
    if (found == all.end()) return {};
    const auto at = static_cast<size_t>(found - all.begin());
    return error(Code::invalid_argument, "topk_weights[{}][{}] is NaN", at / handle_.k(), at % handle_.k());
  }

  /// [tokens, k]: whether an entry names an expert. A weight of one that does not may be anything, as a softmax over nothing makes it.
  std::vector<bool> used_entries() const {
    std::vector<bool> used(size_t{handle_.tokens()} * handle_.k());
    for (int rank = 0; rank < handle_.group().cluster().ranks(); ++rank) {
      const RankRows rows = handle_.routing().to_rank(rank);
      size_t row = SIZE_MAX;  // + 1 at the first entry
      for (const uint32_t word : rows.entries) {
        row += word & 1;
        used[size_t{rows.tokens[row]} * handle_.k() + Entry{word}.k()] = true;
      }
    }
    return used;
  }

  Status describe_rows() {
    const uint64_t slots = handle_.slots();
    EPCCL_TRY(receive_tokens(slots * token_bytes()));
    if (call_.received_type != TokenType::float8_e4m3) {
      EPCCL_TRY(give(call_.tokens, token_bytes()));
    } else {
      EPCCL_TRY(quantises(call_) ? give_quantised() : give_with_scales());
      // User's arrays may be out of the peers' reach, and there may be none.
      EPCCL_ASSIGN(void* const scales, stand_ins_.lend(slots * scale_bytes()));
      set_part(rows_.output, 1, scales, slots * scale_bytes());
    }
    if (call_.weights.given()) {
      const size_t part = rows_.format.count;
      EPCCL_TRY(give(call_.weights.data, weight_bytes()));
      EPCCL_TRY(handle_.weights().reserve(std::max<uint64_t>(slots * weight_bytes(), 1)));
      set_part(rows_.output, part, handle_.weights().as<void>(), slots * weight_bytes());
    }
    return {};
  }

  // Rows that come from the own node this rank can fetch, others are brought: to where they cannot be, something stands in.
  Status receive_tokens(uint64_t bytes) {
    const bool is_reached = stand_ins_.reaches(call_.received, bytes);
    if (!is_reached && handle_.group().cluster().nodes() > 1 && !handle_.communicator().direct()) {
      EPCCL_ASSIGN(bounce_, stand_ins_.lend(bytes));
    } else {
      rows_.fetches = !is_reached;
    }
    set_part(rows_.output, 0, bounce_ != nullptr ? bounce_ : call_.received, bytes);
    return {};
  }

  /// One more part of the rows: `data` has it of every token.
  Status give(const void* data, uint64_t bytes) {
    const RowRange all{0, handle_.tokens()};
    EPCCL_ASSIGN(const void* const given, stand_ins_.input(data, all.count, bytes, {&all, 1}, call_bytes()));
    set_part(rows_.input, rows_.format.count, given, all.count * bytes);
    rows_.format.add(bytes);
    return {};
  }

  Status give_with_scales() {
    EPCCL_TRY(give(call_.tokens, token_bytes()));
    return give(call_.scales.data, scale_bytes());
  }

  Status give_quantised() {
    const uint64_t tokens = handle_.tokens();
    EPCCL_ASSIGN(void* const window, stand_ins_.lend(tokens * (token_bytes() + scale_bytes())));
    auto* const values = static_cast<std::byte*>(window);
    auto* const scales = values + tokens * token_bytes();
    const auto* source = static_cast<const std::byte*>(call_.tokens);
    for (uint64_t token = 0; token < tokens; ++token)
      device::quantise_e4m3(row_type(call_.type), source + token * call_.hidden * bytes_of(call_.type),
                            call_.hidden, values + token * token_bytes(), scales + token * scale_bytes());
    rows_.format.add(token_bytes());
    rows_.format.add(scale_bytes());
    set_part(rows_.input, 0, values, tokens * token_bytes());
    set_part(rows_.input, 1, scales, tokens * scale_bytes());
    return {};
  }

  // From what stood in for it. Not padding: that is cleared where it lies, or nobody looks at it.
  void copy_rows(void* to, const void* from, uint64_t row_bytes) const {
    for (const RowRange& range : rows_used(handle_))
      std::memcpy(static_cast<std::byte*>(to) + range.first * row_bytes,
                  static_cast<const std::byte*>(from) + range.first * row_bytes, range.count * row_bytes);
  }

  // Rows that only fill up an expert's zone are zero.
  void clear_padding() const {
    for_each_padding(handle_, [this](uint32_t slot) {
      std::memset(static_cast<std::byte*>(call_.received) + slot * token_bytes(), 0, token_bytes());
      if (call_.received_scales.given())
        std::memset(reinterpret_cast<std::byte*>(call_.received_scales.data) + slot * scale_bytes(), 0,
                    scale_bytes());
    });
  }

  void write_topk() const {
    const auto write = [&](auto* out) {
      std::fill_n(out, size_t{handle_.slots()} * handle_.k(), -1);
      handle_.for_each_slot([&](uint32_t slot, Entry entry) {
        out[size_t{slot} * handle_.k() + entry.k()] =
            static_cast<std::remove_pointer_t<decltype(out)>>(entry.expert());
      });
    };
    if (call_.received_topk_wide)
      write(static_cast<int64_t*>(call_.received_topk.data));
    else
      write(static_cast<int32_t*>(call_.received_topk.data));
  }

  void write_weights() const {
    const auto* brought = handle_.weights().as<const float>();
    const size_t width = by_expert() ? 1 : handle_.k();
    std::fill_n(call_.received_weights.data, handle_.slots() * width, 0.0F);
    handle_.for_each_slot([&](uint32_t slot, Entry entry) {
      call_.received_weights.data[slot * width + (by_expert() ? 0 : entry.k())] =
          brought[size_t{slot} * handle_.k() + entry.k()];
    });
  }

  void multiply() const {
    const auto* brought = handle_.weights().as<const float>();
    handle_.for_each_slot([&](uint32_t slot, Entry entry) {
      auto* row = static_cast<std::byte*>(call_.received) + slot * token_bytes();
      const device::SumTerm term{row, brought[size_t{slot} * handle_.k() + entry.k()], true, true, true};
      device::sum_row(row_type(call_.type), row, {&term, 1}, call_.hidden);
    });
  }

  Handle& handle_;
  const DispatchCall& call_;
  StandIns stand_ins_;
  runtime::RowBuffers rows_;
  void* bounce_ = nullptr;
};

}  // namespace

Status dispatch(Handle& handle, const DispatchCall& call) {
  return Dispatch(handle, call).run();
}

}  // namespace epccl::ep
