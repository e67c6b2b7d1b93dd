#include "ep/calls/row_call.hpp"

#include "device/host/fp8.hpp"

namespace epccl::ep {

const char* to_string(TokenType type) {
  switch (type) {
    case TokenType::float32:
      return "float32";
    case TokenType::bfloat16:
      return "bfloat16";
    case TokenType::float16:
      return "float16";
    case TokenType::float8_e4m3:
      return "float8e4m3";
  }
  return "?";
}

uint64_t bytes_of(TokenType type) {
  if (type == TokenType::float32) return 4;
  return type == TokenType::float8_e4m3 ? 1 : 2;
}

device::RowType row_type(TokenType type) {
  if (type == TokenType::bfloat16) return device::RowType::bfloat16;
  return type == TokenType::float16 ? device::RowType::float16 : device::RowType::float32;
}

std::string dispatch_text(const Handle& handle, const DispatchCall& call) {
  return fmt::format("ep dispatch hidden {} {} to {}{}{}, handle {}", call.hidden, to_string(call.type),
                     to_string(call.received_type), call.weights.given() ? " weights" : "",
                     call.weighted ? " weighted" : "", handle.number());
}

std::string combine_text(const Handle& handle, const CombineCall& call) {
  return fmt::format("ep combine hidden {} {}{}{}, handle {}", call.hidden, to_string(call.type),
                     returns_weights(call) ? " weights" : "", call.weighted ? " weighted" : "",
                     handle.number());
}

CallShape shape_of(const Handle& handle) {
  return {handle.tokens(),
          handle.slots(),
          handle.k(),
          handle.node_slots().by_expert(),
          handle.group().options().max_token_bytes,
          !handle.node_slots().rules().undefined_padding};
}

CallShape shape_of_captured(const Handle& handle, uint32_t tokens) {
  CallShape shape = shape_of(handle);
  shape.tokens = tokens;
  shape.k = handle.rules().max_topk;
  return shape;
}

Status check_alone(const SlotRules& rules, const DispatchCall& call) {
  const bool to_float8 = call.received_type == TokenType::float8_e4m3;
  if (!quantises(call) && call.type != call.received_type)
    return error(Code::invalid_argument, "tokens are {}, the output is {}", to_string(call.type),
                 to_string(call.received_type));
  if (call.type == TokenType::float8_e4m3 && !call.scales.given())
    return {Code::invalid_argument, "float8 tokens need scales"};
  if (call.type != TokenType::float8_e4m3 && call.scales.given())
    return error(Code::invalid_argument, "inputs.scales go with float8 tokens, but these are {}",
                 to_string(call.type));
  if (to_float8 && !call.received_scales.given())
    return {Code::invalid_argument, "a float8 output needs outputs.scales: its numbers mean nothing without"};
  if (!to_float8 && call.received_scales.given())
    return error(Code::invalid_argument, "outputs.scales go with a float8 output, but this one is {}",
                 to_string(call.received_type));
  if (call.weighted && (rules.layout != SlotLayout::expert_major || to_float8))
    return {Code::invalid_argument, "a weighted dispatch needs the expert-major layout, and no float8"};
  if ((call.received_weights.given() || call.weighted) && !call.weights.given())
    return {Code::invalid_argument, "the output wants weights, but the input has none"};
  return {};
}

Status check_alone(const SlotRules& rules, const CombineCall& call) {
  if (call.type == TokenType::float8_e4m3) return {Code::invalid_argument, "float8 rows cannot be combined"};
  if (call.weighted && rules.layout != SlotLayout::expert_major)
    return {Code::invalid_argument,
            "a weighted combine needs the expert-major layout: other rows hold several experts"};
  if (!call.weights.given() && call.combined_weights.given())
    return {Code::invalid_argument, "the output wants weights, but the input has none"};
  return {};
}

Status check_dispatch(const CallShape& shape, const DispatchCall& call) {
  const bool to_float8 = call.received_type == TokenType::float8_e4m3;
  const uint64_t tokens = shape.tokens, slots = shape.slots, scales = device::e4m3_scales(call.hidden);
  const uint64_t limit = shape.max_token_bytes;
  const uint64_t bytes =
      call.hidden * bytes_of(call.received_type) + (to_float8 ? scales * sizeof(float) : 0);
  if (bytes > limit)
    return error(Code::invalid_argument, "a token of {} bytes: the group's max_token_bytes is {}", bytes,
                 limit);
  if (call.token_rows != tokens)
    return error(Code::invalid_argument, "{} tokens, but the handle's topk_idx has {}", call.token_rows,
                 tokens);
  if (call.received_rows < slots)
    return error(Code::invalid_argument, "the output has {} rows, but {} come", call.received_rows, slots);
  EPCCL_TRY(check_shape("inputs.topk_weights", call.weights, tokens, shape.k));
  EPCCL_TRY(check_shape("inputs.scales", call.scales, tokens, scales));
  EPCCL_TRY(check_shape("outputs.topk_weights", call.received_weights, slots, shape.by_expert ? 1 : shape.k));
  EPCCL_TRY(check_shape("outputs.topk_idx", call.received_topk, slots, shape.k));
  return check_shape("outputs.scales", call.received_scales, slots, scales);
}

Status check_combine(const CallShape& shape, const CombineCall& call, bool has_weights) {
  const uint64_t token_bytes = call.hidden * bytes_of(call.type);
  const uint64_t limit = shape.max_token_bytes;
  if (token_bytes > limit)
    return error(Code::invalid_argument, "a token of {} bytes: the group's max_token_bytes is {}",
                 token_bytes, limit);
  if (call.token_rows < shape.slots)
    return error(Code::invalid_argument, "the input has {} rows, but {} were dispatched", call.token_rows,
                 shape.slots);
  if (call.combined_rows < shape.tokens)
    return error(Code::invalid_argument, "the output has {} rows, but the handle has {} tokens",
                 call.combined_rows, shape.tokens);
  if (call.weighted && !has_weights)
    return {Code::invalid_argument, "a weighted combine needs the weights of a dispatch with this handle"};
  EPCCL_TRY(check_shape("inputs.topk_weights", call.weights, shape.slots, shape.by_expert ? 1 : shape.k));
  return check_shape("outputs.topk_weights", call.combined_weights, shape.tokens, shape.k);
}

std::vector<RowRange> rows_written(const Handle& handle) {
  if (!leaves_rows(handle.rules())) return {{0, handle.slots()}};
  std::vector<RowRange> ranges;
  for (size_t source = 0; source < handle.sources().size(); ++source)
    ranges.push_back({handle.node_slots().first_row(static_cast<int>(source), handle.local()),
                      handle.sources()[source].rank_tokens[handle.local()]});
  return ranges;
}

std::vector<RowRange> rows_used(const Handle& handle) {
  if (!handle.node_slots().by_expert()) return rows_written(handle);
  std::vector<RowRange> ranges;
  for_each_own_expert(handle, [&](uint32_t expert) {
    ranges.push_back({handle.node_slots().zone_begin(expert), rows_kept(handle, expert)});
  });
  return ranges;
}

void set_part(runtime::RowArrays& side, size_t part, const void* data, uint64_t bytes) {
  side.data[part] =
      const_cast<void*>(data);  // inputs are only read: the plan's verifier holds builders to that
  side.bytes[part] = bytes;
}

}  // namespace epccl::ep
