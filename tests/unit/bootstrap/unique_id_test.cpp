#include <algorithm>

#include "../base/environment.hpp"
#include "ranks.hpp"
#include "runtime/bootstrap/rendezvous.hpp"

namespace epccl::test {
namespace {

using namespace runtime;

TEST(UniqueIds, SayWhatWasPutIn) {
  Rendezvous in;
  for (const char* host : {"10.1.2.3", "::1", "fd00::42"}) {
    in.endpoint = net::resolve(host, 54321)->front();
    in.secret.fill(std::byte{0x5a});
    const auto out = decode(encode(in));
    ASSERT_TRUE(out.ok()) << out.status().message();
    EXPECT_EQ(out->endpoint, in.endpoint);
    EXPECT_EQ(out->secret, in.secret);
  }
}

TEST(UniqueIds, EveryFlippedBitIsNoticed) {
  const UniqueId id = fresh_id();
  for (size_t bit = 0; bit < 8 * id.bytes.size(); ++bit) {
    UniqueId damaged = id;
    damaged.bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    const auto decoded = decode(damaged);
    ASSERT_FALSE(decoded.ok()) << "bit " << bit;
    EXPECT_EQ(decoded.status().code(), Code::invalid_argument);
  }
}

TEST(UniqueIds, AreAllDifferent) {
  const auto first = *decode(fresh_id()), second = *decode(fresh_id());
  EXPECT_NE(first.secret, second.secret);
  EXPECT_NE(first.endpoint.port, second.endpoint.port);
}

TEST(UniqueIds, FollowCommId) {
  setenv("EPCCL_COMM_ID", "127.0.0.2", 1);
  const auto id = create_unique_id();
  setenv("EPCCL_COMM_ID", "not an address:1", 1);
  const auto wrong = create_unique_id();
  unsetenv("EPCCL_COMM_ID");
  ASSERT_TRUE(id.ok()) << id.status().message();
  EXPECT_TRUE(decode(*id)->endpoint.to_string().starts_with("127.0.0.2:"));
  ASSERT_FALSE(wrong.ok());
  EXPECT_CONTAINS(wrong.status().message(), "EPCCL_COMM_ID");
  const auto ranks = join_all(*id, 2);
  EXPECT_TRUE(ranks[0] && ranks[1]);
}

/// An id while EPCCL_COMM_ID is `host` and a port, which was free at address `at` a moment before and is put there. Another
/// process may be faster: then at another port.
Result<UniqueId> id_at_fixed_port(Environment& environment, const std::string& host, net::Endpoint& at) {
  Result<UniqueId> id = error(Code::internal_error, "never tried");
  for (int tries = 0; !id.ok() && tries < 20; ++tries) {
    at.port = 0;
    if (!net::listen_at(at).ok()) continue;
    environment.set("EPCCL_COMM_ID", fmt::format("{}:{}", host, at.port));
    id = create_unique_id();
  }
  return id;
}

TEST(UniqueIds, FixedPortIsForTheFirstAndTheSecondTellsItsOwn) {
  Environment environment;
  net::Endpoint fixed = net::resolve("127.0.0.1", 0)->front();
  const auto first = id_at_fixed_port(environment, "127.0.0.1", fixed), second = create_unique_id();
  ASSERT_TRUE(first.ok()) << first.status().message();
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ(decode(*first)->endpoint, fixed);
  EXPECT_TRUE(decode(*second)->endpoint.to_string().starts_with("127.0.0.1:"));
  EXPECT_NE(decode(*second)->endpoint.port, decode(*first)->endpoint.port);
  for (const UniqueId& id : {*first, *second}) {
    const auto ranks = join_all(id, 2);
    EXPECT_TRUE(ranks[0] && ranks[1]);
  }
}

/// A port of this machine that another process has, as EPCCL_COMM_ID.
class PortOfAnotherProcess : public testing::Test {
 protected:
  PortOfAnotherProcess()
      : other_([](Child& parent) {
          net::Endpoint at = net::resolve("127.0.0.1", 0)->front();
          const auto taken = net::listen_at(at);
          parent.put(at.port);
          pause();
        }),
        at_(net::resolve("127.0.0.1", other_.get<uint16_t>())->front()) {
    environment_.set("EPCCL_COMM_ID", at_.to_string());
    environment_.set("EPCCL_SOCKET_IFNAME", "lo");
  }
  void be_rank(const char* rank) {
    environment_.set("EPCCL_RANK", rank);
    environment_.set("EPCCL_WORLD_SIZE", "4");
  }

