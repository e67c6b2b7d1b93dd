#include "perf/src/overlap/bare_copies.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/core_mask.hpp"
#include "device/host/host_copy.hpp"
#include "device/host/host_engines.hpp"

namespace epccl::perf {
namespace {

Status stay_on(const std::vector<int>& cores) {
  if (cores.empty()) return {};
  if (CoreMask(cores).apply()) return {};
  return error(Code::system_error, "--overlap-copies: EPCCL_HOST_ENGINE_CORES: {}", std::strerror(errno));
}

}  // namespace

Result<std::unique_ptr<BareCopies>> BareCopies::make(std::span<const std::byte> from,
                                                     std::span<std::byte> to) {
  if (from.empty()) return error(Code::invalid_argument, "--overlap-copies: there is nothing to copy");
  if (from.data() < to.data() + to.size() && to.data() < from.data() + from.size())
    return error(Code::invalid_argument, "--overlap-copies: not in place");
  EPCCL_ASSIGN(const device::HostEngines::Limits limits, device::HostEngines::configured());
  std::unique_ptr<BareCopies> made(new BareCopies(from, to));
  made->thread_.enqueue([cores = limits.engine_cores] { return stay_on(cores); });
  EPCCL_TRY(made->thread_.synchronize());
  return made;
}

void BareCopies::copy() const {
  constexpr size_t piece = 1 << 20;
  for (size_t at = 0, source = 0; at < to_.size();) {
    const size_t bytes = std::min({piece, to_.size() - at, from_.size() - source});
    device::copy_bytes(to_.data() + at, from_.data() + source, bytes, true);
    at += bytes;
    source = (source + bytes) % from_.size();
  }
}

Status BareCopies::call() {
  EPCCL_TRY(start());
  return finish();
}

Status BareCopies::start() {
  thread_.enqueue([this]() -> Status {
    copy();
    return {};
  });
  return {};
}

Status BareCopies::finish() {
  return thread_.synchronize();
}

}  // namespace epccl::perf
