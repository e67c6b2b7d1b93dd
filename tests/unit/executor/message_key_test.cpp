#include "runtime/executor/message_key.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/executor/node_calls.hpp"

namespace epccl::runtime {
namespace {

// Those of one count move as many bytes where their datatypes have one size, or only their operations differ.
std::vector<std::string> texts_of(int count) {
  std::vector<std::string> texts;
  for (const char* datatype :
       {"int32", "uint32", "float32", "int64", "uint64", "float64", "float16", "bfloat16"})
    for (const char* operation : {"sum", "prod", "max", "min", "avg"})
      texts.push_back(fmt::format("reduce_scatter count {} {} {}", count, datatype, operation));
  return texts;
}

TEST(MeaningOf, TellsCallsApartThatMoveAsManyBytes) {
  unsigned pairs = 0, alike = 0;
  for (int count = 1; count <= 64; ++count) {
    const std::vector<std::string> texts = texts_of(count);
    for (size_t a = 0; a < texts.size(); ++a)
      for (size_t b = a + 1; b < texts.size(); ++b, ++pairs)
        alike += meaning_of(texts[a]) == meaning_of(texts[b]);
  }
  EXPECT_LT(alike * 5000, pairs) << alike << " of " << pairs;  // one in 16383 is to be expected
}

// Ranks may run libraries that other compilers have built.
TEST(SignatureOf, IsTheSameWhereverTheLibraryWasBuilt) {
  EXPECT_EQ(signature_of(""), 0xcbf29ce484222325u);
  EXPECT_EQ(signature_of("a"), 0xaf63dc4c8601ec8du);
  EXPECT_EQ(signature_of("foobar"), 0x85944171f73967e9u);
}

TEST(MeaningOf, IsNeverThatOfNothing) {
  for (int count = 0; count < 100'000; ++count) {
    const uint16_t meaning = meaning_of(fmt::format("broadcast count {}", count));
    ASSERT_GT(meaning, 0);
    ASSERT_LT(meaning, 1U << meaning_bits);
  }
}

TEST(MessageKey, LeavesItsHighestBitToMessagesOfNoPlan) {
  const uint16_t meaning = (1U << meaning_bits) - 1;
  const auto key = message_key(UINT64_MAX, meaning, UINT32_MAX);
  EXPECT_EQ(key, (transports::MessageKey{1} << (transports::message_key_bits - 1)) - 1);
}

TEST(MessageKey, IsAnotherOneForAnotherCallMeaningOrTag) {
  const auto key = message_key(5, 7, 9);
  EXPECT_NE(key, message_key(6, 7, 9));
  EXPECT_NE(key, message_key(5, 8, 9));
  EXPECT_NE(key, message_key(5, 7, 10));
}

TEST(CallOf, IsTheNearestWhoseNumberEndsAsTheKeysDoes) {
  for (const uint64_t sequence : {1u, 600u, 1023u, 1024u, 5000u})
    for (const int64_t away : {-511, -1, 0, 1, 512}) {
      const auto other = static_cast<int64_t>(sequence) + away;
      if (other < 1) continue;
      const auto key = message_key(static_cast<uint64_t>(other), 7, 9);
      EXPECT_EQ(call_of(key, sequence), static_cast<uint64_t>(other)) << "seen from " << sequence;
    }
}

TEST(OfDifferentCalls, AreMessagesOfAnotherNumberOrMeaningAndNoneThatAreOfNoCall) {
  using transports::of_different_calls;
  const auto key = message_key(5, 7, 9);
  EXPECT_FALSE(of_different_calls(key, message_key(5, 7, 10)));
  EXPECT_TRUE(of_different_calls(key, message_key(6, 7, 9)));
  EXPECT_TRUE(of_different_calls(key, message_key(5, 8, 9)));
  EXPECT_FALSE(of_different_calls(key, transports::of_no_call | message_key(6, 7, 9)));
}

}  // namespace
}  // namespace epccl::runtime
