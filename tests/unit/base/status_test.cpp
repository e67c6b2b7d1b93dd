// Errors as values: what travels with one.
#include "base/status.hpp"

#include <gtest/gtest.h>

#include <utility>

namespace epccl {
namespace {

TEST(Reasons, AreNoneWhereNobodySaysOne) {
  EXPECT_EQ(Status().reason(), Reason::none);
  EXPECT_EQ(Status(Code::remote_error, "timeout: a text").reason(), Reason::none);
  EXPECT_EQ(error(Code::remote_error, "rank {} timed out", 3).reason(), Reason::none);
}

TEST(Reasons, TravelWithTheError) {
  Status late = error(Code::remote_error, Reason::timeout, "waited {} s", 3);
  EXPECT_EQ(late.code(), Code::remote_error);
  EXPECT_EQ(late.message(), "waited 3 s");
  EXPECT_EQ(Status(late).reason(), Reason::timeout);
  late = std::move(late).with_context("rank 1");
  EXPECT_EQ(late.message(), "rank 1: waited 3 s");
  EXPECT_EQ(late.reason(), Reason::timeout);
  Result<int> none = std::move(late);
  EXPECT_EQ(none.status().reason(), Reason::timeout);
  EXPECT_EQ(std::move(none).take_status().reason(), Reason::timeout);
}

}  // namespace
}  // namespace epccl
