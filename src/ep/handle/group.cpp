#include "ep/handle/group.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>

namespace epccl::ep {
namespace {

std::string describe(const GroupOptions& options) {
  return fmt::format(
      "num_experts {}, max_send_tokens_per_rank {}, max_token_bytes {}, strategy {}, timeout_ms {}, experts "
      "on ranks [{}]",
      options.experts, options.max_tokens, options.max_token_bytes,
      options.strategy ? algorithms::to_string(*options.strategy) : "auto", options.timeout_ms,
      fmt::join(options.expert_to_rank, " "));
}

// Every rank tells all others its options, so that every rank finds the same difference.
Status compare(runtime::Communicator& communicator, const std::string& mine, Status& agreed) {
  const auto ranks = static_cast<size_t>(communicator.ranks());
  std::vector<std::byte> received;
  std::vector<uint64_t> offsets;
  EPCCL_TRY(communicator.alltoallv_unknown("ep group options", mine.data(),
                                           std::vector<uint64_t>(ranks, mine.size()),
                                           std::vector<uint64_t>(ranks), received, offsets));
  const auto text = [&](size_t rank) {
    return std::string(reinterpret_cast<const char*>(received.data()) + offsets[rank],
                       offsets[rank + 1] - offsets[rank]);
  };
  for (size_t rank = 1; rank < ranks; ++rank)
    if (agreed.ok() && text(rank) != text(0))
      agreed = error(Code::invalid_usage, "ranks disagree on an EP group: rank 0 has {}; rank {} has {}",
                     text(0), rank, text(rank));
  return {};
}

Status check(const GroupOptions& options, int ranks) {
  if (options.max_tokens == 0 || options.max_tokens > max_tokens)
    return error(Code::invalid_argument, "max_send_tokens_per_rank {} is not between 1 and {}",
                 options.max_tokens, max_tokens);
  if (options.max_token_bytes == 0 || options.max_token_bytes > most_token_bytes)
    return error(Code::invalid_argument, "max_token_bytes {} is not between 1 and {}",
                 options.max_token_bytes, most_token_bytes);
  if (uint64_t{options.max_tokens} * static_cast<uint64_t>(ranks) > UINT32_MAX / max_topk)
    return error(Code::invalid_argument, "max_send_tokens_per_rank {} is too large for {} ranks",
                 options.max_tokens, ranks);
  return {};
}

}  // namespace

Result<std::optional<Strategy>> parse_strategy(const std::string& text) {
  if (text == "auto") return std::optional<Strategy>{};
  for (const Strategy strategy : strategies)
    if (text == algorithms::to_string(strategy)) return std::optional(strategy);
  return error(Code::invalid_argument, "EPCCL_EP_STRATEGY=\"{}\" is unknown: auto, flat, gather or dedup",
               text);
}

Result<std::shared_ptr<Group>> Group::create(runtime::Communicator& communicator, const GroupOptions& options,
                                             Status& agreed) {
  EPCCL_TRY(compare(communicator, describe(options), agreed));
  if (agreed.ok()) agreed = check(options, communicator.ranks());
  if (!agreed.ok()) return std::shared_ptr<Group>();
  auto experts = ExpertMap::make(communicator.cluster(), options.experts, options.expert_to_rank);
  if (!experts.ok()) {
    agreed = std::move(experts).take_status();
    return std::shared_ptr<Group>();
  }
  return std::shared_ptr<Group>(new Group(communicator, options, std::move(experts).value()));
}

}  // namespace epccl::ep
