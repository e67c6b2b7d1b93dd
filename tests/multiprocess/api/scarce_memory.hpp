// An `operator new` that fails when a test wants it to, the library's, too.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <utility>

namespace epccl::tests {

enum class Shortage { of_one, lasting };
/// So many allocations of this thread succeed, then one does not, or none.
void begin_shortage(int after, Shortage shortage);
/// All do again. How many did not.
int end_shortage();

/// What `call` gives while this thread can allocate nothing; `thrown` where it throws, which fails the test.
template <typename Call, typename Value = decltype(std::declval<Call>()())>
Value with_no_memory(Call call, Value thrown = {}) {
  bool has_thrown = false;
  Value value = thrown;
  begin_shortage(0, Shortage::lasting);
  try {
    value = call();
  } catch (const std::exception&) {
    has_thrown = true;
  }
  end_shortage();
  EXPECT_FALSE(has_thrown) << "an exception has left the library";
  return value;
}

}  // namespace epccl::tests
