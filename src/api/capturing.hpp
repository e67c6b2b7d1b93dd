// Calls on a stream that is being captured into a CUDA graph.
#pragma once

#include <string>

#include "base/status.hpp"
#include "device/device.hpp"

namespace epccl::api {

/// Whether the stream's work is being recorded into a graph. Error: a capture that failed.
Result<bool> is_captured(device::Device& device, void* stream);

Status not_capturable(const std::string& text, const std::string& why);

}  // namespace epccl::api
