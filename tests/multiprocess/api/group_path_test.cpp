// Which way the messages of a group take between nodes: neighbours carry them, or they go directly. Real ranks count both.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <optional>
#include <ostream>
#include <regex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "halves.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

/// The messages of one rank to another in a group, by their bytes. Every rank knows it.
using Flow = std::function<std::vector<size_t>(int from, int to)>;

Flow all_to_all(const std::vector<size_t>& messages) {
  return [messages](int, int) { return messages; };
}

Flow ring(int ranks) {
  return [ranks](int from, int to) { return std::vector<size_t>(to == (from + 1) % ranks ? 1 : 0, 100); };
}

Flow star() {
  return [](int from, int to) { return std::vector<size_t>((from == 0) != (to == 0) ? 1 : 0, 100); };
}

/// One rank's half of a flow.
class HalfOfFlow {
 public:
  HalfOfFlow(const RankContext& context, const Flow& flow, int group) : rank_(context.rank), group_(group) {
    for (int peer = 0; peer < context.ranks; ++peer) {
      add(true, peer, flow(rank_, peer));
      add(false, peer, flow(peer, rank_));
    }
  }
  void issue(epcclComm_t comm) {
    for (Message& each : messages_)
      EXPECT_EQ(each.is_send
                    ? epcclSend(each.data.data(), each.data.size(), epcclUint8, each.peer, comm, nullptr)
                    : epcclRecv(each.data.data(), each.data.size(), epcclUint8, each.peer, comm, nullptr),
                epcclSuccess)
          << epcclGetLastError(comm);
  }
  void check() const {
    for (const Message& each : messages_) {
      if (each.is_send) continue;
      EXPECT_TRUE(each.data == content(each.peer, rank_, each.data.size(), each.number))
          << "message " << each.number << " of rank " << each.peer << " to " << rank_;
    }
  }

 private:
  struct Message {
    bool is_send;
    int peer, number;
    std::vector<uint8_t> data;
  };
  std::vector<uint8_t> content(int from, int to, size_t bytes, int number) const {
    std::vector<uint8_t> data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = unique_byte(from, to, i, group_ * 10 + number);
    return data;
  }
  void add(bool is_send, int peer, const std::vector<size_t>& sizes) {
    int number = 0;
    for (const size_t bytes : sizes) {
      auto data = is_send ? content(rank_, peer, bytes, number) : std::vector<uint8_t>(bytes, poison);
      messages_.push_back({is_send, peer, number++, std::move(data)});
    }
  }

  const int rank_, group_;
  std::deque<Message> messages_;
};

/// What communicators say at their end of what was carried; all ranks in one file.
class Farewells {
 public:
  struct Farewell {
    uint64_t carried = 0, given_back = 0, by_lane = 0;
  };

  Farewells() { std::filesystem::remove(path_); }  // of a run that was killed
  ~Farewells() { std::filesystem::remove(path_); }
  std::vector<std::pair<std::string, std::string>> settings(const char* aggregate) const {
    return {{"EPCCL_NET", "tcp"},
            {"EPCCL_GROUP_AGGREGATE", aggregate},
            {"EPCCL_DEBUG", "INFO"},
            {"EPCCL_DEBUG_SUBSYS", "NET"},
            {"EPCCL_DEBUG_FILE", path_}};
  }
  /// None: the communicator cannot carry.
  std::optional<Farewell> of(int rank) const {
    const std::regex said("\\[" + std::to_string(rank) +
                          "\\] INFO NET comm .*: ([0-9]+) messages carried \\([0-9]+ parcels withdrawn, "
                          "([0-9]+) given back\\).* ([0-9]+) messages came by lane");
    std::ifstream file(path_);
    std::smatch found;
    for (std::string line; std::getline(file, line);)
      if (std::regex_search(line, found, said))
        return Farewell{std::stoull(found[1]), std::stoull(found[2]), std::stoull(found[3])};
    return std::nullopt;
  }

 private:
  const std::string path_ = testing::TempDir() + "group_path." + std::to_string(getpid()) + ".log";
};

