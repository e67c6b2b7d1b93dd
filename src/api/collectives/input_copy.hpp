// Calls whose input overlaps their output, and not as NCCL defines a call in place. NCCL says nothing of what they bring, but does not
// refuse them, and programs make them (nccl-tests times its all-to-all in place, too). Here they read a copy of their input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace epccl::api {

/// Of a call on host memory; made when it is issued, so that the caller is told if there is no memory for it.
class InputCopy {
 public:
  /// `bytes`: of the input; 0: no copy is needed.
  explicit InputCopy(uint64_t bytes)
      : bytes_(bytes), memory_(bytes == 0 ? nullptr : std::make_shared_for_overwrite<std::byte[]>(bytes)) {}

  /// In the call's turn: from now on it reads the copy.
  template <typename CallType>
  void take_input_of(CallType& call) const {
    if (memory_ == nullptr) return;
    const auto* const input = static_cast<const std::byte*>(call.input);
    if constexpr (requires { call.send_offsets; }) {
      for (size_t i = 0; i < call.send_bytes.size(); ++i)  // nothing between the blocks is the call's
        if (call.send_bytes[i] > 0)
          std::memcpy(memory_.get() + call.send_offsets[i], input + call.send_offsets[i], call.send_bytes[i]);
    } else {
      std::memcpy(memory_.get(), input, bytes_);
    }
    call.input = memory_.get();
  }

 private:
  uint64_t bytes_;
  std::shared_ptr<std::byte[]> memory_;  // NOLINT: an array
};

}  // namespace epccl::api
