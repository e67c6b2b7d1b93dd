// Weights on their way to where a placement has their experts: sends and receives of ep/placement/migration.hpp.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "api/device/which_device.hpp"
#include "api/ep/ep_calls.hpp"
#include "api/groups/capturing.hpp"
#include "api/handles/last_error.hpp"
#include "base/caught.hpp"
#include "base/fnv1a.hpp"
#include "ep/placement/migration.hpp"
#include "ep/placement/placement.hpp"
#include "epccl/placement.h"

namespace epccl::api {
namespace {

constexpr uint64_t least_piece = 64;  // bytes: a line of the cache
constexpr size_t buffers = 3;         // of each slot that gets an expert

struct Given {
  unsigned slots_per_rank;
  const int *before, *after;
  void* const* weights;
  const size_t* bytes;
  unsigned tensors;
  void* scratch;
  size_t scratch_bytes;
};

/// What ranks tell each other of their arguments, so that none waits for messages that nobody sends.
struct Terms {
  uint64_t usable, before, after, sizes;
  uint64_t piece;  // the longest that the rank has scratch for
};

template <typename T>
uint64_t hash_of(const T* values, size_t count) {
  return fnv1a64({reinterpret_cast<const char*>(values), count * sizeof(T)});
}

class MigrationCall {
 public:
  MigrationCall(epcclComm_t comm, const Given& given, epcclStream_t stream)
      : comm_(comm), given_(given), stream_(stream) {}

  /// What is wrong with this rank's arguments is kept for the others to hear of.
  Status prepare() {
    EPCCL_ASSIGN(communicator_, find_usable_communicator(comm_));
    EPCCL_TRY(check_no_ep_in_group());
    rank_ = communicator_->rank();
    all_.resize(static_cast<size_t>(communicator_->cluster().ranks()));
    own_ = caught([this] { return read(); });
    own_terms_.usable = own_.ok() ? 1 : 0;
    return {};
  }

  epcclResult_t exchange_terms() {
    return epcclAllGather(&own_terms_, all_.data(), sizeof own_terms_, epcclUint8, comm_, nullptr);
  }

  Status agree() {
    EPCCL_TRY(own_);
    const Terms& first = all_.front();
    for (size_t rank = 0; rank < all_.size(); ++rank) {
      const Terms& it = all_[rank];
      if (it.usable == 0)
        return error(Code::invalid_argument, "migration: what rank {} was given cannot be, as it says itself",
                     rank);
      for (const auto& [what, own, other] :
           {std::tuple("`before`", it.before, first.before), std::tuple("`after`", it.after, first.after),
            std::tuple("slots_per_rank or sizes of weights", it.sizes, first.sizes)})
        if (own != other)
          return error(Code::invalid_argument, "migration: rank {} has other {} than rank 0", rank, what);
    }
    piece_ = std::ranges::min(all_, {}, &Terms::piece).piece;
    return {};
  }

  // A pipeline: while one part crosses the network, the one before is handed on, and the one before that goes to its slots.
  epcclResult_t move() {
    Part next = part_from({0, 0, 0});
    std::array<std::optional<Part>, buffers> under_way;  // the youngest first
    for (uint64_t turn = 0;; ++turn) {
      std::ranges::rotate(under_way, under_way.end() - 1);
      under_way.front().reset();
      if (next.bytes > 0) {
        under_way.front() = next;
        next = part_from({next.tensor, next.from + next.bytes, 0});
      }
      if (std::ranges::none_of(under_way, [](const auto& part) { return part.has_value(); }))
        return epcclSuccess;
      if (const epcclResult_t result = make_turn(under_way, turn); result != epcclSuccess) return result;
    }
  }

 private:
  /// Of each expert's bytes in a tensor.
  struct Part {
    unsigned tensor;
    uint64_t from, bytes;
  };

  /// The longest that begins there, or at the next tensor that has bytes; 0 bytes: there is none.
  Part part_from(Part at) const {
    while (at.tensor < given_.tensors && at.from >= given_.bytes[at.tensor]) at = {at.tensor + 1, 0, 0};
    if (at.tensor < given_.tensors) at.bytes = std::min(piece_, given_.bytes[at.tensor] - at.from);
    return at;
  }

