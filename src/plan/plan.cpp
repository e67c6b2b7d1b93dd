#include "plan/plan.hpp"

#include <algorithm>

namespace epccl::plan {

const char* to_string(Kind kind) {
  switch (kind) {
    case Kind::copy: return "copy";
    case Kind::send: return "send";
    case Kind::recv: return "recv";
    case Kind::post: return "post";
    case Kind::wait: return "wait";
  }
  return "?";
}

const char* to_string(Buffer buffer) {
  switch (buffer) {
    case Buffer::input: return "input";
    case Buffer::output: return "output";
    case Buffer::scratch: return "scratch";
  }
  return "?";
}

void Builder::touch(const Location& location, uint64_t end) {
  if (location.rank != plan_.rank) return;
  auto grow = [end](uint64_t& size) { size = std::max(size, end); };
  if (location.buffer == Buffer::input) grow(plan_.input_bytes);
  if (location.buffer == Buffer::output) grow(plan_.output_bytes);
  if (location.buffer == Buffer::scratch) grow(plan_.scratch_bytes);
}

uint32_t Builder::append(Step step, Dependencies after) {
  step.first_dependency = static_cast<uint32_t>(plan_.dependencies.size());
  for (const uint32_t dependency : after)
    if (dependency != none) plan_.dependencies.push_back(dependency);
  step.dependency_count = static_cast<uint32_t>(plan_.dependencies.size()) - step.first_dependency;
  plan_.steps.push_back(step);
  return size() - 1;
}

bool Builder::merge(const Step& step, Dependencies after) {
  if (plan_.steps.empty()) return false;
  Step& last = plan_.steps.back();
  if (last.kind != Kind::copy || last.stage != step.stage) return false;
  if (last.source.rank != step.source.rank || last.source.buffer != step.source.buffer) return false;
  if (last.destination.rank != step.destination.rank || last.destination.buffer != step.destination.buffer) return false;
  const auto same_dependencies = plan_.dependencies_of(last);
  if (!std::ranges::equal(after, same_dependencies)) return false;
  const bool continues = last.rows == 1 && step.source.offset == last.source.offset + last.bytes &&
                         step.destination.offset == last.destination.offset + last.bytes;
  if (continues) {
    last.bytes += step.bytes;
    return true;
  }
  if (last.bytes != step.bytes) return false;
  const auto next_row = [&](const Location& start, uint64_t stride) { return start.offset + stride * last.rows; };
  if (last.rows == 1) {
    if (step.source.offset < last.source.offset + last.bytes) return false;
    if (step.destination.offset < last.destination.offset + last.bytes) return false;
    last.source_stride = step.source.offset - last.source.offset;
    last.destination_stride = step.destination.offset - last.destination.offset;
  } else if (step.source.offset != next_row(last.source, last.source_stride) ||
             step.destination.offset != next_row(last.destination, last.destination_stride)) {
    return false;
  }
  ++last.rows;
  return true;
}

uint32_t Builder::copy(int stage, Location source, Location destination, uint64_t bytes, Dependencies after) {
  if (bytes == 0) return none;
  touch(source, source.offset + bytes);
  touch(destination, destination.offset + bytes);
  Step step;
  step.kind = Kind::copy;
  step.stage = static_cast<uint8_t>(stage);
  step.source = source;
  step.destination = destination;
  step.bytes = bytes;
  if (merge(step, after)) return size() - 1;
  return append(step, after);
}

uint32_t Builder::send(int peer, uint32_t tag, Location source, uint64_t bytes, Dependencies after) {
  touch(source, source.offset + bytes);
  Step step;
  step.kind = Kind::send;
  step.stage = 1;
  step.peer = peer;
  step.tag = tag;
  step.source = source;
  step.bytes = bytes;
  return append(step, after);
}

uint32_t Builder::recv(int peer, uint32_t tag, Location destination, uint64_t bytes, Dependencies after) {
  touch(destination, destination.offset + bytes);
  Step step;
  step.kind = Kind::recv;
  step.stage = 1;
  step.peer = peer;
  step.tag = tag;
  step.destination = destination;
  step.bytes = bytes;
  return append(step, after);
}

uint32_t Builder::post(int stage, uint16_t slot, uint32_t value, Dependencies after) {
  Step step;
  step.kind = Kind::post;
  step.stage = static_cast<uint8_t>(stage);
  step.slot = slot;
  step.value = value;
  return append(step, after);
}

uint32_t Builder::wait(int stage, int peer, uint16_t slot, uint32_t value, Dependencies after) {
  Step step;
  step.kind = Kind::wait;
  step.stage = static_cast<uint8_t>(stage);
  step.peer = peer;
  step.slot = slot;
  step.value = value;
  return append(step, after);
}

}  // namespace epccl::plan
