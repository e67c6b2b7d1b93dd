// The algorithms of alltoall and alltoallv, by name.
#pragma once

#include <array>
#include <cstdint>

namespace epccl::algorithms {

enum class Algorithm : uint8_t { flat, two_stage };
inline constexpr std::array all_algorithms = {Algorithm::flat, Algorithm::two_stage};

constexpr const char* to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::flat:
      return "flat";
    case Algorithm::two_stage:
      return "two_stage";
  }
  return "?";
}

}  // namespace epccl::algorithms
