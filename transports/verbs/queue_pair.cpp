#include "transports/verbs/queue_pair.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace epccl::transports::verbs {
namespace {

constexpr uint8_t retries = 6;  // soft-RoCE takes seven for endless ones
// A receiver without a free buffer: as often as it takes, every 0.64 ms.
constexpr uint8_t retry_for_ever = 7, pause_without_buffer = 12;
constexpr uint8_t hop_limit = 64;
constexpr uint32_t packet_number_mask = 0xffffff;

/// What a device calls timeout: 4.096 us * 2^timeout without an answer is a try. All tries together take `silence` seconds or more.
uint8_t answer_timeout(double silence) {
  constexpr uint8_t least = 1, most = 31;  // 0 is for ever
  uint8_t timeout = least;
  for (double all = 2 * 4.096e-6 * (retries + 1); all < silence && timeout < most; all *= 2) ++timeout;
  return timeout;
}

uint32_t random_packet_number() {
  uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number)) number = 1;
  return number & packet_number_mask;
}

}  // namespace

QueuePair::QueuePair(Rail& rail, size_t rail_index, uint32_t id, int peer, WorkCounters& counters)
    : rail_(rail),
      rail_index_(rail_index),
      id_(id),
      peer_(peer),
      counters_(counters),
      pair_(nullptr, rail.library().destroy_qp),
      first_packet_(random_packet_number()) {}

QueuePair::~QueuePair() {
  pair_.reset();
  for (const Posted& entry : posted_) retire(entry);
  for (const WorkRequest& request : waiting_)
    if (request.slot >= 0) rail_.free_slot(request.slot);
}

Result<std::unique_ptr<QueuePair>> QueuePair::create(Rail& rail, size_t rail_index, uint32_t id, int peer,
                                                     WorkCounters& counters) {
  std::unique_ptr<QueuePair> pair(new QueuePair(rail, rail_index, id, peer, counters));
  EPCCL_TRY(pair->create());
  return pair;
}

