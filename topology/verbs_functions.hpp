// The functions of libibverbs that ask devices about themselves, from the library opened at run time. Only for builds that have
// its header (EPCCL_HAVE_IBVERBS).
#pragma once

#include <infiniband/verbs.h>

#include "topology/dynamic_library.hpp"

// Macros of the header around functions that would have to be linked.
#undef ibv_get_device_list
#undef ibv_query_port

namespace epccl::topology {

struct VerbsFunctions {
  ibv_device** (*get_device_list)(int*) = nullptr;
  void (*free_device_list)(ibv_device**) = nullptr;
  const char* (*get_device_name)(ibv_device*) = nullptr;
  __be64 (*get_device_guid)(ibv_device*) = nullptr;
  ibv_context* (*open_device)(ibv_device*) = nullptr;
  int (*close_device)(ibv_context*) = nullptr;
  int (*query_device)(ibv_context*, ibv_device_attr*) = nullptr;
  int (*query_port)(ibv_context*, uint8_t, ibv_port_attr*) = nullptr;
  int (*query_gid)(ibv_context*, uint32_t, uint32_t, ibv_gid_entry*, uint32_t,
                   size_t) = nullptr;  // null in old ones
  bool complete = false;               // all but query_gid are there

  explicit VerbsFunctions(const DynamicLibrary& library) {
    complete = library.find("ibv_get_device_list", get_device_list) &&
               library.find("ibv_free_device_list", free_device_list) &&
               library.find("ibv_get_device_name", get_device_name) &&
               library.find("ibv_get_device_guid", get_device_guid) &&
               library.find("ibv_open_device", open_device) &&
               library.find("ibv_close_device", close_device) &&
               library.find("ibv_query_device", query_device) && library.find("ibv_query_port", query_port);
    library.find("_ibv_query_gid_ex", query_gid);
  }
};

}  // namespace epccl::topology
