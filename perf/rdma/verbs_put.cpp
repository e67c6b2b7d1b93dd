#include <array>
#include <cstdlib>
#include <vector>

#include "perf/rdma/put_signal.hpp"
#include "transports/verbs/memory.hpp"
#include "transports/verbs/queue_pair.hpp"

namespace epccl::perf::rdma {
namespace {

using namespace transports::verbs;

class VerbsPuts : public PutPair {
 public:
  Status open(size_t largest) {
    EPCCL_ASSIGN(const Library* const library, Library::get());
    for (size_t i = 0; i < ends_.size(); ++i) EPCCL_TRY(open(*library, largest, ends_[i]));
    for (size_t i = 0; i < ends_.size(); ++i) EPCCL_TRY(ends_[i].pair->connect(ends_[1 - i].pair->end()));
    return {};
  }

  Status put(int source, size_t bytes) override {
    Side& from = ends_[static_cast<size_t>(source)];
    Side& to = ends_[static_cast<size_t>(1 - source)];
    WorkRequest request;
    request.kind = WorkRequest::Kind::signal;
    request.data = from.memory.data();
    request.bytes = static_cast<uint32_t>(bytes);
    request.local_key = from.region->local_key(0);
    request.remote = reinterpret_cast<uint64_t>(to.memory.data());
    request.remote_key = to.region->remote_key(0);
    request.signal = ++number_;
    EPCCL_TRY(from.pair->submit(request));
    while (to.seen != number_) {
      EPCCL_TRY(look(to));
      EPCCL_TRY(look(from));
    }
    return {};
  }

  std::span<std::byte> memory(int end) override { return ends_[static_cast<size_t>(end)].memory; }

 private:
  struct Side {
    std::vector<std::byte> memory;
    std::vector<std::unique_ptr<Rail>> rails;  // one
    std::shared_ptr<const Region> region;
    std::unique_ptr<QueuePair> pair;  // before its rail goes
    uint32_t seen = 0;
  };

  Status open(const Library& library, size_t largest, Side& side) {
    PortChoice choice;
    choice.most = 1;
    if (const char* const devices = std::getenv("EPCCL_VERBS_DEVICES")) choice.devices = devices;
    EPCCL_ASSIGN(std::vector<OpenPort> ports, open_ports(library, choice));
    EPCCL_ASSIGN(auto rail, Rail::open(library, std::move(ports.front()), RailOptions{}));
    side.rails.push_back(std::move(rail));
    side.memory.resize(largest);
    EPCCL_ASSIGN(side.region,
                 Region::create(side.rails, reinterpret_cast<uintptr_t>(side.memory.data()), largest, true));
    EPCCL_ASSIGN(side.pair, QueuePair::create(*side.rails.front(), 0, 0, 0, counters_));
    return {};
  }

  Status look(Side& side) {
    Rail& rail = *side.rails.front();
    std::array<ibv_wc, 16> completions{};
    const int found = rail.poll(completions);
    for (int i = 0; i < found; ++i) {
      const ibv_wc& completion = completions[static_cast<size_t>(i)];
      if (completion.status != IBV_WC_SUCCESS)
        return error(Code::remote_error, "a put failed: status {}", static_cast<int>(completion.status));
      if ((completion.wr_id & received_mark) == 0) {
        side.pair->acknowledged([](const WorkRequest&) {});
        continue;
      }
      side.seen = be32toh(completion.imm_data);
      rail.give_back(static_cast<uint32_t>(completion.wr_id));
      EPCCL_TRY(rail.repost_if_many());
    }
    return {};
  }

  WorkCounters counters_;
  std::array<Side, 2> ends_;
  uint32_t number_ = 0;
};

}  // namespace

Result<std::unique_ptr<PutPair>> verbs_put_pair(size_t largest) {
  auto pair = std::make_unique<VerbsPuts>();
  EPCCL_TRY(pair->open(largest));
  return std::unique_ptr<PutPair>(std::move(pair));
}

}  // namespace epccl::perf::rdma
