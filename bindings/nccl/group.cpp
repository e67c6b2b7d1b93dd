#include "group.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/log.hpp"
#include "base/threads_own.hpp"
#include "config.hpp"
#include "convert.hpp"
#include "entry_points.hpp"
#include "last_error.hpp"

namespace epccl::nccl {
namespace {

struct LateCall {
  Late late;
  std::function<ncclResult_t()> call;
};

struct Group {
  int depth = 0;
  const RealNccl* real = nullptr;  // whose group is open too
  size_t passed_on = 0;            // calls in that
  Status refused;                  // the first failed call's
  bool has_cuda_calls = false;     // EPCCL's, on CUDA memory
  std::vector<NewSide> new_sides;
  std::vector<ncclComm_t> joining;
  std::vector<LateCall> late_calls;
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
  return threads_own<OfThread>().group;
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
    if (real != nullptr && !is_over) result = from_real(real->GroupEnd());
    is_over = true;
  }
};

// Both groups' calls are one group's: they begin together and neither waits for the other's. So EPCCL's on CUDA memory are under way
// before the real library's are launched (which may wait for other ranks, when it connects), and streams are held for them after.
epcclResult_t end_beside_each_other(RealEnd& real) {
  const epcclResult_t native =
      epcclGroupEndBeside([](void* its) { static_cast<RealEnd*>(its)->end(); }, &real);
  if (real.is_over) return native;
  spoil_real(real.real);  // EPCCL's group does nothing, and has said why
  real.end();
  real.result = ncclSuccess;
  return native;
}

// The outermost end. Who ends first must not wait for the other: the real library's calls go on by themselves, and EPCCL's on host
// memory may be waited for here.
ncclResult_t end_calls(const Group& mine) {
  if (!mine.refused.ok()) spoil(mine.real);
  RealEnd real{mine.real};
  if (!mine.has_cuda_calls) real.end();
  const epcclResult_t native = mine.has_cuda_calls ? end_beside_each_other(real) : epcclGroupEnd();
  // Both have failed then, and neither by itself.
  if (!mine.refused.ok())
    return refuse(Status(mine.refused).with_context("a call of this group was refused"));
  return is_failure(real.result) ? real.result : worse(from_native(native), real.result);
}

ncclResult_t make_late_calls(const std::vector<LateCall>& calls, bool group_ran) {
  ncclResult_t result = ncclSuccess;
  const RealNccl* const real = opened_real_nccl();
  bool grouped = false;
  for (const LateCall& each : calls) {
    if (each.late < Late::always && !group_ran) continue;
    if (each.late != Late::if_group_ran && !grouped && real != nullptr)
      grouped = real->GroupStart() == ncclSuccess;
    result = worse(result, each.call());
  }
  return grouped ? worse(result, from_real(real->GroupEnd())) : result;
}

// Those that can be made before all else, taken out.
std::vector<LateCall> take_aborts(Group& mine) {
  if (mine.real != nullptr) return {};
  const auto others = std::ranges::stable_partition(
      mine.late_calls, [](const LateCall& each) { return each.late != Late::abort; });
  std::vector<LateCall> aborts(std::move_iterator(others.begin()), std::move_iterator(others.end()));
  mine.late_calls.erase(others.begin(), others.end());
  return aborts;
}

// Of who failed, the text is told, too.
ncclResult_t end_both(Group mine) {
  const ncclResult_t aborted = make_late_calls(take_aborts(mine), false);
  SidesOfGroup sides(mine.refused.ok() ? std::move(mine.new_sides) : std::vector<NewSide>{},
                     mine.real == nullptr);
  ncclResult_t result = end_calls(mine);
  const bool ran = !is_failure(result);
  std::ranges::stable_sort(mine.late_calls, {}, &LateCall::late);
  if (!ran) {
    Status failure{static_cast<Code>(result), GetLastError(nullptr)};
    (void)sides.finish(false);
    (void)make_late_calls(mine.late_calls, false);
    return refuse(failure);
  }
  result = worse(result, sides.finish(true));
  return worse(worse(result, aborted), make_late_calls(mine.late_calls, true));
}

}  // namespace

bool in_group() {
  return group().depth > 0;
}

ncclResult_t refuse_call(const Status& status) {
  if (in_group() && group().refused.ok()) group().refused = status;
  return refuse(status);
}

ncclResult_t note_call(ncclResult_t result) {
  if (in_group() && is_failure(result) && group().refused.ok())
    group().refused = Status(static_cast<Code>(result), GetLastError(nullptr));
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

void note_joining(ncclComm_t comm) {
  if (in_group()) group().joining.push_back(comm);
}

bool joins_at_end(ncclComm_t comm) {
  return in_group() && std::ranges::find(group().joining, comm) != group().joining.end();
}

ncclResult_t now_or_at_end(Late late, std::function<ncclResult_t()> call) {
  if (!in_group()) return call();
  group().late_calls.push_back({late, std::move(call)});
  return ncclSuccess;
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

namespace {

// The group is closed in any case. (Who refused it then, a real library that cannot simulate among them, has spoiled it.)
ncclResult_t simulate_end(const Group& mine, float& estimated_time) {
  if (!mine.refused.ok()) spoil(mine.real);
  epcclSimInfo_t here = EPCCL_SIM_INFO_INITIALIZER;
  ncclSimInfo_t there{sizeof there, nccl_sim_info_magic, nccl_version, nccl_undefined_float};
  ncclResult_t real = ncclSuccess;
  if (mine.real != nullptr && mine.real->GroupSimulateEnd != nullptr) {
    real = from_real(mine.real->GroupSimulateEnd(&there));
  } else if (mine.real != nullptr) {
    (void)mine.real->GroupEnd();
  }
  const epcclResult_t native = epcclGroupSimulateEnd(&here);
  if (!mine.refused.ok())
    return refuse(Status(mine.refused).with_context("a call of this group was refused"));
  estimated_time = std::max(here.estimatedTime, there.estimatedTime);
  return is_failure(real) ? real : from_native(native);
}

}  // namespace

// NCCL's struct is EPCCL's, with another magic. Where calls go to the real library too, they overlap.
ncclResult_t GroupSimulateEnd(ncclSimInfo_t* simInfo) {
  if (!in_group()) return refuse({Code::invalid_usage, "ncclGroupSimulateEnd without ncclGroupStart"});
  if (group().depth > 1) {
    --group().depth;
    epcclSimInfo_t unused = EPCCL_SIM_INFO_INITIALIZER;
    return from_native(epcclGroupSimulateEnd(&unused));
  }
  if (const Status checked = check_sim_info(simInfo); !checked.ok()) (void)refuse_call(checked);
  if (const RealNccl* const real = group().real; real != nullptr)
    if (const Status has = check_has(*real, real->GroupSimulateEnd != nullptr, "ncclGroupSimulateEnd");
        !has.ok())
      (void)refuse_call(has);
  const Group mine = std::exchange(group(), {});
  float estimated_time = nccl_undefined_float;
  const ncclResult_t result = simulate_end(mine, estimated_time);
  (void)make_late_calls(mine.late_calls, false);
  if (result == ncclSuccess && simInfo != nullptr && simInfo->size >= sizeof *simInfo)
    simInfo->estimatedTime = estimated_time;
  return result;
}

}  // namespace epccl::nccl
