// The machine of tests/rdma/run, from inside: its cables can be pulled.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "fabric.hpp"

namespace epccl::transports {

/// Tests that need its devices, and may do with its interfaces as they like.
class OnSoftRoce : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* device : {"n0r0", "n0r1", "n1r0", "n1r1"})
      if (::access(("/sys/class/infiniband/" + std::string(device)).c_str(), F_OK) != 0)
        GTEST_SKIP() << "no device " << device << ": this is not the machine of tests/rdma/run";
  }
  void TearDown() override {
    if (changed_) {
      shell(
          "for link in v0r0 v0r1 v1r0 v1r1; do ip link set $link up; tc qdisc del dev $link root "
          "2>/dev/null; done");
      ::usleep(300000);
    }
  }
  void shell(const std::string& command) {
    changed_ = true;
    (void)!std::system(command.c_str());
  }
  void link(const std::string& name, const std::string& state) { shell("ip link set " + name + " " + state); }

 private:
  bool changed_ = false;
};

/// As Verbs, and what a lost rail carried goes over the other.
struct VerbsWithFailover : Verbs {
  static Result<std::unique_ptr<Transport>> create(int rank, int ranks, AddressLookup lookup) {
    EPCCL_ASSIGN(const net::Endpoint loopback, net::local_address("lo"));
    VerbsOptions with_failover = options(rank);
    with_failover.failover = true;
    return VerbsTransport::create(rank, ranks, loopback, std::move(lookup), with_failover);
  }
};

}  // namespace epccl::transports
