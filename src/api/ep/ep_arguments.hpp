// Reads the structs and tensors of ep.h.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "api/handles/sized_struct.hpp"
#include "base/status.hpp"
#include "ep/calls/transfer.hpp"
#include "ep/routing/routing.hpp"
#include "epccl/ep.h"

namespace epccl::api {

/// As read_sized(); where none is given, `defaults`.
template <typename T>
Result<T> read_struct(const char* what, const T* given, T defaults) {
  if (given == nullptr) return defaults;
  return read_sized(what, *given, defaults, "the initialiser");
}

/// What numbers of experts and of rows may be.
inline constexpr auto index_types = {epcclInt32, epcclInt64};

/// A tensor that is there, or is not.
struct Tensor {
  bool given = false;
  const char* name = "";
  const void* address = nullptr;  // as it was given
  uint64_t bytes = 0;
  void* data = nullptr;  // never null when given: an empty tensor points somewhere
  epcclDataType_t datatype = epcclFloat32;
  std::vector<size_t> sizes;

  size_t rows() const { return sizes.empty() ? 0 : sizes.front(); }
  size_t columns() const { return sizes.size() < 2 ? 1 : sizes[1]; }
};

/// `required`: error when it is not given. `types`: what it may hold. `ndim`: dimensions it must have.
Result<Tensor> read_tensor(const char* what, const epcclEpTensor_t* given, bool required, unsigned ndim,
                           std::initializer_list<epcclDataType_t> types);

/// Of a call's tensors, of which the first so many are read: what is written overlaps nothing.
Status check_apart(std::span<const Tensor* const> tensors, size_t read);

ep::TokenType token_type_of(epcclDataType_t datatype);

}  // namespace epccl::api
