#include "transports/verbs/verbs_transport.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "transports/message_check.hpp"

namespace epccl::transports {

using verbs::Conversation;
using verbs::QueuePair;

// ---- opening and closing ------------------------------------------------------------------------------------------------

VerbsTransport::VerbsTransport(int rank, int ranks, AddressLookup lookup, Options options)
    : rank_(rank),
      ranks_(ranks),
      options_(std::move(options)),
      shared_(options_.keep, options_.device_memory),
      wireup_(rank, ranks, std::move(lookup), *this) {}

Result<std::unique_ptr<VerbsTransport>> VerbsTransport::create(int rank, int ranks, const net::Endpoint& at,
                                                               AddressLookup lookup, Options options) {
  if (rank < 0 || rank >= ranks) return error(Code::invalid_argument, "rank {} of {} ranks", rank, ranks);
  std::unique_ptr<VerbsTransport> transport(
      new VerbsTransport(rank, ranks, std::move(lookup), std::move(options)));
  EPCCL_TRY(transport->open(at));
  return transport;
}

Status VerbsTransport::open(const net::Endpoint& at) {
  EPCCL_ASSIGN(const verbs::Library* library, options_.library != nullptr
                                                  ? Result<const verbs::Library*>(options_.library)
                                                  : verbs::Library::get());
  EPCCL_ASSIGN(auto ports, verbs::open_ports(*library, options_.ports));
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return system_error(errno, "creating an epoll descriptor");
  shared_.rank = rank_;
  shared_.eager_limit = options_.eager_limit;
  verbs::RailOptions rail_options;
  constexpr size_t line = 64;
  rail_options.buffer_bytes = (sizeof(verbs::Header) + options_.eager_limit + line - 1) / line * line;
  rail_options.silence = options_.silence;
  // What may have to be sent again is not done before it has arrived.
  if (options_.failover) rail_options.acknowledge_every = 1;
  const auto watch = [&](int fd, uint64_t tag) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = tag;
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? Status()
                                                                   : system_error(errno, "watching a device");
  };
  for (verbs::OpenPort& port : ports) {
    EPCCL_ASSIGN(auto rail, verbs::Rail::open(*library, std::move(port), rail_options));
    EPCCL_TRY(watch(rail->fd(), channel_tag + shared_.rails.size()));
    EPCCL_TRY(watch(rail->event_fd(), device_tag + shared_.rails.size()));
    log::trace(log::net, rank_, "rail {}: {}, GID index {}, MTU code {}", shared_.rails.size(),
               rail->port().name(), rail->port().gid_index, static_cast<int>(rail->port().mtu));
    shared_.rails.push_back(std::move(rail));
  }
  by_number_.resize(shared_.rails.size());
  return wireup_.open(at, epoll_.get());
}

VerbsTransport::~VerbsTransport() {
  if (cancelled_.ok()) close();
}

/// What was sent arrives before the queue pairs go.
void VerbsTransport::close() {
  const auto unsettled = [this] {
    return std::any_of(peers_.begin(), peers_.end(), [](const auto& entry) {
      return entry.second.conversation->is_open() && entry.second.conversation->has_unacknowledged();
    });
  };
  const double deadline = now_seconds() + options_.close_timeout;
  for (auto& [rank, peer] : peers_)
    if (peer.conversation->is_open()) peer.conversation->ask_for_end();
  while (unsettled() && now_seconds() < deadline) progress();
  const Status closed = error(Code::remote_error, "rank {} has closed its connections", rank_);
  for (auto& [rank, peer] : peers_) peer.conversation->fail(closed);
}

std::vector<std::string> VerbsTransport::rails() const {
  std::vector<std::string> names;
  for (const auto& rail : shared_.rails) names.push_back(rail->port().name());
  return names;
}

// ---- messages -----------------------------------------------------------------------------------------------------------

VerbsTransport::Peer& VerbsTransport::peer_at(int rank) {
  const auto [entry, is_new] = peers_.try_emplace(rank);
  Peer& peer = entry->second;
  if (is_new) {
    peer.conversation = std::make_unique<Conversation>(rank, shared_);
    if (!cancelled_.ok()) peer.conversation->fail(cancelled_);
  }
  return peer;
}

