#include "transports/verbs/verbs_library.hpp"

#include <cstring>

#include "base/log.hpp"
#include "base/settings.hpp"
#include "topology/dynamic_library.hpp"

namespace epccl::transports::verbs {
namespace {

struct Opened {
  Status status;
  Library functions;
};

// Where a child of fork() does not get copies of its own of what devices read and write (Linux before 5.12), the parent would: what it
// writes after a fork() would go to pages of which the device knows nothing.
void protect_from_forks(const topology::DynamicLibrary& library) {
  constexpr int unprotected = 0;    // IBV_FORK_DISABLED, which headers before rdma-core 35 lack
  int (*is_protected)() = nullptr;  // since rdma-core 35, too
  int (*protect)() = nullptr;
  if (!library.find("ibv_fork_init", protect)) return;
  if (library.find("ibv_is_fork_initialized", is_protected) && is_protected() != unprotected) return;
  if (const int cause = protect(); cause != 0)
    log::warn(log::net, -1, "ibv_fork_init: {}: programs that fork() may send wrong data over verbs",
              text_of_error(cause));
}

Opened open_library() {
  Opened opened;
  std::string file = settings::get("EPCCL_VERBS_LIB");
  if (file.empty()) file = "libibverbs.so.1";
  auto library = topology::DynamicLibrary::open(file);
  if (!library.ok()) {
    opened.status = std::move(library).take_status();
    return opened;
  }
  // Providers keep threads and tables: the library stays until the process ends.
  static const auto* const kept = new topology::DynamicLibrary(std::move(library).value());
  const auto find = [&](const char* symbol, auto*& function) {
    if (!kept->find(symbol, function) && opened.status.ok())
      opened.status = error(Code::system_error, "{} lacks {}", file, symbol);
  };
  Library& f = opened.functions;
  find("ibv_get_device_list", f.get_device_list);
  find("ibv_free_device_list", f.free_device_list);
  find("ibv_get_device_name", f.get_device_name);
  find("ibv_open_device", f.open_device);
  find("ibv_close_device", f.close_device);
  find("ibv_query_device", f.query_device);
  find("ibv_query_port", f.query_port);
  find("_ibv_query_gid_ex", f.query_gid_ex);
  find("ibv_get_async_event", f.get_async_event);
  find("ibv_ack_async_event", f.ack_async_event);
  find("ibv_alloc_pd", f.alloc_pd);
  find("ibv_dealloc_pd", f.dealloc_pd);
  find("ibv_reg_mr", f.reg_mr);
  if (!kept->find("ibv_reg_dmabuf_mr", f.reg_dmabuf_mr)) f.reg_dmabuf_mr = nullptr;
  find("ibv_dereg_mr", f.dereg_mr);
  find("ibv_create_comp_channel", f.create_comp_channel);
  find("ibv_destroy_comp_channel", f.destroy_comp_channel);
  find("ibv_create_cq", f.create_cq);
  find("ibv_destroy_cq", f.destroy_cq);
  find("ibv_get_cq_event", f.get_cq_event);
  find("ibv_ack_cq_events", f.ack_cq_events);
  find("ibv_create_srq", f.create_srq);
  find("ibv_destroy_srq", f.destroy_srq);
  find("ibv_create_qp", f.create_qp);
  find("ibv_modify_qp", f.modify_qp);
  find("ibv_destroy_qp", f.destroy_qp);
  find("ibv_wc_status_str", f.wc_status_str);
  find("ibv_event_type_str", f.event_type_str);
  if (opened.status.ok()) protect_from_forks(*kept);
  return opened;
}

}  // namespace

Result<const Library*> Library::get() {
  static const Opened& opened = *new Opened(open_library());
  if (!opened.status.ok()) return Status(opened.status);
  return &opened.functions;
}

}  // namespace epccl::transports::verbs
