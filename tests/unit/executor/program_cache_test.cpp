// Which programs are kept, and for how long.
#include "runtime/executor/program_cache.hpp"

#include <gtest/gtest.h>

#include <string>

namespace epccl::runtime {
namespace {

struct Program {
  std::string name;
  size_t count = 1;
  size_t bytes() const { return count; }
};

class KeptPrograms : public testing::Test {
 protected:
  Program& get(const std::string& name, size_t bytes = 1, bool keep = true) {
    return *cache_
                .get(name, keep,
                     [&]() -> Result<Program> {
                       ++made_;
                       return Program{name, bytes};
                     })
                .value();
  }
  /// Whether it has to be made (and then has been).
  bool is_new(const std::string& name) {
    const int before = made_;
    EXPECT_EQ(get(name).name, name);
    return made_ != before;
  }

  ProgramCache<Program> cache_{{.programs = 3, .bytes = 100}};
  int made_ = 0;
};

TEST_F(KeptPrograms, GiveWayOneByOneTheLongestUnusedFirst) {
  for (const char* name : {"a", "b", "c"}) get(name);
  EXPECT_FALSE(is_new("a"));
  get("d");
  EXPECT_FALSE(is_new("a"));
  EXPECT_FALSE(is_new("c"));
  EXPECT_FALSE(is_new("d"));
  EXPECT_TRUE(is_new("b"));
}

TEST_F(KeptPrograms, GiveWayWhereTheyTakeTooMuchMemory) {
  get("a", 40);
  get("b", 40);
  get("c", 40);
  EXPECT_FALSE(is_new("b"));
  EXPECT_FALSE(is_new("c"));
  EXPECT_TRUE(is_new("a"));
}

TEST_F(KeptPrograms, StayUntilTheNextIsAskedForHoweverLarge) {
  get("a", 1000);
  EXPECT_FALSE(is_new("a"));
  get("b", 10);
  EXPECT_TRUE(is_new("a"));
}

// A program's parts may be made when they are first needed.
TEST_F(KeptPrograms, MayGrowOnceTheyAreGiven) {
  get("a", 10).count = 70;
  get("b", 40);
  EXPECT_TRUE(is_new("a"));
}

TEST_F(KeptPrograms, AreNotThoseThatAreNotToBeKept) {
  get("a", 1, false);
  EXPECT_TRUE(is_new("a"));
  EXPECT_FALSE(is_new("a"));
}

TEST_F(KeptPrograms, AreNotThoseThatCouldNotBeMade) {
  const auto refuse = []() -> Result<Program> { return Status(Code::internal_error, "refused"); };
  EXPECT_EQ(cache_.get("a", true, refuse).status().message(), "refused");
  EXPECT_TRUE(is_new("a"));
}

}  // namespace
}  // namespace epccl::runtime
