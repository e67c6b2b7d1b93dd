// Memory that is not to be had, not even for the text of an error, is an error to who calls NCCL's functions, and no exception.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "multiprocess/api/scarce_memory.hpp"
#include "nccl/abi.hpp"

namespace epccl::nccl {
namespace {

using tests::with_no_memory;

template <typename Function>
Function* of_shim(const char* name) {
  static void* const shim = dlopen(EPCCL_NCCL_SHIM, RTLD_NOW | RTLD_LOCAL);
  auto* const function = reinterpret_cast<Function*>(dlsym(shim, name));
  EXPECT_NE(function, nullptr) << name;
  return function;
}

void expect_no_exception() {
  const auto count_ranks = of_shim<ncclResult_t(ncclComm_t, int*)>("ncclCommCount");
  const auto last_error = of_shim<const char*(ncclComm_t)>("ncclGetLastError");
  int count = 0;
  EXPECT_EQ(with_no_memory([&] { return count_ranks(nullptr, &count); }), ncclSystemError);
  const std::string text = with_no_memory([&] { return last_error(nullptr); }, "");
  EXPECT_NE(text.find("out of memory"), std::string::npos) << text;
  EXPECT_EQ(last_error(nullptr), text);
  // The next failure has its own again.
  EXPECT_EQ(count_ranks(nullptr, &count), ncclInvalidArgument);
  EXPECT_EQ(last_error(nullptr), std::string("the communicator is NULL"));
}

TEST(NoMemory, AtAllForTheTextOfAnError) {
  std::thread(expect_no_exception).join();  // this library knows nothing yet of the thread
  expect_no_exception();
  expect_no_exception();
}

TEST(NoMemory, AtAllForCallsOfAllKinds) {
  const auto last_error = of_shim<const char*(ncclComm_t)>("ncclGetLastError");
  std::thread([&] {
    EXPECT_NE(with_no_memory([&] { return last_error(nullptr); }), nullptr);
    const auto reset = of_shim<void()>("ncclResetDebugInit");
    EXPECT_TRUE(with_no_memory([&] { return reset(), true; }));
    // Newer than this library's interface, and refused.
    const auto suspend = of_shim<ncclResult_t()>("ncclCommSuspend");
    EXPECT_EQ(with_no_memory(suspend), ncclSystemError);
    EXPECT_NE(std::strstr(last_error(nullptr), "out of memory"), nullptr);
  }).join();
}

}  // namespace
}  // namespace epccl::nccl
