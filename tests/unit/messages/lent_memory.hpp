// A libibverbs that registers GPU memory, on devices that cannot (soft-RoCE): the calls are the real one's, with the pages behind the
// double's descriptors.
#pragma once

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "fake_driver.hpp"
#include "gpu.hpp"
#include "transports/verbs/verbs_library.hpp"

namespace epccl::transports {

/// What a kernel does with the pages of a dma-buf: a device is given them, no process maps them.
inline ibv_mr* register_pages(ibv_pd* domain, size_t bytes, uint64_t address, int fd, off_t begin,
                              int access) {
  using Register = ibv_mr*(ibv_pd*, void*, size_t, uint64_t, unsigned);
  static auto* const real =
      reinterpret_cast<Register*>(::dlsym(::dlopen("libibverbs.so.1", RTLD_NOW), "ibv_reg_mr_iova2"));
  void* const pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, begin);
  if (pages == MAP_FAILED) return nullptr;
  ibv_mr* const made = real(domain, pages, bytes, address, static_cast<unsigned>(access));
  const int failed = errno;
  ::munmap(pages, bytes);
  errno = failed;
  return made;
}

/// As ibv_reg_dmabuf_mr().
inline ibv_mr* register_descriptor(ibv_pd* domain, uint64_t offset, size_t bytes, uint64_t address, int fd,
                                   int access) {
  const off_t begin = ::lseek(fd, 0, SEEK_CUR);  // of the double's range in its file
  return register_pages(domain, bytes, address, fd, begin + static_cast<off_t>(offset), access);
}

/// As ibv_reg_mr() where the module is loaded that finds the pages behind a GPU's addresses.
inline ibv_mr* register_with_module(ibv_pd* domain, void* address, size_t bytes, int access) {
  const auto lent = device::test::gpu().lend(address, bytes);
  if (!lent.ok()) return (*verbs::Library::get())->reg_mr(domain, address, bytes, access);
  const int fd = lent->descriptor.get();
  return register_pages(domain, bytes, reinterpret_cast<uint64_t>(address), fd, ::lseek(fd, 0, SEEK_CUR),
                        access);
}

inline const verbs::Library& library_with_dma_buf() {
  static const verbs::Library library = [] {
    verbs::Library made = **verbs::Library::get();
    made.reg_dmabuf_mr = register_descriptor;
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
