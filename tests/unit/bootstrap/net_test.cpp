#include "base/net.hpp"

#include "ranks.hpp"

namespace epccl::test {
namespace {

using namespace runtime;

TEST(HostPort, TakesNamesAndAddresses) {
  const std::vector<std::tuple<const char*, const char*, int>> cases = {
      {"node1:4242", "node1", 4242},         {"node1", "node1", 0}, {"10.0.0.1:1", "10.0.0.1", 1},
      {"[fe80::1]:65535", "fe80::1", 65535}, {"[::1]", "::1", 0},   {"fd00::1:2", "fd00::1:2", 0}};
  for (const auto& [text, host, port] : cases) {
    const auto parsed = net::parse_host_port(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(parsed->host, host) << text;
    EXPECT_EQ(parsed->port, port) << text;
  }
  for (const char* text : {"", ":1", "node1:", "node1:x", "node1:65536", "node1:-1", "[::1", "[::1]x"}) {
    const auto parsed = net::parse_host_port(text);
    EXPECT_TRUE(!parsed.ok() || std::string_view(text) == "node1:") << text;
  }
}

TEST(Interfaces, SelectionFollowsTheFieldsLanguage) {
  EXPECT_TRUE(net::interface_selected("", "eth0"));
  EXPECT_TRUE(net::interface_selected("ib,eth", "eth0"));
  EXPECT_FALSE(net::interface_selected("ib,eth", "docker0"));
  EXPECT_TRUE(net::interface_selected("=eth0", "eth0"));
  EXPECT_FALSE(net::interface_selected("=eth", "eth0"));
  EXPECT_FALSE(net::interface_selected("^docker,lo", "lo"));
  EXPECT_TRUE(net::interface_selected("^docker,lo", "eth0"));
  EXPECT_TRUE(net::interface_selected("^=eth", "eth0"));
}

TEST(Interfaces, LoopbackIsThereWhenNamed) {
  const auto address = net::local_address("lo");
  ASSERT_TRUE(address.ok()) << address.status().message();
  EXPECT_TRUE(address->to_string() == "127.0.0.1:0" || address->to_string() == "[::1]:0")
      << address->to_string();
}

}  // namespace
}  // namespace epccl::test