Status VerbsTransport::send(int peer_rank, MessageKey key, const void* data, size_t bytes,
                            Completion& completion) {
  return start_send(peer_rank, key, data, bytes, completion, nullptr);
}

Status VerbsTransport::start_send(int peer_rank, MessageKey key, const void* data, size_t bytes,
                                  Completion& completion, const verbs::DeviceRegion* memory) {
  EPCCL_TRY(check_message({rank_, ranks_}, peer_rank, key, completion, "send to"));
  Conversation& conversation = *peer_at(peer_rank).conversation;
  if (!conversation.is_open() && conversation.failure().ok())
    if (Status status = wireup_.dial(peer_rank); !status.ok()) failed(peer_rank, std::move(status));
  conversation.send(key, data, bytes, completion, memory);
  return completion.state == Completion::State::failed ? completion.status : Status();
}

Status VerbsTransport::recv(int peer_rank, MessageKey key, void* data, size_t bytes, Completion& completion) {
  return start_recv(peer_rank, key, data, bytes, completion, nullptr);
}

Status VerbsTransport::start_recv(int peer_rank, MessageKey key, void* data, size_t bytes,
                                  Completion& completion, const verbs::DeviceRegion* memory) {
  EPCCL_TRY(check_message({rank_, ranks_}, peer_rank, key, completion, "receive from"));
  peer_at(peer_rank).conversation->recv(key, data, bytes, completion, memory);
  return completion.state == Completion::State::failed ? completion.status : Status();
}

Result<std::shared_ptr<const DeviceMemory>> VerbsTransport::device_memory(device::Device& device,
                                                                          const void* data, uint64_t bytes) {
  EPCCL_ASSIGN(auto region,
               shared_.device_memory.get(shared_.rails, device, data, bytes, shared_.work.registrations));
  return std::shared_ptr<const DeviceMemory>(std::move(region));
}

Status VerbsTransport::send_from(const DeviceMemory& memory, int peer_rank, MessageKey key, const void* data,
                                 size_t bytes, Completion& completion) {
  const auto& region = static_cast<const verbs::DeviceRegion&>(memory);
  EPCCL_TRY(region.check(data, bytes));
  return start_send(peer_rank, key, data, bytes, completion, &region);
}

Status VerbsTransport::recv_into(const DeviceMemory& memory, int peer_rank, MessageKey key, void* data,
                                 size_t bytes, Completion& completion) {
  const auto& region = static_cast<const verbs::DeviceRegion&>(memory);
  EPCCL_TRY(region.check(data, bytes));
  return start_recv(peer_rank, key, data, bytes, completion, &region);
}

bool VerbsTransport::progress() {
  // Looking at sockets costs a system call: often while connections are being made, else now and then.
  constexpr unsigned polls_between_events = 512, polls_while_connecting = 4;
  bool moved = false;
  for (size_t rail = 0; rail < shared_.rails.size(); ++rail) moved |= poll_rail(rail);
  const unsigned pause = wireup_.busy() || armed_ ? polls_while_connecting : polls_between_events;
  if (armed_ || ++quiet_polls_ >= pause) moved |= poll_events();
  if (!lost_.empty()) settle_lost_rails();
  if (shared_.landings > 0)
    for (auto& [rank, peer] : peers_) moved |= peer.conversation->settle_landings();
  if (shared_.waiting_sends > 0 || moved) moved |= flush();
  return moved;
}

bool VerbsTransport::flush() {
  bool moved = false;
  const double now = shared_.waiting_sends > 0 ? now_seconds() : 0;
  const bool asks = now > next_ask_;
  constexpr double between_asks = 5e-3;
  if (asks) next_ask_ = now + between_asks;
  for (auto& [rank, peer] : peers_) {
    if (peer.conversation->has_waiting()) moved |= peer.conversation->flush();
    if (asks) peer.conversation->ask(now);
    if (!peer.conversation->failure().ok()) wireup_.close(rank);
  }
  return moved;
}

