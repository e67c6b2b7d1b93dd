// What an epoll event is about: a class and a number.
#pragma once

#include <cstdint>

namespace epccl::transports::tcp {

enum class Class : uint64_t {
  listener,
  peer,      // a rank
  stranger,  // the how manieth
  out_lane,  // a rank
  in_lane,   // the number of the stranger it was
};

inline constexpr int number_bits = 56;
constexpr uint64_t tag(Class kind, uint64_t number) {
  return static_cast<uint64_t>(kind) << number_bits | number;
}
constexpr Class class_of(uint64_t what) {
  return static_cast<Class>(what >> number_bits);
}
constexpr uint64_t number_of(uint64_t what) {
  return what & ((uint64_t{1} << number_bits) - 1);
}

}  // namespace epccl::transports::tcp