  Status read() {
    const topology::Cluster& cluster = communicator_->cluster();
    ep::PlacementRules rules;
    if (given_.slots_per_rank < 1 || given_.slots_per_rank > ep::most_slots)
      return error(Code::invalid_argument, "slots_per_rank is {}", given_.slots_per_rank);
    rules.slots_per_rank = static_cast<int>(given_.slots_per_rank);
    rules.experts = ep::most_slots;
    const size_t slots = all_.size() * given_.slots_per_rank;
    if (slots > ep::most_slots)
      return error(Code::invalid_argument, "{} ranks with {} slots: at most {} slots in all", all_.size(),
                   given_.slots_per_rank, ep::most_slots);
    if (given_.before == nullptr) return {Code::invalid_argument, "before is NULL"};
    if (given_.after == nullptr) return {Code::invalid_argument, "after is NULL"};
    const std::span before(given_.before, slots), after(given_.after, slots);
    EPCCL_TRY(check_placement(cluster, rules, before));
    EPCCL_TRY(check_placement(cluster, rules, after));
    EPCCL_TRY(check_weights());
    EPCCL_TRY(check_memory());
    plan_ = ep::plan_migration(cluster, rules.slots_per_rank, before, after);
    own_terms_ = {1, hash_of(given_.before, slots), hash_of(given_.after, slots),
                  fnv1a64(std::to_string(given_.slots_per_rank), hash_of(given_.bytes, given_.tensors)), 0};
    return find_piece();
  }

  Status check_weights() const {
    if (given_.tensors == 0) return {};
    if (given_.weights == nullptr) return {Code::invalid_argument, "weights is NULL"};
    if (given_.bytes == nullptr) return {Code::invalid_argument, "bytes_per_expert is NULL"};
    for (unsigned tensor = 0; tensor < given_.tensors; ++tensor) {
      if (given_.bytes[tensor] > most_bytes / given_.slots_per_rank)
        return error(Code::invalid_argument, "bytes_per_expert[{}] is {}, times {} slots", tensor,
                     given_.bytes[tensor], given_.slots_per_rank);
      if (given_.weights[tensor] == nullptr && given_.bytes[tensor] > 0)
        return error(Code::invalid_argument, "weights[{}] is NULL", tensor);
    }
    return {};
  }

  /// All of one kind, and no call of a graph: the ranks meet here and now.
  Status check_memory() const {
    std::vector<Tensor> all(given_.tensors + 1);
    std::vector<NamedBuffer> memory;
    std::vector<const Tensor*> tensors;
    for (unsigned number = 0; number <= given_.tensors; ++number) {
      const bool weights = number < given_.tensors;
      Tensor& it = all[number];
      it.name = weights ? "weights" : "scratch";
      it.address = weights ? given_.weights[number] : given_.scratch;
      it.bytes = weights ? given_.bytes[number] * given_.slots_per_rank : given_.scratch_bytes;
      memory.push_back({it.name, it.address, it.bytes});
      tensors.push_back(&it);
    }
    EPCCL_TRY(check_apart(tensors, 0));
    EPCCL_ASSIGN(device::Device * device, device_of(*communicator_, memory, stream_));
    if (device == nullptr) {
      EPCCL_ASSIGN(device, device_of_host_memory(memory));
    }
    if (device == nullptr) return {};
    EPCCL_ASSIGN(const bool captured, is_captured(*device, stream_));
    return captured ? not_capturable("a migration of experts", "the ranks compare what they are given")
                    : Status{};
  }

  /// Pinned memory goes in the order of whatever stream it is given; other memory of the host's has streams of its own.
  Result<device::Device*> device_of_host_memory(std::span<const NamedBuffer> memory) const {
    device::Device* device = nullptr;
    for (const NamedBuffer& it : memory) {
      EPCCL_ASSIGN(device::Device* const of_stream,
                   device_of_message(*communicator_, it.address, it.bytes, stream_));
      if (of_stream == nullptr) EPCCL_TRY(find_stream(stream_).status());
      device = of_stream;
    }
    return device;
  }

