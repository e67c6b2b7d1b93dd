// ibv_reg_dmabuf_mr() for devices that have none (soft-RoCE) and for the descriptors of the CUDA driver's double: the pages behind
// one are registered, under the addresses of the GPU.
#pragma once

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace fake_verbs {

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

inline ibv_mr* register_descriptor(ibv_pd* domain, uint64_t offset, size_t bytes, uint64_t address, int fd,
                                   int access) {
  const off_t begin = ::lseek(fd, 0, SEEK_CUR);  // of the double's range in its file
  return register_pages(domain, bytes, address, fd, begin + static_cast<off_t>(offset), access);
}

}  // namespace fake_verbs