bool VerbsTransport::drained() {
  return std::none_of(peers_.begin(), peers_.end(), [this](const auto& entry) {
    const Conversation& conversation = *entry.second.conversation;
    if (!conversation.failure().ok()) return false;
    // What a lost rail has not delivered this rank sends again: it cannot go before it knows.
    return conversation.has_waiting() || (options_.failover && conversation.has_unacknowledged());
  });
}

bool VerbsTransport::arm(bool) {
  for (const auto& rail : shared_.rails) {
    rail->quiet();
    if (!rail->arm().ok()) return false;
  }
  // What came before that made no noise.
  bool moved = poll_events();
  for (size_t rail = 0; rail < shared_.rails.size(); ++rail) moved |= poll_rail(rail);
  armed_ = true;
  return !moved && lost_.empty() && shared_.landings == 0;  // a GPU's copies make no noise
}

void VerbsTransport::cancel_all() {
  if (!cancelled_.ok()) return;
  cancelled_ = error(Code::remote_error, "rank {} gave up communicating", rank_);
  for (auto& [rank, peer] : peers_) {
    peer.conversation->fail(cancelled_);
    peer.pairs.clear();
    wireup_.close(rank);
  }
}

// ---- connections --------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<QueuePair>> VerbsTransport::make_pair(Peer& peer, int peer_rank, size_t rail) {
  const auto id = static_cast<uint32_t>(by_id_.size());
  EPCCL_ASSIGN(auto pair, QueuePair::create(*shared_.rails[rail], rail, id, peer_rank, shared_.work));
  by_id_.push_back({peer.conversation.get(), rail});
  by_number_[rail][pair->number()] = {peer.conversation.get(), rail};
  return pair;
}

Result<verbs::Ends> VerbsTransport::ends(int peer_rank) {
  Peer& peer = peer_at(peer_rank);
  if (!peer.conversation->failure().ok()) return Status(peer.conversation->failure());
  verbs::Ends ends;
  for (size_t rail = 0; rail < shared_.rails.size(); ++rail) {
    if (peer.pairs.size() <= rail) {
      EPCCL_ASSIGN(auto pair, make_pair(peer, peer_rank, rail));
      peer.pairs.push_back(std::move(pair));
    }
    ends.rails[rail] = peer.pairs[rail]->end();
  }
  ends.count = static_cast<int32_t>(shared_.rails.size());
  return ends;
}

Status VerbsTransport::connect(int peer_rank, const verbs::Ends& other) {
  Peer& peer = peer_at(peer_rank);
  if (other.count < 1 || other.count > verbs::max_rails)
    return error(Code::remote_error, "it says it has {} rails", other.count);
  // Rail i here and rail i there; who has more leaves the others unused for this peer.
  const size_t common = std::min(peer.pairs.size(), static_cast<size_t>(other.count));
  for (size_t rail = 0; rail < common; ++rail) EPCCL_TRY(peer.pairs[rail]->connect(other.rails[rail]));
  peer.pairs.resize(common);
  return {};
}

void VerbsTransport::opened(int peer_rank) {
  Peer& peer = peer_at(peer_rank);
  if (peer.conversation->is_open() || !peer.conversation->failure().ok()) return;
  log::trace(log::net, rank_, "connected to rank {} over {} rails", peer_rank, peer.pairs.size());
  peer.conversation->open(std::move(peer.pairs));
}

void VerbsTransport::failed(int peer_rank, Status why) {
  Peer& peer = peer_at(peer_rank);
  if (!peer.conversation->failure().ok()) return;
  // What it sent before is here, or nowhere.
  if (peer.conversation->is_open() && !polling_) drain_queues();
  if (!peer.conversation->failure().ok()) return;
  if (const size_t pending = peer.conversation->pending(); pending > 0)
    log::warn(log::net, rank_, "rank {}: {}; {} messages with it fail", peer_rank, why.message(), pending);
  peer.conversation->fail(std::move(why));
  peer.pairs.clear();
  wireup_.close(peer_rank);
}

}  // namespace epccl::transports