  Status find_piece() {
    const uint64_t largest =
        given_.tensors == 0 ? 0 : *std::max_element(given_.bytes, given_.bytes + given_.tensors);
    const size_t arrivals = plan_.arrivals[static_cast<size_t>(rank_)].size();
    own_terms_.piece = UINT64_MAX;
    if (arrivals == 0 || largest == 0) return {};
    if (given_.scratch == nullptr) return {Code::invalid_argument, "scratch is NULL"};
    const uint64_t each = given_.scratch_bytes / (buffers * arrivals), least = std::min(least_piece, largest);
    if (each < least)
      return error(Code::invalid_argument,
                   "scratch_bytes is {}: rank {} gets {} experts, each of which takes {} bytes at least",
                   given_.scratch_bytes, rank_, arrivals, buffers * least);
    own_terms_.piece = each < least_piece ? each : each - each % least_piece;
    return {};
  }

  std::byte* slot(const Part& part, int number) const {
    return static_cast<std::byte*>(given_.weights[part.tensor]) +
           static_cast<uint64_t>(number) * given_.bytes[part.tensor] + part.from;
  }
  /// Where what goes to a slot is from `turn`, in which its part began, on.
  std::byte* arrival(uint64_t turn, int number) const {
    return static_cast<std::byte*>(given_.scratch) +
           (turn % buffers * plan_.arrivals[static_cast<size_t>(rank_)].size() +
            static_cast<uint64_t>(number)) *
               piece_;
  }

  /// Ends the group in any case; the first error counts.
  epcclResult_t make_turn(const std::array<std::optional<Part>, buffers>& under_way, uint64_t turn) {
    const auto& [young, middle, old] = under_way;
    if (const auto result = epcclGroupStart(); result != epcclSuccess) return result;
    epcclResult_t result = epcclSuccess;
    if (young) result = send(plan_.first, *young, turn, false);
    if (middle && result == epcclSuccess) result = send(plan_.second, *middle, turn - 1, true);
    if (old && result == epcclSuccess) result = settle(*old, turn - 2);
    const epcclResult_t end = epcclGroupEnd();
    return result != epcclSuccess ? result : end;
  }

  epcclResult_t send(const std::vector<ep::Migration::Copy>& copies, const Part& part, uint64_t turn,
                     bool arrived) {
    epcclResult_t result = epcclSuccess;
    for (const ep::Migration::Copy& it : copies) {
      if (it.from_rank == rank_)
        result = epcclSend(arrived ? arrival(turn, it.from) : slot(part, it.from), part.bytes, epcclUint8,
                           it.to_rank, comm_, stream_);
      if (it.to_rank == rank_ && result == epcclSuccess)
        result = epcclRecv(arrival(turn, it.to), part.bytes, epcclUint8, it.from_rank, comm_, stream_);
      if (result != epcclSuccess) return result;
    }
    return result;
  }

  epcclResult_t settle(const Part& part, uint64_t turn) {
    const std::vector<int>& slots = plan_.arrivals[static_cast<size_t>(rank_)];
    epcclResult_t result = epcclSuccess;
    for (size_t number = 0; number < slots.size() && result == epcclSuccess; ++number) {
      result =
          epcclSend(arrival(turn, static_cast<int>(number)), part.bytes, epcclUint8, rank_, comm_, stream_);
      if (result == epcclSuccess)
        result = epcclRecv(slot(part, slots[number]), part.bytes, epcclUint8, rank_, comm_, stream_);
    }
    return result;
  }

  static constexpr uint64_t most_bytes = uint64_t{1} << 62;

  epcclComm_t comm_;
  const Given given_;
  epcclStream_t stream_;
  CommPtr communicator_;
  int rank_ = 0;
  ep::Migration plan_;
  Status own_;
  Terms own_terms_{};
  std::vector<Terms> all_;
  uint64_t piece_ = 0;
};

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclEpMigrateExperts(epcclComm_t comm, unsigned int slots_per_rank, const int* before,
                                    const int* after, void* const* weights, const size_t* bytes_per_expert,
                                    unsigned int num_weights, void* scratch, size_t scratch_bytes,
                                    epcclStream_t stream) {
  MigrationCall call(
      comm, {slots_per_rank, before, after, weights, bytes_per_expert, num_weights, scratch, scratch_bytes},
      stream);
  if (const auto result = guarded([&] { return call.prepare(); }); result != epcclSuccess) return result;
  if (const auto result = call.exchange_terms(); result != epcclSuccess) return result;
  if (const auto result = guarded([&] { return call.agree(); }); result != epcclSuccess) return result;
  return call.move();
}
