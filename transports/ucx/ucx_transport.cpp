#include "transports/ucx/ucx_transport.hpp"

#include <poll.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "device/device.hpp"
#include "transports/message_check.hpp"
#include "transports/ucx/ucx_tag.hpp"

namespace epccl::transports {

Result<std::unique_ptr<UcxTransport>> UcxTransport::create(int rank, int ranks, AddressLookup lookup,
                                                           Options options) {
  if (ranks < 1 || ranks > ucx::max_ranks) {
    return error(Code::invalid_argument, "{} ranks: the UCX transport takes 1 to {}", ranks, ucx::max_ranks);
  }
  if (rank < 0 || rank >= ranks) return error(Code::invalid_argument, "rank {} of {} ranks", rank, ranks);
  const int peers = options.expected_peers > 0 ? options.expected_peers : ranks;
  EPCCL_ASSIGN(auto context, ucx::Context::acquire(static_cast<size_t>(peers)));
  std::unique_ptr<UcxTransport> transport(
      new UcxTransport(rank, ranks, std::move(lookup), options, std::move(context)));
  EPCCL_TRY(transport->open());
  return transport;
}

namespace {

ucs_status_t ignore_message(void*, const void*, size_t, void*, size_t, const ucp_am_recv_param_t*) {
  return UCS_OK;
}

}  // namespace

UcxTransport::UcxTransport(int rank, int ranks, AddressLookup lookup, Options options,
                           std::shared_ptr<ucx::Context> context)
    : rank_(rank),
      ranks_(ranks),
      lookup_(std::move(lookup)),
      options_(options),
      context_(std::move(context)),
      ucx_(context_->library()) {}

Status UcxTransport::open() {
  ucp_worker_params_t parameters{};
  parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  // The caller's thread and a background thread take turns under the communicator's lock.
  parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = ucx_.worker_create(context_->handle(), &parameters, &worker_);
  if (status != UCS_OK) return ucx_.error_of(Code::system_error, "creating a UCX worker", status);

  for (const auto& [id, callback] :
       {std::pair(ucx::marker_id, &ignore_message), std::pair(ucx::hello_id, &UcxTransport::on_hello)}) {
    ucp_am_handler_param_t handler{};
    handler.field_mask =
        UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = id;
    handler.cb = callback;
    handler.arg = this;
    status = ucx_.worker_set_am_recv_handler(worker_, &handler);
    if (status != UCS_OK)
      return ucx_.error_of(Code::system_error, "setting a UCX active message handler", status);
  }

  status = ucx_.worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK)
    return ucx_.error_of(Code::system_error, "getting the UCX worker's descriptor", status);

  ucp_address_t* address = nullptr;
  size_t length = 0;
  status = ucx_.worker_get_address(worker_, &address, &length);
  if (status != UCS_OK) return ucx_.error_of(Code::system_error, "getting the UCX worker's address", status);
  const auto* bytes = reinterpret_cast<const std::byte*>(address);
  address_.assign(bytes, bytes + length);
  ucx_.worker_release_address(worker_, address);
  log::trace(log::net, rank_, "UCX worker open, address of {} bytes", length);
  return {};
}

UcxTransport::~UcxTransport() {
  if (worker_ == nullptr) return;
  if (cancelled_.ok()) {
    flush();
    cut_everything(error(Code::remote_error, "the transport was closed"));
    let_go_of_buffers();
  }
  for (void* request : closing_) ucx_.request_free(request);
  for (Peer* peer : marked_) ucx_.request_free(peer->marker);
  ucx_.worker_destroy(worker_);
}

// ---- starting messages --------------------------------------------------------------------------------------------------

Status UcxTransport::send(int peer_rank, MessageKey key, const void* data, size_t bytes,
                          Completion& completion) {
  return start_send(peer_rank, key, data, bytes, completion, false);
}

Status UcxTransport::recv(int peer_rank, MessageKey key, void* data, size_t bytes, Completion& completion) {
  return start_recv(peer_rank, key, data, bytes, completion, nullptr);
}

