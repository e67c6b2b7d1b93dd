#include "runtime/engines/gpu_messages.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "runtime/executor/node_words.hpp"

namespace epccl::runtime {

using transports::Completion;
using Step = GpuFlight::Step;

namespace {

// More than there are engines are of no use.
constexpr int most_queues = 4;
constexpr size_t copies_at_first = 64;  // under way at once

// What fits a slot of the rings is sent at once: two ranks that send before they receive do not wait for each other.
constexpr uint64_t sent_at_once = transports::RingSlot::capacity;

constexpr uint64_t bounce_bytes = 512 << 10;

}  // namespace

GpuMessages::GpuMessages(device::Device& device, const topology::Cluster& cluster, int rank,
                         transports::NodeMemory& node, transports::ShmMessages& shm, PinnedStage* stage,
                         uint64_t piece_bytes)
    : device_(device),
      cluster_(cluster),
      rank_(rank),
      node_(node),
      shm_(shm),
      peers_(device, node.local_size()),
      events_(device),
      reading_(static_cast<size_t>(node.local_size())),
      bounce_(device),
      stage_(stage),
      piece_bytes_(piece_bytes) {}

Status GpuMessages::prepare() {
  for (int i = 0; i < queues_each(device_, node_, most_queues); ++i) {
    EPCCL_ASSIGN(auto queue, device_.make_queue(device::QueueKind::copy_engine));
    queues_.push_back(std::move(queue));
  }
  EPCCL_TRY(events_.prepare(copies_at_first));
  peers_.set_readers(node_.other_processes());
  return bounce_.reserve(bounce_bytes);
}

// ---- planning

Status GpuMessages::plan(GpuEnd& end, const Wish& wish, EngineUse use) {
  end.messages = this;
  end.may_use_cores = use == EngineUse::automatic;
  if (wish.bytes == 0 || !device_.info(wish.buffer)) return {};  // pinned memory is the host's own
  if (!cluster_.same_node(rank_, wish.peer)) {
    if (use == EngineUse::never) end.why_staged = "as asked for";
    if (wish.is_send && wish.bytes <= sent_at_once) end.why_staged = "small, so it is sent at once";
    if (stage_ == nullptr) return error(Code::internal_error, "no transport reaches rank {}", wish.peer);
    end.stage = stage_;
    return {};
  }
  Status possible;
  if (use == EngineUse::never)
    possible = Status(Code::invalid_usage, "as asked for");
  else if (wish.is_send && wish.peer != rank_ && wish.bytes <= sent_at_once)
    possible = Status(Code::invalid_usage, "small, so it is sent at once");
  else if (wish.is_send && wish.peer != rank_)
    possible = find_offer(wish, end.buffer);
  end.direct = possible.ok();
  log::info_once(log::coll, rank_, "{} on GPU {}: {}{}", wish.text, device_.ordinal(),
                 end.direct ? "copy engines" : "through pinned host memory: ", possible.message());
  if (end.direct) return {};
  EPCCL_ASSIGN(end.pinned, end.rooms->borrow(wish.bytes));
  return {};
}

Status GpuMessages::find_offer(const Wish& wish, transports::BufferRef& buffer) const {
  buffer.address = reinterpret_cast<uint64_t>(wish.buffer);
  buffer.bytes = wish.bytes;
  auto handle = peers_.offer(wish.buffer, wish.bytes);
  if (handle.ok()) {
    buffer.has_memory = 1;
    buffer.memory = *handle;
    return {};
  }
  // A thread of this process finds it at its address.
  buffer.memory.ordinal = device_.ordinal();
  if (node_.is_of_this_process(local_of(wish.peer))) return {};
  return std::move(handle).take_status();
}

// To be asked anew in each call: memory may have been freed and allocated since.
std::shared_ptr<const transports::DeviceMemory> GpuMessages::lies_in(const GpuEnd& end, const Wish& wish,
                                                                     transports::MessageTransport& network) {
  const auto through_stage = [&](const std::string& why) {
    log::info_once(log::coll, rank_,
                   "{} on GPU {}, over {}: through pinned host memory, {} bytes at once at most: {}",
                   wish.text, device_.ordinal(), network.name(), piece_bytes_, why);
    return nullptr;
  };
  if (end.why_staged != nullptr) return through_stage(end.why_staged);
  auto memory = network.device_memory(device_, wish.buffer, wish.bytes);
  if (!memory.ok()) return through_stage(memory.status().message());
  log::info_once(log::coll, rank_, "{} on GPU {}, over {}: as it lies in GPU memory", wish.text,
                 device_.ordinal(), network.name());
  return std::move(memory).value();
}

// ---- moving

bool GpuMessages::is_on_this_gpu(const transports::BufferRef& buffer) const {
  if (buffer.has_memory == 0) return buffer.memory.ordinal == device_.ordinal();  // of this process
  return buffer.memory.place != 0 && buffer.memory.place == device_.place();
}

Status GpuMessages::copy(GpuFlight& flight, std::byte* to, const std::byte* from, bool may_use_cores) {
  device::Queue& queue = *queues_[next_queue_++ % queues_.size()];
  device::CopyWork work{to, from, flight.bytes};
  work.may_use_cores = may_use_cores;
  EPCCL_TRY(queue.copy({&work, 1}));
  return mark_copied(flight, queue);
}

// Of memory that it does not know the driver would wait for the copy, whoever it keeps meanwhile; it may also know the memory at another
// address only. So this waits, piece by piece: it is the way of messages of which one end is the host's and the other did not know, and of
// those of a rank to itself.
Status GpuMessages::copy_to_host(GpuFlight& flight, std::byte* to, const std::byte* from) {
  device::Queue& queue = *queues_.front();
  for (uint64_t at = 0; at < flight.bytes; at += bounce_.bytes()) {
    const device::CopyWork work{bounce_.data(), from + at, std::min(bounce_.bytes(), flight.bytes - at)};
    EPCCL_TRY(queue.copy({&work, 1}));
    EPCCL_TRY(queue.synchronize());
    std::memcpy(to + at, bounce_.data(), work.bytes);
  }
  return mark_copied(flight, queue);
}

Status GpuMessages::copy_from_host(GpuFlight& flight, std::byte* to, const std::byte* from) {
  device::Queue& queue = *queues_.front();
  for (uint64_t at = 0; at < flight.bytes; at += bounce_.bytes()) {
    const device::CopyWork work{to + at, bounce_.data(), std::min(bounce_.bytes(), flight.bytes - at)};
    std::memcpy(bounce_.data(), from + at, work.bytes);
    EPCCL_TRY(queue.copy({&work, 1}));
    EPCCL_TRY(queue.synchronize());
  }
  return mark_copied(flight, queue);
}

Status GpuMessages::mark_copied(GpuFlight& flight, device::Queue& queue) {
  EPCCL_ASSIGN(flight.copied, events_.take());
  EPCCL_TRY(queue.record(*flight.copied));
  ++copies_;
  return {};
}

Status GpuMessages::start(GpuFlight& flight, Completion& completion) {
  const GpuEnd& end = *flight.end;
  flight.step = Step::moving;
  if (end.direct && flight.is_send) return shm_.offer(flight.local, flight.key, end.buffer, completion);
  if (end.direct) return shm_.recv_any(flight.local, flight.key, flight.bytes, flight.arrival, completion);
  std::byte* const data = end.pinned != nullptr ? end.pinned->data() : flight.data;
  if (!flight.is_send) return shm_.recv(flight.local, flight.key, data, flight.bytes, completion);
  if (end.pinned == nullptr) return shm_.send(flight.local, flight.key, data, flight.bytes, completion);
  flight.step = Step::copying_in;
  return copy(flight, data, flight.data);
}

Status GpuMessages::start_own(GpuFlight& receive, const std::byte* source) {
  receive.step = Step::copying_out;
  if (receive.end == nullptr) return copy_to_host(receive, receive.data, source);
  if (receive.other_end == nullptr) return copy_from_host(receive, receive.data, source);
  return copy(receive, receive.data, source, receive.end->may_use_cores);
}

Result<bool> GpuMessages::step(GpuFlight& flight, Completion& completion) {
  if (flight.step == Step::moving) {
    if (!completion.finished()) return false;
    if (flight.is_send) return sent(flight, completion);
    if (completion.bytes != flight.bytes || (!flight.end->direct && flight.end->pinned == nullptr))
      return true;
    EPCCL_TRY(arrived(flight, completion));
    return false;
  }
  EPCCL_ASSIGN(const bool is_copied, flight.copied->complete());
  if (!is_copied) return false;
  --copies_;
  events_.give_back(std::move(flight.copied));
  if (flight.step == Step::copying_in) {
    flight.step = Step::moving;
    const std::byte* const data = flight.host != nullptr ? flight.host.get() : flight.end->pinned->data();
    EPCCL_TRY(shm_.send(flight.local, flight.key, data, flight.bytes, completion));
    return false;
  }
  if (!flight.arrival.is_offer) return true;
  --reading_[static_cast<size_t>(flight.local)];
  node_.end_reading(flight.local);
  shm_.answer(flight.local, flight.arrival, true);
  return true;
}

Result<bool> GpuMessages::sent(GpuFlight& flight, Completion& completion) {
  if (completion.state != Completion::State::declined) return true;
  if (!told_declined_.exchange(true))
    log::info(log::coll, rank_,
              "a message of {} bytes goes through host memory: local rank {} does not receive it into memory "
              "of a GPU, or cannot map this one",
              flight.bytes, flight.local);
  flight.host = std::make_unique_for_overwrite<std::byte[]>(flight.bytes);
  flight.step = Step::copying_in;
  EPCCL_TRY(copy_to_host(flight, flight.host.get(), flight.data));
  return false;
}

Status GpuMessages::arrived(GpuFlight& flight, Completion& completion) {
  if (flight.arrival.is_offer) return take(flight, completion);
  flight.step = Step::copying_out;
  if (flight.end->pinned != nullptr) return copy(flight, flight.data, flight.end->pinned->data());
  return copy_from_host(flight, flight.data, flight.arrival.data.get());
}

Result<std::byte*> GpuMessages::address_of(int local, const transports::BufferRef& buffer) {
  if (buffer.has_memory != 0) return peers_.address_of(local, buffer.memory, buffer.bytes, call_);
  if (buffer.memory.ordinal != device_.ordinal())
    return error(Code::invalid_usage, "it is of GPU {}, and cannot be mapped", buffer.memory.ordinal);
  return reinterpret_cast<std::byte*>(buffer.address);  // NOLINT: of this process
}

// What cannot be mapped is declined, and comes as a message.
Status GpuMessages::take(GpuFlight& flight, Completion& completion) {
  if (!node_.begin_reading(flight.local))
    return error(Code::remote_error, "rank {}: local rank {} has given up", rank_, flight.local);
  const auto source = address_of(flight.local, flight.arrival.buffer);
  if (source.ok()) {
    ++reading_[static_cast<size_t>(flight.local)];
    flight.step = Step::copying_out;
    return copy(flight, flight.data, *source,
                flight.end->may_use_cores && is_on_this_gpu(flight.arrival.buffer));
  }
  node_.end_reading(flight.local);
  if (!told_unmapped_.exchange(true))
    log::info(log::coll, rank_, "a message of {} bytes goes through host memory: {}", flight.bytes,
              source.status().message());
  const transports::Arrival offer = {true, flight.arrival.buffer, flight.arrival.operation, nullptr};
  EPCCL_TRY(shm_.recv_any(flight.local, flight.key, flight.bytes, flight.arrival, completion));
  shm_.answer(flight.local, offer, false);
  return {};
}

// ---- ending

void GpuMessages::give_up(double seconds) {
  for (const auto& queue : queues_) static_cast<void>(queue->synchronize());
  for (size_t local = 0; local < reading_.size(); ++local)
    for (; reading_[local] > 0; --reading_[local]) node_.end_reading(static_cast<int>(local));
  copies_ = 0;
  if (const int reader = node_.end_offers_and_wait(seconds); reader >= 0)
    log::warn(log::coll, rank_, "local rank {} (pid {}) still reads memory that was sent from, after {} s",
              reader, node_.pid(reader), seconds);
}

}  // namespace epccl::runtime
