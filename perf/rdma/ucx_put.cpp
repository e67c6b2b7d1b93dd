#include <ucp/api/ucp.h>

#include <array>
#include <atomic>
#include <vector>

#include "perf/rdma/put_signal.hpp"

namespace epccl::perf::rdma {
namespace {

Status failed(const char* what, ucs_status_t status) {
  return error(Code::system_error, "{}: {}", what, ucs_status_string(status));
}

class UcxPuts : public PutPair {
 public:
  ~UcxPuts() override {
    for (Side& side : sides_)
      if (side.key != nullptr) ucp_rkey_destroy(side.key);
    for (Side& side : sides_)
      if (side.mapped != nullptr) ucp_mem_unmap(context_, side.mapped);
    for (Side& side : sides_)
      if (side.worker != nullptr) ucp_worker_destroy(side.worker);  // and its endpoint
    if (context_ != nullptr) ucp_cleanup(context_);
  }

  Status open(size_t largest) {
    ucp_params_t parameters{};
    parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
    parameters.features = UCP_FEATURE_RMA;
    if (const ucs_status_t status = ucp_init(&parameters, nullptr, &context_); status != UCS_OK)
      return failed("ucp_init", status);
    for (Side& side : sides_) EPCCL_TRY(open(largest, side));
    for (size_t i = 0; i < sides_.size(); ++i) EPCCL_TRY(connect(sides_[i], sides_[1 - i]));
    return {};
  }

  Status put(int source, size_t bytes) override {
    Side& from = sides_[static_cast<size_t>(source)];
    Side& to = sides_[static_cast<size_t>(1 - source)];
    ++number_;
    from.word = number_;
    EPCCL_TRY(put(from, from.memory.data() + word_bytes, bytes, word_bytes));
    if (const ucs_status_t status = ucp_worker_fence(from.worker); status != UCS_OK)
      return failed("ucp_worker_fence", status);
    EPCCL_TRY(put(from, &from.word, word_bytes, 0));
    // The word is the first of the other's mapped memory.
    std::atomic_ref<uint64_t> seen(*reinterpret_cast<uint64_t*>(to.memory.data()));
    // A put that failed brings no word.
    while (from.pending > 0 || (from.status.ok() && seen.load(std::memory_order_acquire) != number_)) {
      ucp_worker_progress(to.worker);
      ucp_worker_progress(from.worker);
    }
    return from.status;
  }

  std::span<std::byte> memory(int end) override {
    return std::span(sides_[static_cast<size_t>(end)].memory).subspan(word_bytes);
  }

 private:
  static constexpr size_t word_bytes = 8;

  struct Side {
    std::vector<std::byte> memory;  // the word, then the bytes
    ucp_worker_h worker = nullptr;
    ucp_mem_h mapped = nullptr;
    ucp_ep_h endpoint = nullptr;
    ucp_rkey_h key = nullptr;  // of the other's memory
    uint64_t remote = 0;
    uint64_t word = 0;
    int pending = 0;
    Status status;
  };

  Status open(size_t largest, Side& side) {
    ucp_worker_params_t parameters{};
    parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    parameters.thread_mode = UCS_THREAD_MODE_SINGLE;
    ucs_status_t status = ucp_worker_create(context_, &parameters, &side.worker);
    if (status != UCS_OK) return failed("ucp_worker_create", status);
    side.memory.resize(word_bytes + largest);
    ucp_mem_map_params_t mapping{};
    mapping.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    mapping.address = side.memory.data();
    mapping.length = side.memory.size();
    status = ucp_mem_map(context_, &mapping, &side.mapped);
    return status == UCS_OK ? Status() : failed("ucp_mem_map", status);
  }

  Status connect(Side& side, Side& other) {
    ucp_address_t* address = nullptr;
    size_t length = 0;
    ucs_status_t status = ucp_worker_get_address(other.worker, &address, &length);
    if (status != UCS_OK) return failed("ucp_worker_get_address", status);
    ucp_ep_params_t parameters{};
    parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    parameters.address = address;
    status = ucp_ep_create(side.worker, &parameters, &side.endpoint);
    ucp_worker_release_address(other.worker, address);
    if (status != UCS_OK) return failed("ucp_ep_create", status);
    void* packed = nullptr;
    status = ucp_rkey_pack(context_, other.mapped, &packed, &length);
    if (status != UCS_OK) return failed("ucp_rkey_pack", status);
    status = ucp_ep_rkey_unpack(side.endpoint, packed, &side.key);
    ucp_rkey_buffer_release(packed);
    side.remote = reinterpret_cast<uint64_t>(other.memory.data());
    return status == UCS_OK ? Status() : failed("ucp_ep_rkey_unpack", status);
  }

  static void on_done(void* request, ucs_status_t status, void* data) {
    Side& side = *static_cast<Side*>(data);
    if (status != UCS_OK) side.status = failed("ucp_put_nbx", status);
    --side.pending;
    ucp_request_free(request);
  }

  Status put(Side& side, const void* data, size_t bytes, size_t offset) {
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    parameters.cb.send = &UcxPuts::on_done;
    parameters.user_data = &side;
    const ucs_status_ptr_t request =
        ucp_put_nbx(side.endpoint, data, bytes, side.remote + offset, side.key, &parameters);
    if (UCS_PTR_IS_ERR(request)) return failed("ucp_put_nbx", UCS_PTR_STATUS(request));
    if (request != nullptr) ++side.pending;
    return {};
  }

  ucp_context_h context_ = nullptr;
  std::array<Side, 2> sides_;
  uint64_t number_ = 0;
};

}  // namespace

Result<std::unique_ptr<PutPair>> ucx_put_pair(size_t largest) {
  auto pair = std::make_unique<UcxPuts>();
  EPCCL_TRY(pair->open(largest));
  return std::unique_ptr<PutPair>(std::move(pair));
}

}  // namespace epccl::perf::rdma