Status UcxTransport::start_send(int peer_rank, MessageKey key, const void* data, size_t bytes,
                                Completion& completion, bool of_gpu) {
  EPCCL_TRY(check_message({rank_, ranks_, true}, peer_rank, key, completion, "send to"));
  Peer& peer = peer_at(peer_rank);
  Operation& operation = begin(peer, completion, bytes, true);
  if (Status status = connect(peer); !status.ok()) {
    finish(operation, UCS_ERR_UNREACHABLE, 0);
    return completion.status;
  }
  ++counters_.messages_sent;
  counters_.bytes_sent += bytes;

  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  if (of_gpu) parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  parameters.memory_type = UCS_MEMORY_TYPE_CUDA;
  parameters.cb.send = &UcxTransport::on_sent;
  parameters.user_data = &operation;
  void* request = ucx_.tag_send_nbx(peer.endpoint, data, bytes, ucx::make_tag(rank_, key), &parameters);
  started(operation, request, bytes);
  peer.sent_bytes += bytes;
  if (!peer.dirty) {
    peer.dirty = true;
    dirty_.push_back(&peer);
  }
  return completion.status;
}

Status UcxTransport::start_recv(int peer_rank, MessageKey key, void* data, size_t bytes,
                                Completion& completion, device::Device* device) {
  EPCCL_TRY(check_message({rank_, ranks_, true}, peer_rank, key, completion, "receive from"));
  Peer& peer = peer_at(peer_rank);
  Operation& operation = begin(peer, completion, bytes, false);
  operation.device = device;

  ucp_request_param_t parameters{};
  // Without NO_IMM_CMPL, UCX 1.13 does not tell the length of a message that was there already.
  parameters.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  if (device != nullptr) parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  parameters.memory_type = UCS_MEMORY_TYPE_CUDA;
  parameters.cb.recv = &UcxTransport::on_received;
  parameters.user_data = &operation;
  constexpr ucp_tag_t every_bit = ~ucp_tag_t{0};
  void* request =
      ucx_.tag_recv_nbx(worker_, data, bytes, ucx::make_tag(peer_rank, key), every_bit, &parameters);
  if (!completion.finished()) started(operation, request, 0);
  // From a failed peer only what had arrived before can still be received.
  if (completion.state == Completion::State::pending && !peer.failure.ok()) fail_pending(peer);
  return completion.state == Completion::State::failed ? completion.status : Status();
}

UcxTransport::Peer& UcxTransport::peer_at(int rank) {
  const auto [entry, is_new] = peers_.try_emplace(rank);
  Peer& peer = entry->second;
  if (is_new) {
    peer.transport = this;
    peer.rank = rank;
    peer.failure = cancelled_;
  }
  return peer;
}

// ---- operations ---------------------------------------------------------------------------------------------------------

UcxTransport::Operation& UcxTransport::begin(Peer& peer, Completion& completion, size_t bytes, bool is_send) {
  if (free_.empty()) free_.emplace_back();
  peer.pending.splice(peer.pending.end(), free_, free_.begin());
  Operation& operation = peer.pending.back();
  operation = {this, &peer, &completion, nullptr, bytes, is_send, std::prev(peer.pending.end())};
  completion.state = Completion::State::pending;
  completion.bytes = 0;
  completion.status = {};
  return operation;
}

/// Takes what a UCX call returned: null for done at once, an error, or a request that will call back.
void UcxTransport::started(Operation& operation, void* request, size_t immediate_bytes) {
  if (request == nullptr) {
    finish(operation, UCS_OK, immediate_bytes);
  } else if (UCS_PTR_IS_ERR(request)) {
    finish(operation, UCS_PTR_STATUS(request), immediate_bytes);
  } else {
    operation.request = request;
  }
}

