#include "transports/ucx/ucx_context.hpp"

#include <unistd.h>

#include <mutex>

#include "base/log.hpp"
#include "base/per_process.hpp"
#include "transports/ucx/ucx_config.hpp"
#include "transports/ucx/ucx_tag.hpp"

namespace epccl::transports::ucx {
namespace {

using Config = std::unique_ptr<ucp_config_t, decltype(Library::config_release)>;

Result<Config> make_config(const Library& ucx) {
  ucp_config_t* raw = nullptr;
  if (const ucs_status_t status = ucx.config_read(nullptr, nullptr, &raw); status != UCS_OK) {
    return ucx.error_of(Code::system_error, "reading the UCX configuration", status);
  }
  Config config(raw, ucx.config_release);
  for (const Setting& setting : preferred_settings(tcp_is_the_only_network(ucx))) {
    const ucs_status_t status = ucx.config_modify(config.get(), setting.name.c_str(), setting.value.c_str());
    if (status != UCS_OK) {
      // A UCX that does not know a preference still works without it.
      log::info(log::net, -1, "UCX does not take {}={}: {}", setting.name, setting.value,
                ucx.status_string(status));
    } else {
      log::trace(log::net, -1, "UCX setting {}={}", setting.name, setting.value);
    }
  }
  return config;
}

Result<std::shared_ptr<Context>> make_context(const Library& ucx, size_t expected_peers) {
  EPCCL_ASSIGN(const Config config, make_config(ucx));
  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_TAG_SENDER_MASK |
                          UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                          UCP_PARAM_FIELD_NAME;
  parameters.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  parameters.tag_sender_mask = tag_source_mask;
  parameters.mt_workers_shared = 1;  // ranks may be threads of one process, each driving its own worker
  parameters.estimated_num_eps = expected_peers;
  parameters.name = "epccl";
  ucp_context_h handle = nullptr;
  const ucs_status_t status =
      ucx.init_version(UCP_API_MAJOR, UCP_API_MINOR, &parameters, config.get(), &handle);
  if (status != UCS_OK) {
    return ucx.error_of(Code::system_error, "opening the network through UCX", status);
  }
  return std::make_shared<Context>(ucx, handle);
}

}  // namespace

Result<std::shared_ptr<Context>> Context::acquire(size_t expected_peers) {
  struct Shared {
    std::mutex mutex;
    std::weak_ptr<Context> context;
  };
  static PerProcess<Shared> instance;
  Shared& shared = *instance;
  const std::lock_guard lock(shared.mutex);
  if (auto context = shared.context.lock()) return context;
  EPCCL_ASSIGN(const Library* const ucx, Library::get());
  EPCCL_ASSIGN(auto context, make_context(*ucx, expected_peers));
  shared.context = context;
  return context;
}

Context::Context(const Library& library, ucp_context_h handle)
    : library_(library), handle_(handle), owner_(getpid()) {}

Context::~Context() {
  if (owner_ == getpid()) library_.cleanup(handle_);
}

Status Context::moves_cuda_memory() const {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  if (const ucs_status_t status = library_.context_query(handle_, &attributes); status != UCS_OK)
    return library_.error_of(Code::system_error, "asking UCX which memory it moves", status);
  if ((attributes.memory_types >> UCS_MEMORY_TYPE_CUDA & 1) != 0) return {};
  return error(Code::invalid_usage, "UCX {} has no CUDA here (built without it, or UCX_TLS leaves it out)",
               library_.get_version_string());
}

}  // namespace epccl::transports::ucx
