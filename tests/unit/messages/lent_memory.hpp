// Libraries that register GPU memory with devices that cannot (soft-RoCE): see doubles/verbs.
#pragma once

#include "dma_buf.hpp"
#include "gpu.hpp"
#include "transports/verbs/verbs_library.hpp"

namespace epccl::transports {

/// As ibv_reg_mr() where the module is loaded that finds the pages behind a GPU's addresses.
inline ibv_mr* register_with_module(ibv_pd* domain, void* address, size_t bytes, int access) {
  const auto lent = device::test::gpu().lend(address, bytes);
  if (!lent.ok()) return (*verbs::Library::get())->reg_mr(domain, address, bytes, access);
  const int fd = lent->descriptor.get();
  return fake_verbs::register_pages(domain, bytes, reinterpret_cast<uint64_t>(address), fd,
                                    ::lseek(fd, 0, SEEK_CUR), access);
}

inline const verbs::Library& library_with_dma_buf() {
  static const verbs::Library library = [] {
    verbs::Library made = **verbs::Library::get();
    made.reg_dmabuf_mr = fake_verbs::register_descriptor;
    return made;
  }();
  return library;
}

inline const verbs::Library& library_with_module() {
  static const verbs::Library library = [] {
    verbs::Library made = **verbs::Library::get();
    made.reg_dmabuf_mr = nullptr;
    made.reg_mr = register_with_module;
    return made;
  }();
  return library;
}

}  // namespace epccl::transports