/// Adds up numbers of all ranks without the library's help. Made before they are forked.
class SumOfRanks {
 public:
  SumOfRanks() {
    void* memory = mmap(nullptr, sizeof(Sums), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory for sums");
    sums_ = new (memory) Sums{};
  }
  SumOfRanks(const SumOfRanks&) = delete;
  SumOfRanks& operator=(const SumOfRanks&) = delete;
  ~SumOfRanks() { munmap(sums_, sizeof(Sums)); }

  /// Returns when all ranks have come. `turn`: less than `turns`, and each but once.
  uint64_t of(const RankContext& context, size_t turn, uint64_t mine) const {
    (*sums_)[turn] += mine;
    context.meet();
    return (*sums_)[turn];
  }
  static constexpr size_t turns = 2000;

 private:
  using Sums = std::array<std::atomic<uint64_t>, turns>;
  Sums* sums_ = nullptr;
};

/// A rank that runs groups, and counts its messages to and from other nodes.
class CountingRank {
 public:
  CountingRank(const RankContext& context, int ranks_per_node)
      : context_(context), ranks_per_node_(ranks_per_node) {}

  struct Sent {
    uint64_t all, directly;
  };
  /// One group.
  Sent run(const Flow& flow) {
    Sent sent{};
    uint64_t bytes = 0;
    for (int peer = 0; peer < context_.ranks; ++peer) {
      if (peer / ranks_per_node_ == context_.rank / ranks_per_node_) continue;
      const std::vector<size_t> messages = flow(context_.rank, peer);
      sent.all += messages.size();
      for (const size_t each : messages) bytes += each;
      expected_ += flow(peer, context_.rank).size();
    }
    const epcclStatistics_t before = statistics();
    HalfOfFlow half(context_, flow, groups_++);
    run_as_group(half, *comm_);
    const epcclStatistics_t after = statistics();
    EXPECT_EQ(after.messagesSent - before.messagesSent, sent.all) << "whichever way they went";
    EXPECT_EQ(after.bytesSent - before.bytesSent, bytes) << "whichever way they went";
    const uint64_t carried = after.messagesCarried - before.messagesCarried;
    sent.directly = sent.all - carried;
    carried_ += carried;
    return sent;
  }
  /// Ends the communicator, and compares what it says with what was counted. Returns it.
  Farewells::Farewell end(const Farewells& farewells, bool can_carry) {
    EXPECT_EQ(statistics().messagesReceived, expected_) << "whichever way they came";
    comm_.reset();
    const auto said = farewells.of(context_.rank);
    EXPECT_EQ(said.has_value(), can_carry);
    if (!said) return {};
    EXPECT_EQ(said->carried, carried_);
    EXPECT_EQ(said->given_back, 0U) << "no socket was full";
    return *said;
  }

 private:
  epcclStatistics_t statistics() const {
    epcclStatistics_t statistics = EPCCL_STATISTICS_INITIALIZER;
    EXPECT_EQ(epcclCommGetStatistics(*comm_, &statistics), epcclSuccess) << epcclGetLastError(*comm_);
    return statistics;
  }

  const RankContext context_;
  const int ranks_per_node_;
  std::optional<Comm> comm_{std::in_place, context_};
  int groups_ = 0;
  uint64_t carried_ = 0, expected_ = 0;  // messages to other nodes, and from them
};

struct Route {
  const char* name;
  int nodes, ranks_per_node;
  const char* aggregate;
  std::vector<size_t> messages;  // of each rank to each other; the small ones first
  size_t carried;                // of them

  std::vector<int> shape() const { return std::vector<int>(static_cast<size_t>(nodes), ranks_per_node); }
};
std::ostream& operator<<(std::ostream& out, const Route& route) {
  return out << route.name;
}
std::string name_of_route(const testing::TestParamInfo<Route>& info) {
  return info.param.name;
}

class CarriedGroups : public testing::TestWithParam<Route> {
 protected:
  bool always() const { return GetParam().aggregate == std::string("1"); }

