// The real libibverbs with one function of its own, for programs that open it (EPCCL_VERBS_LIB).
#include "dma_buf.hpp"

extern "C" ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* domain, uint64_t offset, size_t bytes, uint64_t address, int fd,
                                     int access) {
  return fake_verbs::register_descriptor(domain, offset, bytes, address, fd, access);
}
