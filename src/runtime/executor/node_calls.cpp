#include "runtime/executor/node_calls.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fnv1a.hpp"
#include "device/device.hpp"

namespace epccl::runtime {

using transports::NodeMemory;

transports::BufferRef describe_on(const transports::PeerMemory& peers, const void* buffer, uint64_t bytes) {
  transports::BufferRef ref;
  ref.address = reinterpret_cast<uint64_t>(buffer);
  ref.bytes = bytes;
  if (bytes == 0) return ref;
  const auto handle = peers.offer(buffer, bytes);
  if (!handle.ok()) return ref;
  ref.has_memory = 1;
  ref.memory = *handle;
  return ref;
}

namespace {

/// With whatever has a handle in a call on a device's memory.
template <typename Do>
void for_each_handle(const transports::CallRecord& record, bool has_rows, const Do& work) {
  const auto look = [&](const transports::BufferRef& buffer) {
    if (buffer.has_memory != 0) work(buffer.memory);
  };
  for (size_t part = 0; part < (has_rows ? transports::call_parts : 1); ++part) {
    look(record.inputs[part]);
    look(record.outputs[part]);
  }
  if (has_rows) look(record.weights);
  look(record.scratch);
}

}  // namespace

uint64_t signature_of(std::string_view text) {
  return fnv1a64(text) | 1;
}

Status NodeCalls::begin(const Call& call, uint64_t input_bytes, uint64_t output_bytes) {
  call_ = &call;
  EPCCL_TRY(check_number(call.sequence));
  EPCCL_TRY(wait_for_scratch());
  if (!std::exchange(touched_records_, true)) node_.touch_records();
  if (call.is_small && !std::exchange(touched_places_, true)) node_.touch_places();
  transports::CallRecord& record = node_.my_call(call.sequence);
  signature_ = call.signature != 0 ? call.signature : signature_of(call.text);
  record.sequence = call.sequence;
  add_to_history();
  record.history = history_;
  record.fetches = 0;
  // Else the text is there from the record's last call.
  if (std::exchange(record.signature, signature_) != signature_) {
    const size_t length = std::min(call.text.size(), record.text.size() - 1);
    std::memcpy(record.text.data(), call.text.data(), length);
    record.text[length] = 0;
  }
  if (!call.is_small) publish_buffers(record, input_bytes, output_bytes);  // else all is staged
  std::ranges::copy(call.tells, node_.scratch(node_.local(), call.scratch()));
  return {};
}

// Ranks that wait for nobody in a call, as the root of a small broadcast, find out in a later one that others meant another call.
void NodeCalls::add_to_history() {
  if (std::exchange(told_, call_->sequence) == call_->sequence)
    return;  // a call may begin again, by other means
  history_ = (history_ ^ signature_) * 0x9e3779b97f4a7c15;
}

// The first that is still on record. A peer that is ahead may be writing others there meanwhile.
Status NodeCalls::earlier_disagreement(int local) const {
  const uint64_t now = call_->sequence, kept = transports::calls_ahead;
  for (uint64_t sequence = now > kept ? now - kept + 1 : 1; sequence < now; ++sequence) {
    const transports::CallRecord &mine = node_.my_call(sequence), &theirs = node_.call(local, sequence);
    if (mine.sequence != sequence || theirs.sequence != sequence || mine.signature == theirs.signature)
      continue;
    return error(Code::invalid_usage, "call {}: rank {} called {}, rank {} called {}", sequence, rank_,
                 mine.text.data(), rank_at(local), theirs.text.data());
  }
  return error(Code::invalid_usage, "rank {} and rank {} have made different calls before call {} ({})",
               rank_, rank_at(local), now, call_->text);
}

// Everybody must be through with the call that used this one's scratch last. Who is that far ahead waits until they have come
// half of the way: one wait is for many small calls then.
Status NodeCalls::wait_for_scratch() {
  const uint64_t free_after = call_->scratch().free_after(), ahead = call_->sequence - free_after;
  if (free_after <= all_done_) return {};
  all_done_ = lowest(transports::done_counter);
  if (free_after <= all_done_) return {};
  return wait_for(transports::done_counter, free_after + (call_->is_small ? ahead / 2 : 0),
                  "rank {} to finish call {}");
}

void NodeCalls::publish_buffers(transports::CallRecord& record, uint64_t input_bytes,
                                uint64_t output_bytes) const {
  if (call_->on != nullptr) return publish_on_device(record);
  if (call_->rows == nullptr) {
    record.inputs[0] = NodeMemory::describe(call_->input, std::max(input_bytes, call_->input_bytes));
    record.outputs[0] = NodeMemory::describe(call_->output, std::max(output_bytes, call_->output_bytes));
    return;
  }
  const RowBuffers& rows = *call_->rows;
  for (size_t part = 0; part < rows.format.count; ++part) {
    record.inputs[part] = NodeMemory::describe(rows.input.data[part], rows.input.bytes[part]);
    record.outputs[part] = NodeMemory::describe(rows.output.data[part], rows.output.bytes[part]);
  }
  record.weights = NodeMemory::describe(rows.weights, rows.weights_bytes);
  record.fetches = rows.fetches ? 1 : 0;
}

void NodeCalls::publish_on_device(transports::CallRecord& record) const {
  transports::PeerMemory& peers = *call_->on->peers;
  describe_buffers(record);
  record.is_behind = call_->behind != nullptr ? 1 : 0;
  record.frees = 0;
  for_each_handle(record, call_->rows != nullptr, [&](const device::MemoryHandle& handle) {
    record.frees = std::max(record.frees, handle.frees);
  });
  record.closed = peers.closed();
  peers.told(call_->sequence, record.frees);
}

void NodeCalls::describe_buffers(transports::CallRecord& record) const {
  const auto describe = [&](const void* buffer, uint64_t bytes) {
    return describe_on(*call_->on->peers, buffer, bytes);
  };
  record.scratch = call_->on->scratch;
  if (call_->rows != nullptr) {
    const RowBuffers& rows = *call_->rows;
    for (size_t part = 0; part < transports::call_parts; ++part) {
      record.inputs[part] = describe(rows.input.data[part], rows.input.bytes[part]);
      record.outputs[part] = describe(rows.output.data[part], rows.output.bytes[part]);
    }
    record.weights = describe(rows.weights, rows.weights_bytes);
    return;
  }
  record.inputs[0] = describe(call_->input, call_->input_bytes);
  record.outputs[0] = describe(call_->output, call_->output_bytes);
  if (record.inputs[0].has_memory != 0 && record.outputs[0].has_memory != 0) return;
  // Peers use nothing but scratch then: its handle tells them what is gone.
  const transports::BufferRef& scratch = call_->on->scratch;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): as it was described
  if (const auto now = describe(reinterpret_cast<const void*>(scratch.address), scratch.bytes);
      now.has_memory != 0)
    record.scratch = now;
}