  Environment environment_;
  const Child other_;
  const net::Endpoint at_;
};

TEST_F(PortOfAnotherProcess, IsAnError) {
  const auto id = create_unique_id();
  ASSERT_FALSE(id.ok());
  EXPECT_CONTAINS(id.status().message(), at_.to_string());
}

TEST_F(PortOfAnotherProcess, IsAnErrorToRank0) {
  be_rank("0");
  const auto id = create_unique_id();
  ASSERT_FALSE(id.ok());
  EXPECT_CONTAINS(id.status().message(), at_.to_string());
}

TEST_F(PortOfAnotherProcess, IsRank0sToAnotherRankBesideIt) {
  be_rank("3");
  const auto id = create_unique_id();
  ASSERT_TRUE(id.ok()) << id.status().message();
  EXPECT_NE(decode(*id)->endpoint.port, at_.port);
  const auto ranks = join_all(*id, 2);
  EXPECT_TRUE(ranks[0] && ranks[1]);
}

TEST(UniqueIds, OfOtherRanksLeaveTheFixedPortToRank0) {
  Environment environment;
  net::Endpoint fixed = net::resolve("127.0.0.1", 0)->front();
  environment.set("EPCCL_SOCKET_IFNAME", "lo");
  environment.set("EPCCL_RANK", "2");
  environment.set("EPCCL_WORLD_SIZE", "4");
  const auto id = id_at_fixed_port(environment, "127.0.0.1", fixed);
  ASSERT_TRUE(id.ok()) << id.status().message();
  EXPECT_NE(decode(*id)->endpoint.port, fixed.port);
}

// Of a network that is for documentation (RFC 5737): nobody's address, so that of a rank 0 elsewhere as well as any.
TEST(UniqueIds, AddressOfAnotherMachineIsRank0s) {
  Environment environment;
  environment.set("EPCCL_SOCKET_IFNAME", "lo");
  environment.set("EPCCL_COMM_ID", "203.0.113.77:4242");
  const auto id = create_unique_id();
  ASSERT_TRUE(id.ok()) << id.status().message();
  EXPECT_TRUE(decode(*id)->endpoint.is_loopback());
  environment.set("EPCCL_RANK", "0");
  environment.set("EPCCL_WORLD_SIZE", "4");
  const auto of_rank0 = create_unique_id();
  ASSERT_FALSE(of_rank0.ok());
  EXPECT_CONTAINS(of_rank0.status().message(), "203.0.113.77:4242");
}

TEST(UniqueIds, NameThatIsLoopbackHereOnlyIsNotAdvertisedAsSuch) {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  const auto addresses = net::resolve(name, 0);
  if (!addresses.ok() ||
      !std::ranges::all_of(*addresses, [](const net::Endpoint& at) { return at.is_loopback(); }))
    GTEST_SKIP() << name
                 << " is not a loopback address here (the cluster test own_name_is_loopback makes it one)";
  Environment environment;
  environment.unset("EPCCL_SOCKET_IFNAME");
  net::Endpoint wanted = *net::local_address("");
  const auto id = id_at_fixed_port(environment, name, wanted);
  ASSERT_TRUE(id.ok()) << id.status().message();
  EXPECT_EQ(decode(*id)->endpoint, wanted);
}

TEST(UniqueIds, UnknownInterfaceIsAnErrorThatListsThem) {
  setenv("EPCCL_SOCKET_IFNAME", "nosuch", 1);
  const auto id = create_unique_id();
  unsetenv("EPCCL_SOCKET_IFNAME");
  ASSERT_FALSE(id.ok());
  EXPECT_CONTAINS(id.status().message(), "nosuch");
  EXPECT_CONTAINS(id.status().message(), "lo");
}

// What a cluster's administrators have set for NCCL holds where nothing else is set.
TEST(UniqueIds, NcclsInterfacesAreTakenWhereThereIsNoOtherSetting) {
  Environment environment;
  environment.unset("EPCCL_SOCKET_IFNAME");
  for (const char* selection : {"=lo", "lo", "nosuch,lo"}) {
    environment.set("NCCL_SOCKET_IFNAME", selection);
    const auto id = create_unique_id();
    ASSERT_TRUE(id.ok()) << selection << ": " << id.status().message();
    EXPECT_TRUE(decode(*id)->endpoint.is_loopback()) << selection;
  }
  environment.set("NCCL_SOCKET_IFNAME", "=l");
  const auto none = create_unique_id();
  ASSERT_FALSE(none.ok());
  EXPECT_CONTAINS(none.status().message(), "NCCL_SOCKET_IFNAME=\"=l\" matches no interface");
  environment.set("EPCCL_SOCKET_IFNAME", "lo");
  EXPECT_TRUE(create_unique_id().ok());
}

}  // namespace
}  // namespace epccl::test
