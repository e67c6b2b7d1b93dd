// What ranks say of themselves when a handle is updated, and what is said where they disagree.
#include "ep/handle/header_check.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace epccl::ep {
namespace {

std::vector<SourceHeader> four_alike() {
  SourceHeader header;
  header.tokens = 4;
  header.k = 2;
  header.alignment = 8;
  header.capacity = 32;
  header.pad = 1;
  header.undefined_padding = 1;
  return std::vector<SourceHeader>(4, header);
}

void expect_told(const std::vector<SourceHeader>& headers, const std::string& told) {
  const Status status = check_headers(headers, {}, 0);
  EXPECT_EQ(status.code(), Code::invalid_usage);
  EXPECT_EQ(status.message(), "ranks disagree on " + told);
}

TEST(SourceHeaders, ThatAreAlikeAreAccepted) {
  EXPECT_TRUE(check_headers(four_alike(), {}, 0).ok());
  auto one_has_none = four_alike();
  one_has_none[0].tokens = one_has_none[0].k = 0;
  EXPECT_TRUE(check_headers(one_has_none, {}, 0).ok());
}

// Each of them says where rows lie: the ranks would write and read different places.
TEST(SourceHeaders, ThatDifferAreToldWithBothRanks) {
  auto headers = four_alike();
  headers[2].alignment = 16;
  expect_told(headers, "the alignment of experts: rank 0 has 8, rank 2 has 16");
  headers = four_alike();
  headers[3].capacity = 33;
  expect_told(headers, "max_tokens_per_expert: rank 0 has 32, rank 3 has 33");
  headers = four_alike();
  headers[1].pad = 0;
  expect_told(headers, "padding to capacity: rank 0 has 1, rank 1 has 0");
  headers = four_alike();
  headers[1].undefined_padding = 0;
  expect_told(headers, "undefined_padding: rank 0 has 1, rank 1 has 0");
  headers = four_alike();
  headers[0].tokens = headers[0].k = 0;
  headers[2].k = 3;
  expect_told(headers, "top-k: rank 1 has 2, rank 2 has 3");
}

}  // namespace
}  // namespace epccl::ep