Status NodeCalls::compare(int local, const transports::CallRecord& theirs) const {
  if (theirs.sequence != call_->sequence || theirs.signature == signature_) return {};
  return error(Code::invalid_usage, "call {}: rank {} calls {}, rank {} calls {}", call_->sequence, rank_,
               call_->text, rank_at(local), theirs.text.data());
}

Status NodeCalls::compare_with_finished() const {
  for (int local = 0; local < node_.local_size(); ++local) {
    if (local == node_.local()) continue;
    const uint64_t done = node_.counter(local, transports::done_counter);
    // Of who let queues through the counters are raised: it may be writing its record.
    if (done < call_->sequence || done >= device::released) continue;
    EPCCL_TRY(compare(local, node_.call(local, call_->sequence)));
  }
  return {};
}

Status NodeCalls::check(int local) {
  if (std::exchange(checked_[static_cast<size_t>(local)], call_->sequence) == call_->sequence) return {};
  const transports::CallRecord& theirs = node_.call(local, call_->sequence);
  EPCCL_TRY(compare(local, theirs));
  if (theirs.sequence == call_->sequence && theirs.history != history_) return earlier_disagreement(local);
  if (call_->hear != nullptr) (*call_->hear)(local, node_.scratch(local, call_->scratch()));
  return {};
}

Status NodeCalls::meet() {
  const uint64_t here = counter_value(call_->sequence, 0);
  node_.post(transports::meeting_counter, here);
  EPCCL_TRY(wait_for(transports::meeting_counter, here, "rank {} to begin this call"));
  for (int local = 0; local < node_.local_size(); ++local)
    if (local != node_.local()) EPCCL_TRY(check(local));
  if (call_->on != nullptr) hear_of_frees(*call_->on->peers);
  return {};
}

// What peers have freed, and what of this rank's those of other processes have closed.
void NodeCalls::hear_of_frees(transports::PeerMemory& peers) const {
  uint64_t closed = UINT64_MAX;
  for (int local = 0; local < node_.local_size(); ++local) {
    if (local == node_.local()) continue;
    const transports::CallRecord& theirs = node_.call(local, call_->sequence);
    if (!node_.is_of_this_process(local)) closed = std::min(closed, theirs.closed);
    if (theirs.frees <= peers.frees_heard(local)) continue;
    std::vector<const device::MemoryHandle*> handles;
    for_each_handle(theirs, call_->rows != nullptr,
                    [&](const device::MemoryHandle& handle) { handles.push_back(&handle); });
    peers.hear(local, handles);
  }
  peers.heard(call_->sequence);
  peers.readers_closed(closed);
}

uint64_t NodeCalls::lowest(int slot) const {
  uint64_t least = UINT64_MAX;
  for (int local = 0; local < node_.local_size(); ++local)
    if (local != node_.local()) least = std::min(least, node_.counter(local, slot));
  return least;
}

Status NodeCalls::wait_for(int slot, uint64_t value, const char* what) {
  const auto is_behind = [&](int local) {
    return local != node_.local() && node_.counter(local, slot) < value;
  };
  for (int local = 0; local < node_.local_size(); ++local) {
    while (is_behind(local)) {
      // One wake-up, by the last of them; those before `local` have come.
      const auto until_all_are_here = [&] {
        transports::SleepFor reason{slot, value, {}};
        for (int other = local; other < node_.local_size(); ++other)
          if (other != node_.local()) reason.add(other);
        return reason;
      };
      EPCCL_TRY(waiter_.idle(
          until_all_are_here, false, [&] { return !is_behind(local); },
          [&] {
            return Waiter::Situation{call_->sequence, std::string(call_->text),
                                     fmt::format(fmt::runtime(what), rank_at(local), value)};
          }));
    }
  }
  waiter_.moved();
  // Of a peer that let queues through: its counters are raised.
  for (int local = 0; local < node_.local_size(); ++local)
    if (local != node_.local() && node_.counter(local, slot) >= device::released) return node_.why_gave_up();
  return {};
}

}  // namespace epccl::runtime
