#include "transports/shm/node_segment.hpp"

#include <sodium.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/descriptor_limit.hpp"
#include "base/file_size.hpp"
#include "base/namespaces.hpp"

namespace epccl::transports {
namespace {

constexpr uint64_t page = 4096;
constexpr int few_ranks = 16;

uint64_t to_page(uint64_t bytes) {
  return (bytes + page - 1) / page * page;
}

// Linux before 5.14 does not know the advice; then each page is made when it is first written.
void populate([[maybe_unused]] std::byte* begin, [[maybe_unused]] uint64_t bytes,
              [[maybe_unused]] bool writes) {
#ifdef MADV_POPULATE_WRITE
  const uint64_t skipped = reinterpret_cast<uintptr_t>(begin) % page;
  madvise(begin - skipped, to_page(bytes + skipped), writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
#endif
}

}  // namespace

NodeSegment::NodeSegment(const SegmentSpec& spec) : spec_(spec) {
  const auto ranks = static_cast<uint64_t>(spec.local_size);
  spec_.scratch_bytes = to_page(spec.scratch_bytes);
  counter_stride_ = (spec.local_size + 7) / 8 * 8;  // whole cache lines
  counters_offset_ = to_page(sizeof(SegmentHeader) + ranks * sizeof(RankControl));
  const uint64_t counters =
      to_page(static_cast<uint64_t>(node_counters * counter_stride_) * sizeof(uint64_t));
  queued_offset_ = counters_offset_ + counters;
  rings_offset_ = queued_offset_ + counters;
  parcels_offset_ = rings_offset_ + to_page(spec.ring_bytes);
  places_offset_ = parcels_offset_ + to_page(spec.parcel_bytes);
  scratch_offset_ = places_offset_ + to_page(ranks * calls_ahead * place_stride);
  bytes_ = scratch_offset_ + ranks * call_halves * spec_.scratch_bytes;
}

// Of peers', too, which this process has to map for itself; where they are many, calls use those of few.
void NodeSegment::touch_records(int local) const {
  for (int other = 0; other < spec_.local_size; ++other)
    if (other == local || spec_.local_size <= few_ranks)
      populate(reinterpret_cast<std::byte*>(&control(other)), sizeof(RankControl), other == local);
}

void NodeSegment::touch_places(int local) const {
  for (int other = 0; other < spec_.local_size; ++other)
    for (int number = 0; number < calls_ahead && (other == local || spec_.local_size <= few_ranks); ++number)
      populate(place(other, number), page, other == local);
}

void NodeSegment::take(void* base) {
  base_ = static_cast<std::byte*>(base);
  mapping_ =
      std::shared_ptr<const void>(base_, [bytes = bytes_](std::byte* mapped) { munmap(mapped, bytes); });
}

Result<NodeSegment> NodeSegment::create(const SegmentSpec& spec) {
  NodeSegment segment(spec);
  segment.fd_ = open_within_limit([] { return memfd_create("epccl-node", MFD_CLOEXEC); });
  if (!segment.fd_) return descriptor_error(errno, "memfd_create of the node segment");
  EPCCL_TRY(set_file_size(segment.fd_.get(), segment.bytes_, "the node's shared segment"));
  struct stat info {};
  if (fstat(segment.fd_.get(), &info) != 0) return system_error(errno, "fstat of the node segment");
  void* base = mmap(nullptr, segment.bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd_.get(), 0);
  if (base == MAP_FAILED)
    return system_error(errno, fmt::format("mmap of {} bytes of node segment", segment.bytes_));
  segment.take(base);
  segment.handle_.memory = {getpid(), segment.fd_.get(), info.st_ino, segment.bytes_, 0};
  segment.handle_.pid_namespace = own_namespace("pid");
  randombytes_buf(segment.handle_.token.data(), segment.handle_.token.size());
  randombytes_buf(segment.handle_.secret.data(), segment.handle_.secret.size());
  return segment;
}

Status NodeSegment::check(const SegmentSpec& spec, const SegmentHandle& handle) {
  const uint64_t bytes = NodeSegment(spec).bytes_;
  if (handle.memory.size != bytes)
    return error(Code::invalid_usage,
                 "the node's segment has {} bytes, this rank's settings make it {}: ranks differ in "
                 "EPCCL_SCRATCH_SIZE?",
                 handle.memory.size, bytes);
  const uint64_t own = own_namespace("pid");
  if (own != 0 && handle.pid_namespace != 0 && own != handle.pid_namespace)
    return error(
        Code::invalid_usage,
        "the node's first rank, process {} there, is in another PID namespace than this one: ranks of "
        "a "
        "node must be in one (docker run --pid), or be of different nodes by their EPCCL_HOSTID",
        handle.memory.pid);
  return {};
}

Result<NodeSegment> NodeSegment::attach(const SegmentSpec& spec, const SegmentHandle& handle) {
  EPCCL_TRY(check(spec, handle));
  auto opened = device::open_window(handle.memory);
  if (!opened.ok())
    return std::move(opened).take_status().with_context("attaching to the node's shared segment");
  return attach(spec, handle, *opened);
}

Result<NodeSegment> NodeSegment::attach(const SegmentSpec& spec, const SegmentHandle& handle,
                                        const UniqueFd& memory) {
  NodeSegment segment(spec);
  auto mapped = device::map_window(memory, handle.memory, device::Pages::as_touched);
  if (!mapped.ok())
    return std::move(mapped).take_status().with_context("attaching to the node's shared segment");
  segment.take(*mapped);
  segment.handle_ = handle;
  return segment;
}

}  // namespace epccl::transports
