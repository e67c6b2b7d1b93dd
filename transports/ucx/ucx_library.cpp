#include "transports/ucx/ucx_library.hpp"

#include <mutex>
#include <optional>

#include "base/per_process.hpp"
#include "base/settings.hpp"
#include "topology/dynamic_library.hpp"
#include "transports/ucx/ucx_config.hpp"

namespace epccl::transports::ucx {
namespace {

struct Opened {
  Status status;
  // Has patched functions of the process, and has threads: it stays until that ends.
  std::optional<topology::DynamicLibrary> library;
  Library functions;
};

Opened open_library() {
  Opened opened;
  std::string file = settings::get("EPCCL_UCX_LIB");
  if (file.empty()) file = "libucp.so.0";
  auto library = topology::DynamicLibrary::open(file);
  if (!library.ok()) {
    opened.status = std::move(library).take_status().with_context("opening UCX");
    return opened;
  }
  opened.library = std::move(library).value();
  const auto find = [&](const char* symbol, auto*& function) {
    if (!opened.library->find(symbol, function) && opened.status.ok())
      opened.status = error(Code::system_error, "{} lacks {}", file, symbol);
  };
  Library& f = opened.functions;
  find("ucp_init_version", f.init_version);
  find("ucp_cleanup", f.cleanup);
  find("ucp_get_version_string", f.get_version_string);
  find("ucp_config_read", f.config_read);
  find("ucp_config_modify", f.config_modify);
  find("ucp_config_release", f.config_release);
  find("ucp_context_query", f.context_query);
  find("ucp_worker_create", f.worker_create);
  find("ucp_worker_destroy", f.worker_destroy);
  find("ucp_worker_set_am_recv_handler", f.worker_set_am_recv_handler);
  find("ucp_worker_get_efd", f.worker_get_efd);
  find("ucp_worker_get_address", f.worker_get_address);
  find("ucp_worker_release_address", f.worker_release_address);
  find("ucp_worker_progress", f.worker_progress);
  find("ucp_worker_arm", f.worker_arm);
  find("ucp_ep_create", f.ep_create);
  find("ucp_ep_flush_nbx", f.ep_flush_nbx);
  find("ucp_ep_close_nbx", f.ep_close_nbx);
  find("ucp_tag_send_nbx", f.tag_send_nbx);
  find("ucp_tag_recv_nbx", f.tag_recv_nbx);
  find("ucp_am_send_nbx", f.am_send_nbx);
  find("ucp_request_check_status", f.request_check_status);
  find("ucp_request_cancel", f.request_cancel);
  find("ucp_request_free", f.request_free);
  find("uct_query_components", f.query_components);
  find("uct_component_query", f.component_query);
  find("uct_release_component_list", f.release_component_list);
  find("ucs_status_string", f.status_string);
  find("ucs_debug_disable_signal", f.debug_disable_signal);
  // Whatever it lacks, it has been loaded.
  if (f.debug_disable_signal != nullptr) restore_signal_handlers(f);
  return opened;
}

struct Opening {
  std::mutex mutex;
  std::optional<Opened> result;
};

/// A forked child has its own: another thread of its parent may have been opening it.
Opening& opening() {
  static PerProcess<Opening> instance;
  return *instance;
}

// When this is loaded: no child finds another thread just making it.
[[maybe_unused]] const Opening& made_when_loaded = opening();

}  // namespace

Result<const Library*> Library::get() {
  Opening& once = opening();
  const std::lock_guard lock(once.mutex);
  if (!once.result) once.result = open_library();
  if (!once.result->status.ok()) return Status(once.result->status);
  return &once.result->functions;
}

Status Library::error_of(Code code, const std::string& what, ucs_status_t status) const {
  return error(code, "{}: {}", what, status_string(status));
}

}  // namespace epccl::transports::ucx
