#include "group.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/log.hpp"
#include "config.hpp"
#include "convert.hpp"
#include "entry_points.hpp"
#include "last_error.hpp"

namespace epccl::nccl {
namespace {

struct Group {
  int depth = 0;
  const RealNccl* real = nullptr;     // whose group is open too
  size_t passed_on = 0;               // calls in that
  ncclResult_t failed = ncclSuccess;  // the first failed call's
  Status refused;                     // its text, if this library refused it
  bool has_cuda_calls = false;        // EPCCL's, on CUDA memory
  std::vector<NewSide> new_sides;
};

// NVIDIA's group, too, ends with its thread, and its calls with it. EPCCL tells of its own.
void tell_unended(const Group& open) {
  if (open.passed_on == 0) return;
  log::warn(log::coll, -1,
            "a thread ended with its group open (ncclGroupStart without ncclGroupEnd): {} calls that were "
            "passed on to the real NCCL "
            "were never issued",
            open.passed_on);
}

/// The calling thread's, for as long as it lives.
struct OfThread {
  OfThread() = default;
  OfThread(const OfThread&) = delete;
  OfThread& operator=(const OfThread&) = delete;
  ~OfThread() { tell_unended(group); }
  Group group;
};

Group& group() {
  thread_local OfThread own;
  return own.group;
}

// Neither library can drop an open group; but each drops one of which a call was wrong.
void spoil_real(const RealNccl* real) {
  if (real != nullptr && real->Send != nullptr) (void)real->Send(nullptr, 0, ncclInt8, 0, nullptr, nullptr);
}
void spoil(const RealNccl* real) {
  (void)epcclSend(nullptr, 0, epcclInt8, 0, nullptr, nullptr);
  spoil_real(real);
}

/// The end of the real library's group.
struct RealEnd {
  const RealNccl* real = nullptr;
  bool is_over = false;
  ncclResult_t result = ncclSuccess;

  void end() {
    if (real != nullptr && !is_over) result = from_real(real->GroupEnd(), nullptr);
    is_over = true;
  }
};

// Both groups' calls are one group's: they begin together and neither waits for the other's. So EPCCL's on CUDA memory are under way
// before the real library's are launched (which may wait for other ranks, when it connects), and streams are held for them after.
epcclResult_t end_beside_each_other(RealEnd& real) {
  const epcclResult_t native =
      epcclGroupEndBeside([](void* its) { static_cast<RealEnd*>(its)->end(); }, &real);
  if (!real.is_over) spoil_real(real.real);  // EPCCL's group does nothing
  real.end();
  return native;
}

// The outermost end. Who ends first must not wait for the other: the real library's calls go on by themselves, and EPCCL's on host
// memory may be waited for here.
ncclResult_t end_both(Group mine) {
  if (mine.failed != ncclSuccess) spoil(mine.real);
  RealEnd real_end{mine.real};
  if (!mine.has_cuda_calls) real_end.end();
  const epcclResult_t native = mine.has_cuda_calls ? end_beside_each_other(real_end) : epcclGroupEnd();
  const ncclResult_t real = real_end.result;
  if (!mine.refused.ok())
    return refuse(std::move(mine.refused).with_context("a call of this group was refused"));
  if (mine.failed != ncclSuccess && real == ncclSuccess) return from_native(native);
  if (real != ncclSuccess) return real;
  const ncclResult_t result = from_native(native);
  if (mine.new_sides.empty() || (result != ncclSuccess && result != ncclInProgress)) return result;
  return make_or_keep(std::move(mine.new_sides));
}

}  // namespace

bool in_group() {
  return group().depth > 0;
}

ncclResult_t refuse_call(const Status& status) {
  if (in_group() && group().failed == ncclSuccess && !status.ok()) {
    group().failed = static_cast<ncclResult_t>(status.code());
    group().refused = status;
  }
  return refuse(status);
}

ncclResult_t note_call(ncclResult_t result) {
  const bool failed = result != ncclSuccess && result != ncclInProgress;
  if (in_group() && failed && group().failed == ncclSuccess) group().failed = result;
  return result;
}

ncclResult_t note_cuda_call(ncclResult_t result) {
  if (in_group()) group().has_cuda_calls = true;
  return note_call(result);
}

Status join_group(const RealNccl& real) {
  if (group().depth == 0) return {};
  ++group().passed_on;
  if (group().real != nullptr) return {};
  if (const ncclResult_t result = real.GroupStart(); result != ncclSuccess)
    return error(static_cast<Code>(result), "the real ncclGroupStart: {}", real.GetErrorString(result));
  group().real = &real;
  return {};
}

ncclResult_t make_or_keep(std::vector<NewSide> sides) {
  if (in_group()) {
    std::ranges::move(sides, std::back_inserter(group().new_sides));
    return ncclSuccess;
  }
  return make_cuda_sides(std::move(sides));
}

ncclResult_t GroupStart() {
  const ncclResult_t result = from_native(epcclGroupStart());
  if (result == ncclSuccess) ++group().depth;
  return result;
}

ncclResult_t GroupEnd() {
  if (group().depth == 0) return refuse({Code::invalid_usage, "ncclGroupEnd without ncclGroupStart"});
  if (group().depth == 1) return end_both(std::exchange(group(), {}));
  --group().depth;
  return from_native(epcclGroupEnd());
}

// NCCL's struct is EPCCL's, with another magic. Where calls go to the real library too, they overlap.
ncclResult_t GroupSimulateEnd(ncclSimInfo_t* simInfo) {
  if (Status checked = check_sim_info(simInfo); !checked.ok()) return refuse_call(checked);
  if (!in_group()) return refuse({Code::invalid_usage, "ncclGroupSimulateEnd without ncclGroupStart"});
  const bool outermost = group().depth == 1;
  const RealNccl* const real = outermost ? group().real : nullptr;
  if (outermost && group().failed != ncclSuccess) spoil(real);
  const Status refused = group().refused;
  if (outermost)
    group() = {};
  else
    --group().depth;
  epcclSimInfo_t mine = EPCCL_SIM_INFO_INITIALIZER;
  const ncclResult_t result = from_native(epcclGroupSimulateEnd(&mine));
  ncclSimInfo_t its{sizeof its, nccl_sim_info_magic, nccl_version, nccl_undefined_float};
  if (real != nullptr) {
    if (Status has = check_has(*real, real->GroupSimulateEnd != nullptr, "ncclGroupSimulateEnd"); !has.ok())
      return refuse(has);
    if (const ncclResult_t theirs = from_real(real->GroupSimulateEnd(&its), nullptr); theirs != ncclSuccess)
      return theirs;
  }
  if (!refused.ok()) return refuse(refused);
  if (result == ncclSuccess && outermost && simInfo != nullptr && simInfo->size >= sizeof *simInfo)
    simInfo->estimatedTime = std::max(mine.estimatedTime, its.estimatedTime);
  return result;
}

}  // namespace epccl::nccl
