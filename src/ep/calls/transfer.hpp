// Dispatch and combine with a handle: arguments become rows, a plan runs, rows become results.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "ep/handle/handle.hpp"

namespace epccl::ep {

enum class TokenType : uint8_t { float32, bfloat16, float16, float8_e4m3 };
const char* to_string(TokenType type);
uint64_t bytes_of(TokenType type);

/// A tensor that may not be there. One that is there but empty has data all the same: what is given must be so on every rank.
template <typename T>
struct Matrix {
  T* data = nullptr;
  uint64_t rows = 0, columns = 0;  // one dimension: columns 1

  bool given() const { return data != nullptr; }
};

/// Tensors as in ep.h.
struct DispatchCall {
  const void* tokens = nullptr;  // [token_rows, hidden]
  TokenType type = TokenType::float32;
  uint64_t token_rows = 0;
  uint64_t hidden = 0;
  Matrix<const float> weights;  // [tokens, k]
  Matrix<const float> scales;   // [tokens, scales]; with float8
  void* received = nullptr;     // [received_rows, hidden]
  uint64_t received_rows = 0;
  TokenType received_type = TokenType::float32;
  Matrix<float> received_scales, received_weights;
  Matrix<void> received_topk;
  bool received_topk_wide = true;
  bool weighted = false;  // multiply each row by its weight (backward of a weighted combine)
  runtime::CallProgress* progress = nullptr;  // null: nobody asks
};

struct CombineCall {
  const void* tokens = nullptr;  // [token_rows, hidden]
  uint64_t token_rows = 0;
  TokenType type = TokenType::float32;
  uint64_t hidden = 0;
  Matrix<const float> weights;  // to be returned to the sources
  void* combined = nullptr;     // [combined_rows, hidden]
  uint64_t combined_rows = 0;
  Matrix<float> combined_weights;
  bool weighted = false;                      // multiply each row by the weight that the dispatch brought
  runtime::CallProgress* progress = nullptr;  // null: nobody asks
};

// Collective, from work of the communicator. An error breaks the communicator: the other ranks learn of it.
Status dispatch(Handle& handle, const DispatchCall& call);
Status combine(Handle& handle, const CombineCall& call);

}  // namespace epccl::ep
