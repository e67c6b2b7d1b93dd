#include "runtime/comm/engine_reach.hpp"

#include "runtime/comm/mapping_trial.hpp"

namespace epccl::runtime {
namespace {

Status check_settings(const Communicator& communicator) {
  if (communicator.cluster().nodes() > 1)
    return error(Code::invalid_usage, "there are {} nodes", communicator.cluster().nodes());
  if (communicator.engine_use() == EngineUse::never)
    return {Code::invalid_usage, "the copy engine is never to be used"};
  return {};
}

}  // namespace

Result<EngineReach> find_engine_reach(Communicator& communicator, const Result<device::Device*>& mine) {
  const auto tell = [&communicator](const TrialWord& word, std::vector<TrialWord>& all) {
    all.assign(static_cast<size_t>(communicator.ranks()), TrialWord{});
    return communicator.tell_all(&word, sizeof word, reinterpret_cast<std::byte*>(all.data()),
                                 "whether copy engines reach all ranks");
  };
  Status settings = check_settings(communicator);
  EPCCL_ASSIGN(const std::string why_not,
               try_mapping(communicator.cluster(), communicator.rank(),
                           settings.ok() ? mine : Result<device::Device*>(std::move(settings)), tell));
  return EngineReach{why_not.empty(), why_not};
}

}  // namespace epccl::runtime
