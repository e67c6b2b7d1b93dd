#include "api/ep/ep_arguments.hpp"

#include <cstdint>

#include "api/handles/arguments.hpp"

namespace epccl::api {

Result<Tensor> read_tensor(const char* what, const epcclEpTensor_t* given, bool required, unsigned ndim,
                           std::initializer_list<epcclDataType_t> types) {
  Tensor tensor;
  if (given == nullptr) {
    if (required) return error(Code::invalid_argument, "{} is NULL", what);
    return tensor;
  }
  const epcclEpTensor_t defaults = EPCCL_EP_TENSOR_INIT;
  EPCCL_ASSIGN(const epcclEpTensor_t read, read_struct(what, given, defaults));
  EPCCL_ASSIGN(uint64_t bytes, datatype_bytes(read.datatype));
  if (std::ranges::find(types, read.datatype) == types.end())
    return error(Code::invalid_argument, "{} is {}, which it may not be", what, datatype_name(read.datatype));
  if (read.ndim != ndim || read.sizes == nullptr)
    return error(Code::invalid_argument, "{} has {} dimensions{}: {} are needed", what, read.ndim,
                 read.sizes == nullptr ? " and no sizes" : "", ndim);
  for (unsigned i = 0; i < ndim; ++i) {
    EPCCL_ASSIGN(bytes, checked_bytes(what, read.sizes[i], bytes, 1));
    tensor.sizes.push_back(read.sizes[i]);
  }
  EPCCL_TRY(check_buffer(what, read.data, bytes));
  static char nothing = 0;
  tensor.given = true;
  tensor.name = what;
  tensor.address = read.data;
  tensor.bytes = bytes;
  tensor.data = read.data != nullptr ? read.data : &nothing;
  tensor.datatype = read.datatype;
  return tensor;
}

Status check_apart(std::span<const Tensor* const> tensors, size_t read) {
  const auto begin_of = [](const Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.address); };
  for (size_t i = read; i < tensors.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const Tensor &one = *tensors[j], &other = *tensors[i];
      if (one.bytes == 0 || other.bytes == 0 || begin_of(one) + one.bytes <= begin_of(other) ||
          begin_of(other) + other.bytes <= begin_of(one))
        continue;
      return error(Code::invalid_argument, "{} {} + {} bytes overlaps {} {} + {} bytes", one.name,
                   one.address, one.bytes, other.name, other.address, other.bytes);
    }
  return {};
}

ep::TokenType token_type_of(epcclDataType_t datatype) {
  if (datatype == epcclBfloat16) return ep::TokenType::bfloat16;
  if (datatype == epcclFloat16) return ep::TokenType::float16;
  return datatype == epcclFloat8e4m3 ? ep::TokenType::float8_e4m3 : ep::TokenType::float32;
}

}  // namespace epccl::api
