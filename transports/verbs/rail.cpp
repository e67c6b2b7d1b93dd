#include "transports/verbs/rail.hpp"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

namespace epccl::transports::verbs {
namespace {

constexpr size_t page = 4096;
constexpr size_t repost_at_once = 32;
constexpr int most_completions = 16384;

template <typename T>
Owned<T> none(int (*destroy)(T*)) {
  return Owned<T>(nullptr, destroy);
}

void do_not_block(int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

}  // namespace

Status registration_error(int errno_value, const std::string& port, size_t bytes) {
  Status status = system_error(errno_value, fmt::format("registering {} bytes with {}", bytes, port));
  rlimit limit{};
  if ((errno_value != ENOMEM && errno_value != EPERM && errno_value != EAGAIN) ||
      getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return status;
  return error(
      status.code(),
      "{}; this process may lock {} bytes (RLIMIT_MEMLOCK): raise it with \"ulimit -l unlimited\", or in "
      "/etc/security/limits.conf with \"* - memlock unlimited\"",
      status.message(), limit.rlim_cur);
}

Rail::Rail(const Library& library, OpenPort port, const RailOptions& options)
    : library_(library),
      options_(options),
      port_(std::move(port.port)),
      context_(std::move(port.context)),
      domain_(none(library.dealloc_pd)),
      memory_(nullptr, std::free),
      region_(none(library.dereg_mr)),
      channel_(none(library.destroy_comp_channel)),
      queue_(nullptr, library.destroy_cq),
      receives_(none(library.destroy_srq)) {}

Result<std::unique_ptr<Rail>> Rail::open(const Library& library, OpenPort port, const RailOptions& options) {
  std::unique_ptr<Rail> rail(new Rail(library, std::move(port), options));
  EPCCL_TRY(rail->create().with_context(rail->port_.name()));
  return rail;
}

Status Rail::create() {
  domain_.reset(library_.alloc_pd(context_.get()));
  if (domain_ == nullptr) return system_error(errno, "allocating a protection domain");
  const size_t buffers = static_cast<size_t>(options_.receive_buffers + options_.send_slots);
  const size_t bytes = (buffers * options_.buffer_bytes + page - 1) / page * page;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(page, bytes)));
  if (memory_ == nullptr) return system_error(ENOMEM, fmt::format("allocating {} bytes", bytes));
  region_.reset(library_.reg_mr(domain_.get(), memory_.get(), bytes, IBV_ACCESS_LOCAL_WRITE));
  if (region_ == nullptr) return registration_error(errno, port_.name(), bytes);
  channel_.reset(library_.create_comp_channel(context_.get()));
  if (channel_ == nullptr) return system_error(errno, "creating a completion channel");
  do_not_block(channel_->fd);
  do_not_block(context_->async_fd);
  const int completions = std::min(most_completions, port_.max_completions);
  queue_.reset(library_.create_cq(context_.get(), completions, nullptr, channel_.get(), 0));
  if (queue_ == nullptr)
    return system_error(errno, fmt::format("creating a completion queue for {}", completions));
  const int receives = std::min({options_.receive_buffers, port_.max_receives, completions / 2});
  room_ = all_room_ = completions - receives;
  ibv_srq_init_attr about{};
  about.attr.max_wr = static_cast<uint32_t>(receives);
  about.attr.max_sge = 1;
  receives_.reset(library_.create_srq(domain_.get(), &about));
  if (receives_ == nullptr)
    return system_error(errno, fmt::format("creating a shared receive queue for {}", receives));
  for (int i = 0; i < receives; ++i) given_back_.push_back(static_cast<uint32_t>(i));
  for (int i = options_.send_slots; i-- > 0;) free_slots_.push_back(i);
  return repost();
}

void Rail::give_back(uint32_t index) {
  given_back_.push_back(index);
}

Status Rail::repost() {
  while (!given_back_.empty()) {
    std::array<ibv_recv_wr, repost_at_once> requests;
    std::array<ibv_sge, repost_at_once> places;
    const size_t count = std::min(given_back_.size(), repost_at_once);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t index = given_back_[given_back_.size() - 1 - i];
      places[i] = {reinterpret_cast<uint64_t>(buffer(index).data()),
                   static_cast<uint32_t>(options_.buffer_bytes), region_->lkey};
      requests[i] = {index | received_mark, i + 1 < count ? &requests[i + 1] : nullptr, &places[i], 1};
    }
    ibv_recv_wr* refused = nullptr;
    if (const int failed = ibv_post_srq_recv(receives_.get(), requests.data(), &refused); failed != 0)
      return system_error(failed, fmt::format("posting receives to {}", port_.name()));
    given_back_.resize(given_back_.size() - count);
  }
  return {};
}

int Rail::take_slot() {
  if (free_slots_.empty()) return -1;
  const int slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

Status Rail::arm() {
  const int failed = ibv_req_notify_cq(queue_.get(), 0);
  return failed == 0 ? Status() : system_error(failed, "asking for the next completion of " + port_.name());
}

void Rail::quiet() {
  ibv_cq* queue = nullptr;
  void* unused = nullptr;
  while (library_.get_cq_event(channel_.get(), &queue, &unused) == 0) ++unacknowledged_;
  // Acknowledging takes a lock; destroying the queue waits until all are.
  if (unacknowledged_ > 0) library_.ack_cq_events(queue_.get(), std::exchange(unacknowledged_, 0));
}

bool Rail::next_event(Event& event) {
  ibv_async_event raw{};
  if (library_.get_async_event(context_.get(), &raw) != 0) return false;
  const bool of_a_port = raw.event_type == IBV_EVENT_PORT_ACTIVE || raw.event_type == IBV_EVENT_PORT_ERR ||
                         raw.event_type == IBV_EVENT_LID_CHANGE || raw.event_type == IBV_EVENT_PKEY_CHANGE ||
                         raw.event_type == IBV_EVENT_GID_CHANGE || raw.event_type == IBV_EVENT_SM_CHANGE ||
                         raw.event_type == IBV_EVENT_CLIENT_REREGISTER;
  event = {raw.event_type, !of_a_port || raw.element.port_num == port_.number};
  library_.ack_async_event(&raw);
  return true;
}

}  // namespace epccl::transports::verbs
