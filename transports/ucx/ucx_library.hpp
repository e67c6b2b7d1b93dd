// UCX, opened at run time: its libraries take signals, read the environment and may print, or abort, where they are loaded, so only
// those processes load them that use it, or that have RDMA devices and may have to (rdma_drivers() in runtime/comm/network.cpp). A
// program that has this transport runs where UCX is absent.
#pragma once

#include <ucp/api/ucp.h>
#include <ucs/debug/debug.h>
#include <uct/api/uct.h>

#include "base/status.hpp"

namespace epccl::transports::ucx {

/// Of libucp, and of libuct and libucs, which come with it.
struct Library {
  decltype(&::ucp_init_version) init_version = nullptr;
  decltype(&::ucp_cleanup) cleanup = nullptr;
  decltype(&::ucp_get_version_string) get_version_string = nullptr;
  decltype(&::ucp_config_read) config_read = nullptr;
  decltype(&::ucp_config_modify) config_modify = nullptr;
  decltype(&::ucp_config_release) config_release = nullptr;
  decltype(&::ucp_context_query) context_query = nullptr;
  decltype(&::ucp_worker_create) worker_create = nullptr;
  decltype(&::ucp_worker_destroy) worker_destroy = nullptr;
  decltype(&::ucp_worker_set_am_recv_handler) worker_set_am_recv_handler = nullptr;
  decltype(&::ucp_worker_get_efd) worker_get_efd = nullptr;
  decltype(&::ucp_worker_get_address) worker_get_address = nullptr;
  decltype(&::ucp_worker_release_address) worker_release_address = nullptr;
  decltype(&::ucp_worker_progress) worker_progress = nullptr;
  decltype(&::ucp_worker_arm) worker_arm = nullptr;
  decltype(&::ucp_ep_create) ep_create = nullptr;
  decltype(&::ucp_ep_flush_nbx) ep_flush_nbx = nullptr;
  decltype(&::ucp_ep_close_nbx) ep_close_nbx = nullptr;
  decltype(&::ucp_tag_send_nbx) tag_send_nbx = nullptr;
  decltype(&::ucp_tag_recv_nbx) tag_recv_nbx = nullptr;
  decltype(&::ucp_am_send_nbx) am_send_nbx = nullptr;
  decltype(&::ucp_request_check_status) request_check_status = nullptr;
  decltype(&::ucp_request_cancel) request_cancel = nullptr;
  decltype(&::ucp_request_free) request_free = nullptr;
  decltype(&::uct_query_components) query_components = nullptr;
  decltype(&::uct_component_query) component_query = nullptr;
  decltype(&::uct_release_component_list) release_component_list = nullptr;
  decltype(&::ucs_status_string) status_string = nullptr;
  decltype(&::ucs_debug_disable_signal) debug_disable_signal = nullptr;

  /// The process's one; opened at its first call, in a forked child again, and never closed. An error says what is not there. Safe to call from several threads.
  static Result<const Library*> get();

  /// A UCX status as an error: "what: <UCX's words>".
  Status error_of(Code code, const std::string& what, ucs_status_t status) const;
};

}  // namespace epccl::transports::ucx
