#include "peer.hpp"

#include <cstdio>
#include <cstring>

#include "fake_driver.hpp"
#include "gpu.hpp"

namespace {

using namespace epccl;
using namespace epccl::device;
using namespace epccl::device::test;

Result<PeerReply> answer(const PeerRequest& request, void*& memory, std::vector<std::byte>& bytes) {
  PeerReply reply{};
  EPCCL_ASSIGN(Device * device, cuda_device(0));
  if (request.what == PeerRequest::allocate) {
    EPCCL_ASSIGN(memory, device->allocate(MemoryKind::shareable, request.bytes));
    put(static_cast<std::byte*>(memory), numbers(request.bytes, request.seed));
    EPCCL_ASSIGN(reply.handle, device->export_memory(memory, request.bytes));
  } else if (request.what == PeerRequest::free) {
    EPCCL_TRY(device->free(memory));
  } else {
    EPCCL_ASSIGN(const auto mapped, device->import_memory(request.handle));
    if (request.what == PeerRequest::write) put(mapped->data(), numbers(request.bytes, request.seed));
    if (request.what == PeerRequest::read) bytes = get(mapped->data(), request.bytes);
  }
  return reply;
}

}  // namespace

int main() {
  fake_cuda_set("reuse", 1);  // as allocators do
  void* memory = nullptr;
  for (PeerRequest request{}; read_all(STDIN_FILENO, &request, sizeof request);) {
    std::vector<std::byte> bytes;
    auto answered = answer(request, memory, bytes);
    PeerReply reply = answered.ok() ? *answered : PeerReply{};
    if (!answered.ok())
      std::snprintf(reply.error, sizeof reply.error, "%s", answered.status().message().c_str());
    reply.bytes = bytes.size();
    write_all(STDOUT_FILENO, &reply, sizeof reply);
    write_all(STDOUT_FILENO, bytes.data(), bytes.size());
  }
  return 0;
}
