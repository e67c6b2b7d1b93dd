// What the tests of how the id of rank 0 reaches the others have in common: a store of their own, and ports that are probably free.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "../base/environment.hpp"
#include "base/net.hpp"
#include "ranks.hpp"
#include "runtime/bootstrap/launch_env.hpp"
#include "runtime/bootstrap/rendezvous.hpp"

namespace epccl::test {

class ShareId : public testing::Test {
 protected:
  ShareId() {
    std::string pattern = testing::TempDir() + "storeXXXXXX";
    directory_ = mkdtemp(pattern.data());
    environment_.set("TMPDIR", directory_);
    environment_.set("EPCCL_SOCKET_IFNAME", "lo");
    environment_.set("PMIX_NAMESPACE", directory_);
    for (const char* name : {"EPCCL_STORE", "EPCCL_COMM_ID", "EPCCL_MASTER_PORT", "EPCCL_JOB_KEY", "HOME"})
      environment_.unset(name);
  }
  ~ShareId() override { std::filesystem::remove_all(directory_); }

  /// All ranks share an id, and it works.
  void expect_shared(int ranks, const std::string& rendezvous = "", int attempt = 0) {
    std::vector<UniqueId> ids(static_cast<size_t>(ranks));
    on_ranks(ranks, [&](int rank) {
      const auto id = runtime::share_unique_id(env(rank, ranks, rendezvous), patience, attempt);
      ASSERT_TRUE(id.ok()) << "rank " << rank << ": " << id.status().message();
      ids[static_cast<size_t>(rank)] = *id;
    });
    for (const UniqueId& id : ids) EXPECT_EQ(id.bytes, ids[0].bytes);
    EXPECT_TRUE(runtime::decode(ids[0]).ok());
  }
  static runtime::LaunchEnv env(int rank, int ranks, const std::string& rendezvous = "") {
    runtime::LaunchEnv out;
    out.launcher = "pmix";
    out.rank = rank;
    out.ranks = ranks;
    out.rendezvous = rendezvous;
    return out;
  }
  /// A port such that it and its neighbours are probably free. An odd one: the kernel gives listeners odd ports, and those who
  /// connect even ones while there are any.
  static uint16_t quiet_port() {
    // Below those that the system gives to connections: nobody comes to have it meanwhile unless by name.
    constexpr unsigned first = 15'001, span = 16'000, apart = 10;
    std::random_device random;
    uint16_t port = first;
    for (int tries = 0; tries < 20; ++tries) {
      port = static_cast<uint16_t>(first + random() % (span / apart) * apart);
      net::Endpoint at = net::resolve("127.0.0.1", port)->front();
      if (net::listen_at(at).ok()) break;
    }
    return port;
  }

  /// Somebody else may take one of them meanwhile.
  static std::vector<uint16_t> quiet_ports() {
    std::vector<uint16_t> ports;
    for (uint16_t port = quiet_port(); ports.size() < 5; port = static_cast<uint16_t>(port + 2))
      ports.push_back(port);
    return ports;
  }

  /// Listens at a port that is free, `distance` behind a quiet one.
  static Result<UniqueFd> take_a_port(net::Endpoint& at, uint16_t distance) {
    Result<UniqueFd> taken = error(Code::internal_error, "never tried");
    // Somebody's connection may have it at this moment.
    for (int tries = 0; !taken.ok() && tries < 20; ++tries) {
      at = net::resolve("127.0.0.1", quiet_port())->front();
      at.port = static_cast<uint16_t>(at.port + distance);
      taken = net::listen_at(at);
    }
    return taken;
  }

  std::string directory_;
  Environment environment_;
};

}  // namespace epccl::test
