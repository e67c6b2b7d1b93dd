#include "api/capturing.hpp"

namespace epccl::api {

Result<bool> is_captured(device::Device& device, void* stream) {
  EPCCL_ASSIGN(const auto users, device.borrow_stream(stream));
  EPCCL_ASSIGN(const uint64_t capture, users->capture());
  return capture != 0;
}

Status not_capturable(const std::string& text, const std::string& why) {
  return error(Code::invalid_usage,
               "{} cannot be part of the graph that the stream is being captured into: {}", text, why);
}

}  // namespace epccl::api
