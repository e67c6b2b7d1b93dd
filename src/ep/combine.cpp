#include <algorithm>
#include <cstring>

#include "ep/row_call.hpp"
#include "ep/transfer.hpp"

namespace epccl::ep {
namespace {

class Combine {
 public:
  Combine(Handle& handle, const CombineCall& call) : handle_(handle), call_(call) {}

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
    EPCCL_ASSIGN(void* const bounce, reachable_output(handle_, call_.tokens, slots * token_bytes()));
    if (bounce != nullptr) std::memcpy(bounce, call_.tokens, slots * token_bytes());
    set_part(rows_.input, 0, bounce != nullptr ? bounce : call_.tokens, slots * token_bytes());
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
    Window& window = handle_.staging(weights_staging);
    EPCCL_TRY(window.reserve(std::max<uint64_t>(slots * weight_bytes(), 1)));
    auto* rows = window.as<float>();
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

  static constexpr size_t weights_staging = 3;

  Handle& handle_;
  const CombineCall& call_;
  runtime::RowBuffers rows_;
  std::vector<float> home_;  // where nobody asked for them
};

}  // namespace

Status combine(Handle& handle, const CombineCall& call) {
  return Combine(handle, call).run();
}

}  // namespace epccl::ep
