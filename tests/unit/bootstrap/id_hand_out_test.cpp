// Rank 0 while it hands out the id, by a double of the name server that counts who asks it: one that is dead by then takes half a
// minute to say so, in which nobody would be served.
#include <dlfcn.h>
#include <netdb.h>

#include <atomic>
#include <filesystem>

#include "runtime/bootstrap/id_exchange.hpp"
#include "share_id.hpp"

namespace {

std::atomic<int> questions = 0;

}  // namespace

extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** found) {
  if (hints == nullptr || (hints->ai_flags & AI_NUMERICHOST) == 0) ++questions;
  const auto real = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return real(name, service, hints, found);
}

namespace epccl::test {
namespace {

using namespace runtime;

TEST_F(ShareId, RankZeroAsksForNoNamesWhileItServes) {
  environment_.set("EPCCL_DEBUG", "WARN");
  environment_.set("EPCCL_DEBUG_FILE", directory_ + "/log");
  environment_.set("EPCCL_WAIT_WARNING", "0.1");
  const UniqueId id = fresh_id();
  const IdHandOut hand_out{"203.0.113.9", {quiet_port()}, "our job"};
  questions = 0;
  const Status given = hand_out.give(id, 2, 0.5);
  ASSERT_FALSE(given.ok());
  EXPECT_CONTAINS(given.message(), "203.0.113.9 is no address of this machine");
  EXPECT_GT(std::filesystem::file_size(directory_ + "/log"), 0u)
      << "it has said who is missing meanwhile, too";
  EXPECT_EQ(questions, 1);
}

}  // namespace
}  // namespace epccl::test
