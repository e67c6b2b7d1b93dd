// Groups and handles of ep.h that end by themselves, and its calls with their structs filled in.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/status.hpp"
#include "epccl/ep.h"
#include "perf/src/communicator.hpp"
#include "perf/src/datatype.hpp"
#include "perf/src/moe/routing.hpp"
#include "perf/src/moe/traffic.hpp"

namespace epccl::perf::moe {

/// A dense matrix in memory that belongs to someone else; no data: not given.
struct Matrix {
  void* data = nullptr;
  size_t rows = 0;
  size_t columns = 0;  // 0: there is one dimension
  epcclDataType_t type = epcclFloat32;
};

struct DispatchArrays {
  Matrix tokens, weights;
  Matrix received, received_weights, received_scales;
};

struct CombineArrays {
  Matrix rows, combined;
  bool weighted = false;
};

/// Owns an epcclEpGroup_t; `communicator` must live longer.
class EpGroup {
 public:
  static Result<EpGroup> create(Communicator& communicator, const epcclEpGroupConfig_t& config);

  EpGroup(EpGroup&& other) noexcept
      : communicator_(other.communicator_), group_(std::exchange(other.group_, nullptr)) {}
  EpGroup& operator=(EpGroup&&) = delete;
  ~EpGroup();

  epcclEpGroup_t get() const { return group_; }
  Communicator& communicator() const { return *communicator_; }

 private:
  EpGroup(Communicator& communicator, epcclEpGroup_t group) : communicator_(&communicator), group_(group) {}

  Communicator* communicator_;
  epcclEpGroup_t group_;
};

/// How far a call goes before it returns.
enum class Until : uint8_t { complete, started };

/// Owns an epcclEpHandle_t; `group` and `stream` must live longer.
class EpHandle {
 public:
  static Result<EpHandle> create(EpGroup& group, Layout layout, const epcclEpHandleConfig_t& config,
                                 const Stream& stream);

  EpHandle(EpHandle&& other) noexcept
      : group_(other.group_),
        handle_(std::exchange(other.handle_, nullptr)),
        stream_(other.stream_),
        table_(std::move(other.table_)),
        table_bytes_(other.table_bytes_) {}
  EpHandle& operator=(EpHandle&&) = delete;
  ~EpHandle();

  /// Before update(): brings the table to where a layer's router would have left it, on the GPU where the calls are.
  Status place(const TopkTable& table);
  /// How many rows this rank will receive.
  Result<uint64_t> update(const TopkTable& table);
  Status dispatch(const DispatchArrays& arrays, Until until = Until::complete);
  Status combine(const CombineArrays& arrays, Until until = Until::complete);
  /// Waits for what was started.
  Status complete();
  Result<epcclEpStats_t> stats() const;

  /// Calls from now on are captured on this stream, and nothing is waited for; null: no longer. An update then tells no rows.
  void capture_on(epcclStream_t stream) { captured_ = stream; }
  /// That calls are on; null: the host.
  Gpu* gpu() const { return stream_->gpu(); }
  epcclComm_t comm() const { return group_->communicator().get(); }

 private:
  EpHandle(EpGroup& group, epcclEpHandle_t handle, const Stream& stream)
      : group_(&group), handle_(handle), stream_(&stream) {}
  Status finish(const char* call, epcclResult_t result, Until until = Until::complete) const;
  /// Whether the call says itself that it is only to be started: on a created stream it is so anyway.
  unsigned send_only(Until until) const { return !stream_->goes_on() && until == Until::started ? 1 : 0; }
  epcclStream_t stream() const { return captured_ != nullptr ? captured_ : stream_->get(); }

  EpGroup* group_;
  epcclEpHandle_t handle_;
  const Stream* stream_;
  epcclStream_t captured_ = nullptr;
  std::shared_ptr<std::byte> table_;  // on the GPU
  size_t table_bytes_ = 0;
};

}  // namespace epccl::perf::moe
