// Allgather, barrier, publish and lookup.
#include <atomic>

#include "ranks.hpp"

namespace epccl::test {
namespace {

Blob random_blob(std::mt19937_64& random, size_t most) {
  Blob blob(std::uniform_int_distribution<size_t>(0, most)(random));
  for (std::byte& each : blob) each = static_cast<std::byte>(random());
  return blob;
}

TEST(Allgather, GivesEveryRanksBlobInRankOrder) {
  auto random = seeded_random();
  for (const int ranks : {1, 2, 5, 16}) {
    auto lines = join_all(fresh_id(), ranks);
    for (const size_t most : {size_t{0}, size_t{1}, size_t{100}, size_t{300'000}}) {
      std::vector<Blob> blobs;
      for (int rank = 0; rank < ranks; ++rank) blobs.push_back(random_blob(random, most));
      on_ranks(ranks, [&](int rank) {
        const auto all = lines[static_cast<size_t>(rank)]->allgather(blobs[static_cast<size_t>(rank)]);
        ASSERT_TRUE(all.ok()) << all.status().message();
        EXPECT_EQ(*all, blobs);
      });
    }
  }
}

TEST(Allgather, TooLargeABlobIsAnErrorOnThatRankOnly) {
  auto lines = join_all(fresh_id(), 1);
  const auto all = lines[0]->allgather(Blob(size_t{65} << 20));
  ASSERT_FALSE(all.ok());
  EXPECT_EQ(all.status().code(), Code::invalid_argument);
  EXPECT_TRUE(lines[0]->barrier().ok());
}

TEST(Barrier, NobodyPassesBeforeAllHaveCome) {
  constexpr int ranks = 6;
  auto lines = join_all(fresh_id(), ranks);
  std::atomic<int> come = 0;
  for (int round = 1; round <= 20; ++round) {
    on_ranks(ranks, [&](int rank) {
      ++come;
      ASSERT_TRUE(lines[static_cast<size_t>(rank)]->barrier().ok());
      EXPECT_GE(come, ranks * round);
    });
  }
}

TEST(Exchange, RanksInDifferentCallsAreToldWhoIsWhere) {
  auto lines = join_all(fresh_id(), 2);
  std::atomic<int> told = 0;
  on_ranks(2, [&](int rank) {
    const Status status = rank == 0 ? lines[0]->barrier() : lines[1]->allgather(Blob(3)).status();
    EXPECT_CONTAINS(status.message(), "ranks disagree");
    EXPECT_CONTAINS(status.message(), "in barrier #1");
    EXPECT_CONTAINS(status.message(), "in allgather #1");
    ++told;
  });
  EXPECT_EQ(told, 2);
}

TEST(Exchange, SilentRankIsNamedAfterTheTimeout) {
  const UniqueId id = fresh_id();
  std::vector<std::unique_ptr<Bootstrap>> lines(3);
  on_ranks(3, [&](int rank) { lines[static_cast<size_t>(rank)] = Bootstrap::join(id, rank, 3, 10).value(); });
  on_ranks(2, [&](int rank) {
    const Status status = lines[static_cast<size_t>(rank)]->barrier();
    EXPECT_CONTAINS(status.message(), "barrier #1 incomplete after 10 s; missing ranks: 2");
    EXPECT_EQ(status.reason(), Reason::timeout);
  });
}

TEST(Lookup, FindsWhatWasPublished) {
  auto lines = join_all(fresh_id(), 3);
  ASSERT_TRUE(lines[0]->publish("ucx", to_blob("address of 0")).ok());
  ASSERT_TRUE(lines[0]->publish("shm", to_blob("")).ok());
  on_ranks(3, [&](int rank) {
    const auto found = lines[static_cast<size_t>(rank)]->lookup(0, "ucx");
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(to_text(*found), "address of 0");
    EXPECT_EQ(lines[static_cast<size_t>(rank)]->lookup(0, "shm")->size(), 0u);
  });
}

TEST(Lookup, WaitsForWhatIsNotYetPublished) {
  auto lines = join_all(fresh_id(), 2);
  std::jthread late([&] {
    usleep(200'000);
    EXPECT_TRUE(lines[1]->publish("late", to_blob("here")).ok());
  });
  const auto found = lines[0]->lookup(1, "late");
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(to_text(*found), "here");
}

TEST(Lookup, OfWhatIsNeverPublishedIsATimeout) {
  const UniqueId id = fresh_id();
  std::vector<std::unique_ptr<Bootstrap>> lines(2);
  on_ranks(2, [&](int rank) { lines[static_cast<size_t>(rank)] = Bootstrap::join(id, rank, 2, 5).value(); });
  const Status status = lines[0]->lookup(1, "timeout: a key").status();
  EXPECT_CONTAINS(status.message(), "rank 1 published no \"timeout: a key\" within 5 s");
  EXPECT_EQ(status.reason(), Reason::timeout);
  lines[1].reset();
  ASSERT_TRUE(wait_for_notice(*lines[0]));
  EXPECT_EQ(lines[0]->lookup(1, "timeout: a key").status().reason(), Reason::none) << "it died";
}

TEST(Lookup, PublishedBlobOutlivesItsRank) {
  auto lines = join_all(fresh_id(), 2);
  ASSERT_TRUE(lines[1]->publish("key", to_blob("kept")).ok());
  lines[1]->leave(Bootstrap::any_call);
  EXPECT_EQ(to_text(*lines[0]->lookup(1, "key")), "kept");
}

TEST(Lookup, RankThatLeftWithoutPublishingIsAnError) {
  auto lines = join_all(fresh_id(), 2);
  std::jthread leaving([&] {
    usleep(100'000);
    lines[1]->leave(Bootstrap::any_call);
  });
  const auto found = lines[0]->lookup(1, "never");
  ASSERT_FALSE(found.ok());
  EXPECT_CONTAINS(found.status().message(), "left without publishing \"never\"");
  EXPECT_EQ(lines[0]->poll_notice(), std::nullopt) << "it is no failure of the communicator";
}

}  // namespace
}  // namespace epccl::test
