// The transport's part in connections: how they come about, and what becomes of those that break.
#include <sched.h>

#include <cstring>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "transports/ucx/ucx_tag.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace epccl::transports {

Status UcxTransport::connect(Peer& peer) {
  if (!peer.failure.ok()) return peer.failure;
  if (peer.endpoint != nullptr) return {};
  Result<std::vector<std::byte>> address = lookup_(peer.rank);
  if (!address.ok()) {
    return peer.failure = std::move(address).take_status().with_context("looking up its address");
  }
  if (peer.rank < rank_) wait_for_hello(peer);
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER;
  parameters.address = reinterpret_cast<const ucp_address_t*>(address->data());
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.cb = &UcxTransport::on_endpoint_error;
  parameters.err_handler.arg = &peer;
  const ucs_status_t status = ucx_.ep_create(worker_, &parameters, &peer.endpoint);
  if (status != UCS_OK) {
    peer.endpoint = nullptr;
    peer.failure = ucx_.error_of(Code::remote_error, "connecting", status);
    log::warn(log::net, rank_, "connecting to rank {}: {}", peer.rank, ucx_.status_string(status));
    return peer.failure;
  }
  ++counters_.connections;
  say_hello(peer);
  log::trace(log::net, rank_, "UCX endpoint to rank {} created", peer.rank);
  return {};
}

// UCX 1.13 can lose both of two TCP connections that cross: two ranks that connect to each other at the same moment then
// wait for ever. So the higher rank waits a moment for the lower one to come first. Lower ranks wait for nobody above
// them, so nobody waits in a circle; a peer that has nothing to send costs one such moment, once.
void UcxTransport::wait_for_hello(const Peer& peer) {
  constexpr double patience = 0.5;
  const double until = now_seconds() + patience;
  while (!peer.heard && now_seconds() < until)
    if (ucx_.worker_progress(worker_) == 0) sched_yield();
}

void UcxTransport::say_hello(Peer& peer) {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  parameters.flags = UCP_AM_SEND_FLAG_EAGER;
  void* request =
      ucx_.am_send_nbx(peer.endpoint, ucx::hello_id, &rank_, sizeof rank_, nullptr, 0, &parameters);
  if (UCS_PTR_IS_PTR(request)) ucx_.request_free(request);  // it goes out all the same
}

ucs_status_t UcxTransport::on_hello(void* transport, const void* header, size_t header_bytes, void*, size_t,
                                    const ucp_am_recv_param_t*) {
  auto& self = *static_cast<UcxTransport*>(transport);
  int rank = -1;
  if (header_bytes == sizeof rank) std::memcpy(&rank, header, sizeof rank);
  if (rank >= 0 && rank < self.ranks_) self.peer_at(rank).heard = true;
  return UCS_OK;
}

void UcxTransport::on_endpoint_error(void* peer, ucp_ep_h, ucs_status_t status) {
  // Endpoints must not be closed from inside UCX's progress: noted here, handled right after it.
  auto& broken = *static_cast<Peer*>(peer);
  broken.broken = status;
  broken.transport->broken_peers_.push_back(&broken);
}

void UcxTransport::handle_broken_peers() {
  std::vector<Peer*> broken;
  broken.swap(broken_peers_);
  for (Peer* peer : broken) {
    if (peer->endpoint == nullptr) continue;
    if (peer->failure.ok())
      peer->failure = ucx_.error_of(Code::remote_error, "connection lost", peer->broken);
    // A peer that left in good order looks the same from here; then nothing is pending.
    if (peer->pending.empty()) {
      log::info(log::net, rank_, "rank {}: {}, nothing pending", peer->rank, peer->failure.message());
    } else {
      log::warn(log::net, rank_, "rank {}: {}, {} messages pending", peer->rank, peer->failure.message(),
                peer->pending.size());
    }
    close_endpoint(*peer);
    fail_pending(*peer);
  }
}

void UcxTransport::close_endpoint(Peer& peer) {
  if (peer.endpoint == nullptr) return;
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = ucx_.ep_close_nbx(peer.endpoint, &parameters);
  peer.endpoint = nullptr;
  if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
}

}  // namespace epccl::transports