void UcxTransport::finish(Operation& operation, ucs_status_t status, size_t bytes) {
  Completion& completion = *operation.completion;
  const bool of_device = status == UCS_OK && operation.device != nullptr;
  if (Status seen = of_device ? operation.device->admit_foreign_writes() : Status(); !seen.ok()) {
    completion.status = std::move(seen);
    completion.finish(Completion::State::failed);
  } else if (status == UCS_OK) {
    completion.bytes = bytes;
    completion.finish(Completion::State::done);
    if (!operation.is_send) {
      ++counters_.messages_received;
      counters_.bytes_received += bytes;
      operation.peer->carried_bytes = 0;
    }
  } else {
    completion.status = describe(operation, status, bytes);
    completion.finish(Completion::State::failed);
  }
  recycle(operation, operation.peer->pending);
}

Status UcxTransport::describe(const Operation& operation, ucs_status_t status, size_t bytes) const {
  const int peer = operation.peer->rank;
  if (status == UCS_ERR_MESSAGE_TRUNCATED) {
    return error(Code::invalid_usage, "rank {} sent {} bytes where rank {} receives at most {}", peer, bytes,
                 rank_, operation.bytes);
  }
  const Status& failure = operation.peer->failure;
  const std::string_view why =
      failure.ok() ? ucx_.status_string(status) : std::string_view(failure.message());
  return operation.is_send
             ? error(Code::remote_error, "sending {} bytes to rank {}: {}", operation.bytes, peer, why)
             : error(Code::remote_error, "receiving {} bytes from rank {}: {}", operation.bytes, peer, why);
}

void UcxTransport::recycle(Operation& operation, Operations& from) {
  free_.splice(free_.begin(), from, operation.self);
}

void UcxTransport::on_sent(void* request, ucs_status_t status, void* operation) {
  auto& sent = *static_cast<Operation*>(operation);
  on_called_back(request, status, sent.bytes, sent);
}

void UcxTransport::on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                               void* operation) {
  on_called_back(request, status, info->length, *static_cast<Operation*>(operation));
}

void UcxTransport::on_called_back(void* request, ucs_status_t status, size_t bytes, Operation& operation) {
  UcxTransport& transport = *operation.transport;
  transport.ucx_.request_free(request);
  if (operation.completion == nullptr) {
    transport.recycle(operation, transport.detached_);
  } else {
    transport.finish(operation, status, bytes);
  }
}

// ---- progress and waiting -----------------------------------------------------------------------------------------------

bool UcxTransport::progress() {
  if (abandoned_) return false;
  bool moved = ucx_.worker_progress(worker_) != 0;
  if (!broken_peers_.empty()) {
    handle_broken_peers();
    moved = true;
  }
  return moved;
}

// UCX completes an eager send when it has a copy. On TCP the end of that copy may still wait for room in the socket, and
// goes there only in progress(). A flush would tell, but waits for the peer to drive UCX too, which it may have no reason to
// do any more. So: a marker, an active message that nobody looks at, which UCX takes only when the connection has room
// again. Little data needs none: less than a socket's smallest buffer finds room. What was sent before the peer's last
// message came counts as taken: ranks of a collective answer each other.
bool UcxTransport::drained() {
  std::erase_if(marked_, [this](Peer* peer) { return marker_left(*peer); });
  std::erase_if(dirty_, [this](Peer* peer) {
    if (peer->marker != nullptr) return false;  // what was sent behind it needs one of its own
    peer->dirty = false;
    if (peer->endpoint != nullptr) mark(*peer);
    return true;
  });
  return marked_.empty() && dirty_.empty();
}

void UcxTransport::mark(Peer& peer) {
  constexpr uint64_t much = 48 << 10;
  peer.carried_bytes += std::exchange(peer.sent_bytes, 0);
  if (peer.carried_bytes <= much) return;
  ucp_request_param_t parameters{};
  void* request = ucx_.am_send_nbx(peer.endpoint, ucx::marker_id, nullptr, 0, nullptr, 0, &parameters);
  if (!UCS_PTR_IS_PTR(request)) return;
  peer.marker = request;
  marked_.push_back(&peer);
}

