#include <algorithm>

#include "ep/calls/row_call.hpp"
#include "ep/calls/stand_ins.hpp"
#include "ep/calls/transfer.hpp"

namespace epccl::ep {
namespace {

class Combine {
 public:
  Combine(Handle& handle, const CombineCall& call) : handle_(handle), call_(call), stand_ins_(handle) {}

  Status run() {
    EPCCL_TRY(handle_.need_lists());
    EPCCL_TRY(check_combine(shape_of(handle_), call_, handle_.has_weights()));
    EPCCL_TRY(describe_rows());
    EPCCL_TRY(handle_.communicator().run_rows(handle_.plans().combine_plan(rows_.format.bytes), rows_,
                                              combine_text(handle_, call_), call_.progress));
    handle_.combine_row_bytes = rows_.format.bytes;
    return {};
  }

 private:
  uint64_t token_bytes() const { return call_.hidden * bytes_of(call_.type); }
  uint64_t weight_bytes() const { return handle_.k() * sizeof(float); }

  Status describe_rows() {
    const uint64_t tokens = handle_.tokens(), slots = handle_.slots();
    rows_.format.add(token_bytes(), row_type(call_.type), call_.hidden);
    EPCCL_ASSIGN(const void* const given,
                 stand_ins_.input(call_.tokens, slots, token_bytes(), rows_used(handle_),
                                  (tokens + slots) * token_bytes()));
    set_part(rows_.input, 0, given, slots * token_bytes());
    set_part(rows_.output, 0, call_.combined, tokens * token_bytes());
    if (returns_weights(call_)) EPCCL_TRY(describe_weights());
    if (call_.weighted) {
      rows_.weights = handle_.weights().as<const float>();
      rows_.weights_per_row = handle_.k();
      rows_.weights_bytes = slots * weight_bytes();
    }
    return {};
  }

  // Every weight goes home from the one rank that has its expert: the others have zeros there.
  Status describe_weights() {
    const uint64_t tokens = handle_.tokens(), slots = handle_.slots();
    EPCCL_ASSIGN(void* const window, stand_ins_.lend(slots * weight_bytes()));
    auto* const rows = static_cast<float*>(window);
    std::fill_n(rows, slots * handle_.k(), 0.0F);
    const bool by_expert = handle_.node_slots().by_expert();
    if (call_.weights.given())
      handle_.for_each_slot([&](uint32_t slot, Entry entry) {
        const size_t at = size_t{slot} * handle_.k() + entry.k();
        rows[at] = call_.weights.data[by_expert ? slot : at];
      });
    rows_.format.add(weight_bytes(), device::RowType::float32, handle_.k());
    set_part(rows_.input, 1, rows, slots * weight_bytes());
    home_.resize(tokens * handle_.k());
    set_part(rows_.output, 1, call_.combined_weights.given() ? call_.combined_weights.data : home_.data(),
             tokens * weight_bytes());
    return {};
  }

  Handle& handle_;
  const CombineCall& call_;
  StandIns stand_ins_;
  runtime::RowBuffers rows_;
  std::vector<float> home_;  // where nobody asked for them
};

}  // namespace

Status combine(Handle& handle, const CombineCall& call) {
  return Combine(handle, call).run();
}

}  // namespace epccl::ep
