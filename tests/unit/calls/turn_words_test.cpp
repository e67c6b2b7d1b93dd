#include "runtime/streams/turn_words.hpp"

#include <gtest/gtest.h>

#include "device/host/host_device.hpp"

namespace epccl::runtime {
namespace {

TEST(TurnWords, AreUsedAgainWithALargerValue) {
  TurnWords words(device::host_device());
  const TurnWords::Word first = *words.take();
  words.end(first, false);
  EXPECT_EQ(first.word->load(), first.value);
  const TurnWords::Word again = *words.take();
  EXPECT_EQ(again.word, first.word);
  EXPECT_GT(again.value, first.value);
}

// It would set back what the next use's stream has raised.
TEST(TurnWords, AreNotUsedAgainBeforeTheirStreamHasCome) {
  TurnWords words(device::host_device());
  const TurnWords::Word late = *words.take();
  words.end(late, true);
  EXPECT_NE(words.take()->come, late.come);
  late.come->store(late.value);
  const TurnWords::Word again = *words.take();
  EXPECT_EQ(again.come, late.come);
  EXPECT_GT(again.value, late.value);
}

}  // namespace
}  // namespace epccl::runtime
