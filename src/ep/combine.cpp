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
    EPCCL_TRY(check());
    EPCCL_TRY(describe_rows());
    const std::string text =
        fmt::format("ep combine hidden {} {}{}{}", call_.hidden, to_string(call_.type),
                    returns_weights() ? " weights" : "", call_.weighted ? " weighted" : "");
    EPCCL_TRY(handle_.communicator().run_rows(handle_.combine_plan(rows_.format.bytes), rows_, text,
                                              call_.progress));
    handle_.combine_row_bytes = rows_.format.bytes;
    return {};
  }

 private:
  uint64_t token_bytes() const { return call_.hidden * bytes_of(call_.type); }
  uint64_t weight_bytes() const { return handle_.k() * sizeof(float); }
  bool returns_weights() const { return call_.weights.given() || call_.combined_weights.given(); }

  Status check() const {
    const uint64_t limit = handle_.group().options().max_token_bytes;
    if (token_bytes() > limit)
      return error(Code::invalid_argument, "a token of {} bytes: the group's max_token_bytes is {}",
                   token_bytes(), limit);
    if (call_.type == Element::float8_e4m3) return {Code::invalid_argument, "float8 rows cannot be combined"};
    if (call_.token_rows < handle_.slots())
      return error(Code::invalid_argument, "the input has {} rows, but {} were dispatched", call_.token_rows,
                   handle_.slots());
    if (call_.combined_rows < handle_.tokens())
      return error(Code::invalid_argument, "the output has {} rows, but the handle has {} tokens",
                   call_.combined_rows, handle_.tokens());
    if (call_.weighted && !handle_.node_slots().by_expert())
      return {Code::invalid_argument,
              "a weighted combine needs the expert-major layout: other rows hold several experts"};
    if (call_.weighted && !handle_.has_weights())
      return {Code::invalid_argument, "a weighted combine needs the weights of a dispatch with this handle"};
    if (!call_.weights.given() && call_.combined_weights.given())
      return {Code::invalid_argument, "the output wants weights, but the input has none"};
    EPCCL_TRY(check_shape("inputs.topk_weights", call_.weights, handle_.slots(),
                          handle_.node_slots().by_expert() ? 1 : handle_.k()));
    return check_shape("outputs.topk_weights", call_.combined_weights, handle_.tokens(), handle_.k());
  }

  Status describe_rows() {
    const uint64_t tokens = handle_.tokens(), slots = handle_.slots();
    rows_.format.add(token_bytes(), row_type(call_.type), call_.hidden);
    EPCCL_ASSIGN(void* const bounce, reachable_output(handle_, call_.tokens, slots * token_bytes()));
    if (bounce != nullptr) std::memcpy(bounce, call_.tokens, slots * token_bytes());
    set_part(rows_.input, 0, bounce != nullptr ? bounce : call_.tokens, slots * token_bytes());
    set_part(rows_.output, 0, call_.combined, tokens * token_bytes());
    if (returns_weights()) EPCCL_TRY(describe_weights());
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