bool UcxTransport::marker_left(Peer& peer) {
  if (ucx_.request_check_status(peer.marker) == UCS_INPROGRESS) return false;
  ucx_.request_free(peer.marker);
  peer.marker = nullptr;
  return true;
}

bool UcxTransport::arm(bool /*rarely*/) {
  if (abandoned_) return true;
  return broken_peers_.empty() && ucx_.worker_arm(worker_) == UCS_OK;
}

namespace {

/// Frees and removes those that are complete; whether that was all.
bool all_complete(const ucx::Library& ucx, std::vector<void*>& requests) {
  std::erase_if(requests, [&](void* request) {
    if (ucx.request_check_status(request) == UCS_INPROGRESS) return false;
    ucx.request_free(request);
    return true;
  });
  return requests.empty();
}

}  // namespace

/// Progresses until `done()`, which it returns, or until the deadline.
template <typename Predicate>
bool UcxTransport::wait_until(double deadline, Predicate done) {
  for (;;) {
    constexpr int steps = 64;  // between two looks at the clock, however much keeps arriving
    for (int i = 0; i < steps && progress(); ++i) {
    }
    if (done()) return true;
    const double left = deadline - now_seconds();
    if (left <= 0) return false;
    if (arm(false)) {
      pollfd event{event_fd_, POLLIN, 0};
      ::poll(&event, 1, std::max(1, static_cast<int>(1e3 * left)));
    }
  }
}

// ---- the end ------------------------------------------------------------------------------------------------------------

/// Fails what is pending with the peer. Its endpoint is closed already, so UCX has nothing left to move; a
/// receive that is half filled cannot be taken back from UCX, which is why completions are detached rather
/// than waited for.
void UcxTransport::fail_pending(Peer& peer) {
  while (!peer.pending.empty()) {
    Operation& operation = peer.pending.front();
    Completion& completion = *operation.completion;
    completion.status = describe(operation, UCS_ERR_CANCELED, 0);
    completion.finish(Completion::State::failed);
    operation.completion = nullptr;
    detached_.splice(detached_.end(), peer.pending, operation.self);
    if (!operation.is_send) ucx_.request_cancel(worker_, operation.request);
  }
}

void UcxTransport::cancel_all() {
  if (!cancelled_.ok()) return;
  cancelled_ = error(Code::remote_error, "rank {} gave up communicating", rank_);
  cut_everything(cancelled_);
  let_go_of_buffers();
}

// The buffers go back to the caller. Until its connections are closed and its requests have called back, UCX may still move data
// from and to them: RDMA by itself, the rest in progress(). A receive that is half filled and whose peer is silent never calls
// back; no connection is left for RDMA then, and without progress() nothing else moves.
void UcxTransport::let_go_of_buffers() {
  constexpr double patience = 0.5;  // far above what a connection takes to close
  abandoned_ = !wait_until(now_seconds() + patience,
                           [this] { return all_complete(ucx_, closing_) && detached_.empty(); });
}

void UcxTransport::cut_everything(const Status& reason) {
  for (auto& [rank, peer] : peers_) {
    if (peer.failure.ok()) peer.failure = reason;
    close_endpoint(peer);
    fail_pending(peer);
  }
  broken_peers_.clear();
}

void UcxTransport::flush() {
  std::vector<void*> flushing;
  for (auto& [rank, peer] : peers_) {
    if (peer.endpoint == nullptr || !peer.failure.ok()) continue;
    ucp_request_param_t parameters{};
    void* request = ucx_.ep_flush_nbx(peer.endpoint, &parameters);
    if (UCS_PTR_IS_PTR(request)) flushing.push_back(request);
  }
  if (!wait_until(now_seconds() + options_.close_timeout, [&] { return all_complete(ucx_, flushing); })) {
    log::warn(log::net, rank_, "closed after {} s although {} peers had not confirmed what was sent to them",
              options_.close_timeout, flushing.size());
  }
  for (void* request : flushing) ucx_.request_free(request);
}

}  // namespace epccl::transports
