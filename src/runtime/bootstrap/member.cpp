#include "runtime/bootstrap/member.hpp"

#include <span>

#include "base/log.hpp"
#include "base/per_process.hpp"
#include "runtime/bootstrap/handshake.hpp"

namespace epccl::runtime {

uint64_t this_process() {
  struct Number {
    Number() { randomize(std::as_writable_bytes(std::span(&value, 1))); }
    uint64_t value = 0;
  };
  static PerProcess<Number> number;
  return number->value;
}

std::string describe(const Member& member) {
  return fmt::format("rank {} (host {}, pid {})", member.rank, member.host, member.pid);
}

}  // namespace epccl::runtime