  /// Repeats the alltoall until all that may be carried is, of all ranks in one group: on a busy machine neighbours are late in some. With
  /// `auto`, which gives up neighbours that were late, until each rank has had some of it carried. False: that never came.
  bool comes_to_be_carried(CountingRank& self, const RankContext& context, size_t& turn) const {
    const Route& route = GetParam();
    const auto others = static_cast<uint64_t>(context.ranks - route.ranks_per_node);
    const uint64_t too_large = others * (route.messages.size() - route.carried);
    uint64_t carried = 0;
    for (int attempt = 0; attempt < 500; ++attempt) {
      const auto sent = self.run(all_to_all(route.messages));
      EXPECT_GE(sent.directly, too_large);
      carried += sent.all - sent.directly;
      const uint64_t missing = always() ? sent.directly - too_large : carried == 0;
      if (sums_.of(context, turn++, missing) == 0) return true;
    }
    return false;
  }

  const Farewells farewells_;
  const SumOfRanks sums_;
};

TEST_P(CarriedGroups, ThatAreAnAlltoallComeByNeighboursBeforeAndAfterAStarAndARing) {
  const Route& route = GetParam();
  run_ranks({route.shape(), farewells_.settings(route.aggregate), {}}, [&](const RankContext& context) {
    CountingRank self(context, route.ranks_per_node);
    size_t turn = 0;
    EXPECT_TRUE(comes_to_be_carried(self, context, turn));
    for (int repeat = 0; repeat < 3; ++repeat) {
      self.run(star());
      const auto sent = self.run(ring(context.ranks));
      if (!always()) {
        EXPECT_EQ(sent.directly, sent.all) << "one message to one node is not worth it";
      }
    }
    EXPECT_TRUE(comes_to_be_carried(self, context, turn));
    const auto said = self.end(farewells_, true);
    const uint64_t all_carried = sums_.of(context, turn++, said.carried);
    EXPECT_EQ(sums_.of(context, turn++, said.by_lane), all_carried);
  });
}

INSTANTIATE_TEST_SUITE_P(Routes, CarriedGroups,
                         testing::Values(Route{"AlwaysOn2x4", 2, 4, "1", {8 << 10}, 1},
                                         Route{"AlwaysOn3x2", 3, 2, "1", {8 << 10, 100}, 2},
                                         Route{"WhereItPaysOn2x4", 2, 4, "auto", {4 << 10}, 1},
                                         Route{"WhereItPaysOn3x2", 3, 2, "auto", {100, 0}, 2},
                                         Route{"BesideLargeOnesOn2x4", 2, 4, "auto", {100, 20'000}, 1},
                                         Route{
                                             "BesideOnesNotWorthItOn2x4", 2, 4, "auto", {100, 12 << 10}, 1}),
                         name_of_route);

class DirectGroups : public testing::TestWithParam<Route> {
 protected:
  const Farewells farewells_;
};

TEST_P(DirectGroups, HaveNothingCarried) {
  const Route& route = GetParam();
  run_ranks({route.shape(), farewells_.settings(route.aggregate), {}}, [&](const RankContext& context) {
    CountingRank self(context, route.ranks_per_node);
    for (int group = 0; group < 12; ++group) {
      const auto sent = self.run(all_to_all(route.messages));
      EXPECT_EQ(sent.directly, sent.all);
    }
    const bool can_carry = route.aggregate != std::string("0") && route.ranks_per_node > 1;
    const auto said = self.end(farewells_, can_carry);
    EXPECT_EQ(said.carried, 0U);
    EXPECT_EQ(said.by_lane, 0U);
  });
}

INSTANTIATE_TEST_SUITE_P(Routes, DirectGroups,
                         testing::Values(Route{"ThatAreSwitchedOff", 2, 4, "0", {100}, 0},
                                         Route{"OfMessagesThatAreTooLarge", 2, 4, "1", {20'000}, 0},
                                         Route{"OfMessagesThatAreNotWorthIt", 3, 2, "auto", {8 << 10}, 0},
                                         Route{"OfNodesWithoutNeighbours", 3, 1, "1", {100}, 0}),
                         name_of_route);

}  // namespace
}  // namespace epccl::tests