Status QueuePair::create() {
  ibv_qp_init_attr about{};
  about.send_cq = about.recv_cq = rail_.queue();
  about.srq = rail_.receives();
  about.qp_type = IBV_QPT_RC;
  about.cap.max_send_wr = depth + 1;
  about.cap.max_send_sge = 1;
  for (const uint32_t inlined : {256U, 128U, 64U, 0U}) {
    about.cap.max_inline_data = inlined;
    pair_.reset(rail_.library().create_qp(rail_.domain(), &about));
    if (pair_ != nullptr || errno != EINVAL) break;
  }
  if (pair_ == nullptr)
    return system_error(errno, fmt::format("creating a queue pair for {} (the device has {} in all)", path(),
                                           rail_.port().max_queue_pairs));
  max_inline_ = about.cap.max_inline_data;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = rail_.port().number;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const int failed = rail_.library().modify_qp(
      pair_.get(), &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return failed == 0 ? Status() : system_error(failed, "preparing the queue pair for " + path());
}

End QueuePair::end() const {
  const Port& port = rail_.port();
  End end;
  end.queue_pair = pair_->qp_num;
  end.first_packet = first_packet_;
  std::memcpy(end.gid.data(), port.gid.raw, end.gid.size());
  end.lid = port.lid;
  end.mtu = static_cast<uint8_t>(port.mtu);
  end.ethernet = port.ethernet ? 1 : 0;
  const std::string device = port.name();
  std::memcpy(end.device.data(), device.data(), std::min(device.size(), end.device.size() - 1));
  return end;
}

Status QueuePair::connect(const End& other) {
  const Port& port = rail_.port();
  if ((other.ethernet != 0) != port.ethernet)
    return error(Code::invalid_usage, "{}: this port is {}, {} there is {}", path(),
                 port.ethernet ? "Ethernet" : "InfiniBand", other.device.data(),
                 other.ethernet != 0 ? "Ethernet" : "InfiniBand");
  if (other.mtu < IBV_MTU_256 || other.mtu > IBV_MTU_4096)
    return error(Code::remote_error, "{}: {} there says its MTU is code {}", path(), other.device.data(),
                 other.mtu);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = std::min(port.mtu, static_cast<ibv_mtu>(other.mtu));
  attributes.dest_qp_num = other.queue_pair;
  attributes.rq_psn = other.first_packet;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = pause_without_buffer;
  attributes.ah_attr.port_num = port.number;
  attributes.ah_attr.dlid = other.lid;
  // Between InfiniBand subnets, and over Ethernet always, packets carry the global address.
  constexpr size_t prefix = 8;
  attributes.ah_attr.is_global =
      port.ethernet || std::memcmp(other.gid.data(), port.gid.raw, prefix) != 0 ? 1 : 0;
  std::memcpy(attributes.ah_attr.grh.dgid.raw, other.gid.data(), other.gid.size());
  attributes.ah_attr.grh.sgid_index = port.gid_index;
  attributes.ah_attr.grh.hop_limit = hop_limit;
  int failed =
      rail_.library().modify_qp(pair_.get(), &attributes,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (failed != 0)
    return system_error(failed, fmt::format("finding the path to {} (GID index {})", path(), port.gid_index));
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = answer_timeout(rail_.silence());
  attributes.retry_cnt = retries;
  attributes.rnr_retry = retry_for_ever;
  attributes.sq_psn = first_packet_;
  attributes.max_rd_atomic = 1;
  failed = rail_.library().modify_qp(pair_.get(), &attributes,
                                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return failed == 0 ? Status() : system_error(failed, "opening the queue pair to " + path());
}

bool QueuePair::has_room() const {
  return posted_.size() < depth && rail_.room() > 0;
}

Status QueuePair::submit(const WorkRequest& request) {
  if (!waiting_.empty() || !has_room()) {
    waiting_.push_back(request);
    return {};
  }
  EPCCL_ASSIGN(const bool posted, post(request));
  if (!posted) waiting_.push_back(request);
  return {};
}

Result<bool> QueuePair::flush() {
  bool moved = false;
  while (!waiting_.empty() && has_room()) {
    const WorkRequest request = waiting_.front();
    waiting_.pop_front();
    EPCCL_ASSIGN(const bool posted, post(request));
    if (!posted) {
      waiting_.push_front(request);
      break;
    }
    moved = true;
  }
  return moved;
}

/// False: it needs a slot, and none is free.
Result<bool> QueuePair::post(const WorkRequest& request) {
  using Kind = WorkRequest::Kind;
  posted_.push_back({request, false, sent_});
  Posted& entry = posted_.back();
  WorkRequest& kept = entry.request;
  ibv_sge piece{reinterpret_cast<uint64_t>(kept.data), kept.bytes, kept.local_key};
  if (kept.kind == Kind::message) {
    if (kept.slot < 0) piece = {reinterpret_cast<uint64_t>(kept.small.data()), kept.small_bytes, 0};
    if (kept.slot < 0 && max_inline_ < kept.small_bytes) {
      kept.slot = rail_.take_slot();
      if (kept.slot < 0) {
        posted_.pop_back();
        return false;
      }
      std::memcpy(rail_.slot(kept.slot), kept.small.data(), kept.small_bytes);
    }
    if (kept.slot >= 0) {
      if (kept.bytes == 0) kept.bytes = kept.small_bytes;
      piece = {reinterpret_cast<uint64_t>(rail_.slot(kept.slot)), kept.bytes, rail_.key()};
    }
  }
  ibv_send_wr work{};
  work.wr_id = id_;
  work.sg_list = &piece;
  work.num_sge = piece.length > 0 ? 1 : 0;
  const bool inlined = kept.kind == Kind::message && piece.length <= max_inline_;
  entry.signalled = kept.kind == Kind::signal || ++unsignalled_ >= rail_.acknowledge_every() ||
                    rail_.room_is_scarce() || (kept.slot >= 0 && rail_.slots_are_scarce());
  if (entry.signalled) unsignalled_ = 0;
  work.send_flags = 0;
  if (entry.signalled) work.send_flags |= IBV_SEND_SIGNALED;
  if (inlined) work.send_flags |= IBV_SEND_INLINE;
  work.opcode = kept.kind == Kind::message ? IBV_WR_SEND
                : kept.kind == Kind::write ? IBV_WR_RDMA_WRITE
                                           : IBV_WR_RDMA_WRITE_WITH_IMM;
  work.imm_data = htobe32(kept.signal);
  work.wr.rdma.remote_addr = kept.remote;
  work.wr.rdma.rkey = kept.remote_key;
  ibv_send_wr* refused = nullptr;
  if (const int failed = ibv_post_send(pair_.get(), &work, &refused); failed != 0) {
    if (kept.slot >= 0) rail_.free_slot(kept.slot);
    posted_.pop_back();
    return system_error(failed, fmt::format("posting {} bytes to {}", piece.length, path()));
  }
  rail_.take_room();
  if (kept.kind != Kind::write) ++sent_;
  ++(kept.kind == Kind::message ? counters_.sends
     : kept.kind == Kind::write ? counters_.writes
                                : counters_.signals);
  if (entry.signalled) ++counters_.signalled;
  if (inlined) ++counters_.inlined;
  return true;
}

void QueuePair::retire(const Posted& entry) {
  rail_.give_room(1);
  if (entry.request.slot >= 0) rail_.free_slot(entry.request.slot);
}

Status QueuePair::ask_for_end() {
  if (posted_.empty() || posted_.back().signalled) return {};
  WorkRequest nothing;
  nothing.kind = WorkRequest::Kind::write;  // of no bytes: no key is looked at
  unsignalled_ = rail_.acknowledge_every();
  return submit(nothing);
}

void QueuePair::stop() {
  if (std::exchange(stopped_, true)) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  rail_.library().modify_qp(pair_.get(), &attributes, IBV_QP_STATE);
}

}  // namespace epccl::transports::verbs
