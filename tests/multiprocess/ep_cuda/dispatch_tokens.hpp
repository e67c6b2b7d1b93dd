// A dispatch of nothing but tokens.
#pragma once

#include "layer.hpp"

namespace epccl::tests {

inline epcclResult_t dispatch_tokens(epcclEpHandle_t handle, Tensor& in, Tensor& out, bool send_only,
                                     epcclStream_t stream) {
  epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
  inputs.tokens = in;
  epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
  outputs.tokens = out;
  epcclEpDispatchConfig_t config = EPCCL_EP_DISPATCH_CONFIG_INIT;
  config.send_only = send_only ? 1 : 0;
  return epcclEpDispatch(handle, &inputs, &outputs, &config, stream);
}

}  // namespace epccl::tests
