// Layout messages as other ranks may send them: damaged ones are refused, whatever is wrong.
#include "ep/routing/layout_message.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "ep/layout/layout.hpp"
#include "ep/routing/source_header.hpp"
#include "shapes.hpp"

namespace epccl::ep {
namespace {

using topology::Cluster;
using Words = std::vector<uint32_t>;

constexpr uint32_t tokens = 5, k = 2, experts_count = 8;
constexpr size_t header_words = sizeof(SourceHeader) / sizeof(uint32_t);

/// 2 nodes x 2 ranks with 2 experts each. Rank 0 tells rank 2, which relays for it, and rank 3, which does not.
struct Setting {
  Cluster cluster = Cluster::uniform(2, 2);
  ExpertMap experts = ExpertMap::make(cluster, experts_count, {}).value();
  std::vector<int64_t> table{4, 7, 0, 1, 5, -1, 6, 6, 4, 5};

  std::vector<Words> messages(int source = 0) const {
    const Routing routing(cluster, experts, {table.data(), true, tokens, k});
    SourceHeader header;
    header.tokens = tokens;
    header.k = k;
    describe_source(cluster, source, routing, {10, 1 << 17, 1 << 23}, header);
    const SourceMessages all = make_messages(cluster, source, header, routing);
    std::vector<Words> each;
    for (size_t rank = 0; rank + 1 < all.begin.size(); ++rank)
      each.emplace_back(all.words.begin() + static_cast<ptrdiff_t>(all.begin[rank]),
                        all.words.begin() + static_cast<ptrdiff_t>(all.begin[rank + 1]));
    return each;
  }
  Result<SourceLayout> read(int receiver, const Words& words) const {
    return read_message(cluster, experts, {tokens}, 0, receiver, words);
  }
  std::string refusal(int receiver, const Words& words) const {
    const auto read_so = read(receiver, words);
    return read_so.ok() ? "" : read_so.status().message();
  }
};

void expect_refused(const std::string& refusal, const std::string& what) {
  EXPECT_NE(refusal.find("the layout message of rank 0 is damaged: " + what), std::string::npos)
      << what << "; but: " << refusal;
}

// Behind the header of the relay's: tokens a rank [3 2], entries an expert [2 2 2 1], tokens of the node [0 2 3 4], then
// entries and tokens of rank 2 [4 words, 3 words], and of rank 3 [3 words, 2 words].
constexpr size_t rank_tokens = header_words, expert_entries = rank_tokens + 2,
                 node_tokens = expert_entries + 4, entries = node_tokens + 4, rank_list = entries + 4;

TEST(LayoutMessage, IsReadAsItWasWritten) {
  const Setting setting;
  const auto messages = setting.messages();
  ASSERT_EQ(messages[2].size(), rank_list + 3 + 3 + 2);
  const SourceLayout relayed = setting.read(2, messages[2]).value();
  EXPECT_TRUE(std::ranges::equal(relayed.node_tokens, Words{0, 2, 3, 4}));
  ASSERT_EQ(relayed.rows.size(), 2U);
  EXPECT_TRUE(std::ranges::equal(relayed.rows[0].tokens, Words{0, 2, 4}));
  EXPECT_TRUE(std::ranges::equal(relayed.rows[1].tokens, Words{0, 3}));
  const SourceLayout own = setting.read(3, messages[3]).value();
  ASSERT_EQ(own.rows.size(), 1U);
  EXPECT_TRUE(std::ranges::equal(own.rows[0].entries, relayed.rows[1].entries));
}

TEST(LayoutMessage, IsRefusedAtAnyOtherLength) {
  const Setting setting;
  const auto messages = setting.messages();
  for (const int receiver : {2, 3}) {
    Words words = messages[static_cast<size_t>(receiver)];
    words.push_back(0);
    expect_refused(setting.refusal(receiver, words), "it is longer than it says");
    words.pop_back();
    while (!words.empty()) {
      words.pop_back();
      expect_refused(setting.refusal(receiver, words), "it is cut short");
    }
  }
}

void set_header(Words& words, void (*change)(SourceHeader&)) {
  SourceHeader header;
  std::memcpy(static_cast<void*>(&header), words.data(), sizeof header);
  change(header);
  std::memcpy(words.data(), &header, sizeof header);
}

TEST(LayoutMessage, IsRefusedIfItsHeaderIsBeyondWhatTheGroupAllows) {
  const Setting setting;
  const auto refuse = [&](void (*change)(SourceHeader&), const std::string& what) {
    for (const int receiver : {2, 3}) {
      Words words = setting.messages()[static_cast<size_t>(receiver)];
      set_header(words, change);
      expect_refused(setting.refusal(receiver, words), what);
    }
  };
  refuse([](SourceHeader& header) { header.tokens = tokens + 1; },
         "it has 6 tokens, where at most 5 are allowed");
  refuse([](SourceHeader& header) { header.tokens = UINT32_MAX; }, "it has 4294967295 tokens");
  refuse([](SourceHeader& header) { header.k = max_topk + 1; }, "it has 65 experts a token");
  refuse([](SourceHeader& header) { header.block_tokens[2] = tokens + 1; }, "it has blocks of 6 tokens");
  refuse([](SourceHeader& header) { header.turn_blocks[0] = 0; }, "it has blocks of");
}

TEST(LayoutMessage, IsRefusedIfItCountsMoreThanItsTokens) {
  const Setting setting;
  for (const int receiver : {2, 3}) {
    const Words good = setting.messages()[static_cast<size_t>(receiver)];
    Words words = good;
    words[rank_tokens + (receiver == 2 ? 1 : 0)] = tokens + 1;  // of the node's other rank
    expect_refused(setting.refusal(receiver, words), "6 of its 5 tokens go to one rank");
    words = good;
    words[expert_entries + (receiver == 2 ? 2 : 0)] = UINT32_MAX;
    expect_refused(setting.refusal(receiver, words), "it has 4294967300 entries, of 5 tokens");
  }
}

TEST(LayoutMessage, IsRefusedIfTokensDoNotAscendOrAreTooLarge) {
  const Setting setting;
  const Words good = setting.messages()[2];
  for (const size_t list : {node_tokens, rank_list})
    for (const uint32_t bad : {1U << 31, UINT32_MAX, tokens})
      for (const size_t at : {0U, 1U, 2U}) {
        Words words = good;
        words[list + at] = bad;
        expect_refused(setting.refusal(2, words), "tokens do not ascend");
        words[list + at] = words[list + (at == 0 ? 1 : at - 1)];
        expect_refused(setting.refusal(2, words), "tokens do not ascend");
      }
}

TEST(LayoutMessage, IsRefusedIfEntriesNameNoExpertOrNoPosition) {
  const Setting setting;
  const Words good = setting.messages()[2];
  for (const Entry bad : {Entry::of(2, 0, false), Entry::of(0, k, false), Entry::of(0, 63, false),
                          Entry::of(1U << 24, 0, false), Entry{UINT32_MAX - 1}, Entry::of(0, 0, true)}) {
    Words words = good;
    words[entries + 3] = bad.word;  // not the first of its token
    expect_refused(setting.refusal(2, words), "entries name no expert");
  }
  Words words = good;
  std::swap(words[entries + 2], words[entries + 3]);
  EXPECT_TRUE(setting.read(2, words).ok()) << "another order of one token's entries";
  words = good;
  words[entries] &= ~1U;  // the first entry of all belongs to no token
  words[entries + 3] |= 1;
  expect_refused(setting.refusal(2, words), "entries name no expert");
}

TEST(LayoutMessage, IsRefusedByTheRelayIfARanksTokenIsNotAmongThoseOfTheNode) {
  const Setting setting;
  for (const SlotLayout layout : {SlotLayout::flat, SlotLayout::expert_major}) {
    for (const bool damaged : {false, true}) {
      std::vector<Words> told;
      for (int source = 0; source < 4; ++source) told.push_back(setting.messages(source)[2]);
      if (damaged) told[0][rank_list + 1] = 1;  // token 1 stays at home
      std::vector<SourceLayout> sources;
      for (int source = 0; source < 4; ++source)
        sources.push_back(read_message(setting.cluster, setting.experts, {tokens}, source, 2,
                                       told[static_cast<size_t>(source)])
                              .value());
      const NodeSlots slots(setting.cluster, setting.experts, 1, {layout, tokens, 1, 0, false, 0}, sources);
      const Routing own(setting.cluster, setting.experts, {setting.table.data(), true, tokens, k});
      const auto exchange =
          make_exchange({setting.cluster, setting.experts, 2, Strategy::dedup, own, slots, sources});
      EXPECT_EQ(exchange.ok(), !damaged);
      if (damaged)
        expect_refused(exchange.status().message(), "a token for a rank is not among those for its node");
    }
  }
}

}  // namespace
}  // namespace epccl::ep
