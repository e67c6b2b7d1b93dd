#include "base/net.hpp"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "base/clock.hpp"
#include "base/unique_fd.hpp"
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

TEST(Interfaces, TheFirstWordThatMeansOneWins) {
  const auto all = net::local_address("nosuch,lo,e,w,d,b,v"), others = net::local_address("^lo");
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_TRUE(all->is_loopback()) << all->to_string();
  if (!others.ok()) return;  // there is nothing else here
  EXPECT_FALSE(net::local_address("e,w,d,b,v,lo")->is_loopback());
}

TEST(Interfaces, OneWithSeveralAddressesIsNamedOnce) {
  const auto none = net::local_address("=nosuch");
  ASSERT_FALSE(none.ok());
  const std::string text = none.status().message();
  std::istringstream names(text.substr(text.find("there are: ") + 11));
  std::set<std::string> seen;
  for (std::string name; names >> name;)
    EXPECT_TRUE(seen.insert(name.substr(0, name.find(','))).second) << text;
  EXPECT_FALSE(seen.empty());
}

TEST(Interfaces, WhatOthersReachGoesBeforeWhatAMachineHasForItself) {
  const auto remoteness = [](const char* interface, const char* address, bool is_loopback = false,
                             bool is_running = true) {
    return net::remoteness(interface, net::resolve(address, 0)->front(), is_loopback, is_running);
  };
  for (const char* address : {"10.0.0.1", "192.168.254.1", "169.253.0.1", "fd00::1"})
    EXPECT_EQ(remoteness("eth0", address), 0) << address;
  const int of_controller = remoteness("enx0a1b2c3d4e5f", "169.254.3.1");
  EXPECT_GT(of_controller, 0);
  const int of_bridge = remoteness("br0", "10.0.0.1");
  EXPECT_GT(of_bridge, 0);
  EXPECT_LT(of_bridge, of_controller) << "it may be the machine's own";
  EXPECT_EQ(remoteness("bridge1", "10.0.0.1"), of_bridge);
  for (const char* word : {"brain0", "br"}) EXPECT_EQ(remoteness(word, "10.0.0.1"), 0) << word;
  const int of_late = remoteness("eth0", "10.0.0.1", false, false);
  EXPECT_GT(of_late, of_controller);
  for (const char* inner : {"docker0", "br-12ab", "virbr0", "cni0", "podman1", "lxcbr0", "lxdbr0",
                            "flannel.1", "cali12ab", "vboxnet0"})
    EXPECT_GT(remoteness(inner, "10.0.0.1"), of_late) << inner;
  EXPECT_LT(of_late, remoteness("lo", "127.0.0.1", true));
  EXPECT_GT(remoteness("docker0", "172.17.0.1", false, false), remoteness("lo", "127.0.0.1", true))
      << "nothing is plugged into it";
  EXPECT_GT(remoteness("lo", "127.0.0.1", true), remoteness("docker0", "172.17.0.1"));
  EXPECT_GT(remoteness("lo", "10.0.0.1", true), remoteness("docker0", "172.17.0.1"))
      << "whatever it is called";
}

TEST(Loopback, IsWhatTheTextItselfSays) {
  for (const char* text : {"localhost", "LOCALHOST", "ip6-localhost", "127.0.0.1", "127.8.7.6", "::1"})
    EXPECT_TRUE(net::means_loopback(text)) << text;
  for (const char* text : {"node0", "localhost.example.org", "10.0.0.127", "128.0.0.1", "::", "fd00::1"})
    EXPECT_FALSE(net::means_loopback(text)) << text;
}

TEST(Loopback, NamesAreNotLiterals) {
  for (const char* text : {"10.0.0.1", "::1", "fd00::1"}) EXPECT_TRUE(net::is_literal(text)) << text;
  for (const char* text : {"localhost", "node0"}) EXPECT_FALSE(net::is_literal(text)) << text;
}

TEST(Listening, AtAnyAddressTakesBothFamilies) {
  net::Endpoint any;
  const auto listener = net::listen_at(any);
  if (!listener.ok()) GTEST_SKIP() << "no IPv6: " << listener.status().message();
  for (const char* address : {"127.0.0.1", "::1"}) {
    const auto there = net::connect_to(net::resolve(address, any.port)->front(), patience);
    EXPECT_TRUE(there.ok()) << there.status().message();
  }
}

TEST(Addresses, OfThisMachineAreKnown) {
  EXPECT_TRUE(net::is_of_this_machine(net::resolve("127.0.0.1", 4242)->front()));
  EXPECT_TRUE(net::is_of_this_machine(*net::local_address("")));
  EXPECT_FALSE(net::is_of_this_machine(net::resolve("203.0.113.77", 4242)->front())) << "a documentation's";
}

/// What `body` makes of a network of its own, where ip(8) has been given these words first; "" where that is impossible here.
std::string in_network(const std::vector<std::string>& commands, const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return "";
  const pid_t pid = fork();
  if (pid == 0) {
    const uid_t user = geteuid();
    if (unshare(user == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) != 0) _exit(0);
    // Who is nobody there is not let by what it starts.
    if (user != 0) std::ofstream("/proc/self/uid_map") << fmt::format("0 {} 1", user);
    for (const std::string& words : commands)
      if (std::system(("ip " + words + " >/dev/null 2>&1").c_str()) != 0) _exit(0);
    const std::string text = body();
    EXPECT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char bytes[4096];
  for (ssize_t got; (got = read(ends[0], bytes, sizeof bytes)) > 0;)
    text.append(bytes, static_cast<size_t>(got));
  close(ends[0]);
  waitpid(pid, nullptr, 0);
  return text;
}

/// The kernel tells that a link has come a moment after both its ends are up.
void wait_until_running(const char* interface) {
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM, 0));
  ifreq about{};
  std::strncpy(about.ifr_name, interface, IFNAMSIZ - 1);
  for (const double until = now_seconds() + 20; now_seconds() < until; usleep(1000))
    if (ioctl(fd.get(), SIOCGIFFLAGS, &about) == 0 && (about.ifr_flags & IFF_RUNNING) != 0) return;
}

const std::vector<std::string> one_whose_other_end_is_down = {
    "link set lo up", "link add late0 type veth peer name other0", "addr add 10.77.0.1/24 dev late0",
    "link set late0 up"};

TEST(Interfaces, OneWhoseLinkIsNotThereYetGoesBeforeLoopback) {
  const std::string address = in_network(one_whose_other_end_is_down, [] {
    const auto at = net::local_address(""), named = net::local_address("=late0");
    return (at.ok() ? at->host() : at.status().message()) + " " +
           (named.ok() ? named->host() : named.status().message());
  });
  if (address.empty()) GTEST_SKIP() << "no network of its own here";
  EXPECT_EQ(address, "10.77.0.1 10.77.0.1");
}

TEST(Interfaces, OneThatRunsGoesBeforeOneThatDoesNot) {
  auto commands = one_whose_other_end_is_down;
  for (const char* words : {"link add br0 type veth peer name port0", "addr add 10.78.0.1/24 dev br0",
                            "link set port0 up", "link set br0 up"})
    commands.push_back(words);
  const std::string addresses = in_network(commands, [] {
    wait_until_running("br0");
    const auto at = net::local_address(""), named = net::local_address("late,br");
    return (at.ok() ? at->host() : at.status().message()) + " " +
           (named.ok() ? named->host() : named.status().message());
  });
  if (addresses.empty()) GTEST_SKIP() << "no network of its own here";
  EXPECT_EQ(addresses, "10.78.0.1 10.78.0.1");
}

TEST(Interfaces, NobodyListensAtAnIpv6AddressOfOneThatDoesNotRun) {
  auto commands = one_whose_other_end_is_down;
  commands[2] = "addr add fd00:77::1/64 dev late0";
  const std::string address = in_network(commands, [] {
    const auto at = net::local_address("");
    return at.ok() ? at->host() : at.status().message();
  });
  if (address.empty()) GTEST_SKIP() << "no network of its own here";
  EXPECT_EQ(address, "127.0.0.1");
}

TEST(Addresses, ThatMeanThisMachineAreDoubted) {
  EXPECT_CONTAINS(net::doubt_about(net::resolve("127.0.0.1", 4242)->front()), "a loopback address");
  EXPECT_EQ(net::doubt_about(net::resolve("203.0.113.77", 4242)->front()), "") << "a documentation's";
  const auto own = net::local_address("");
  if (own->is_loopback()) GTEST_SKIP() << "this machine has no other address";
  for (const char* part : {"also one of this machine's own", "EPCCL_SOCKET_IFNAME"})
    EXPECT_CONTAINS(net::doubt_about(*own), part);
}

TEST(Fates, AreToldByWhatIsKnownAndNotByItsText) {
  const Status silent = net::why_ended(ETIMEDOUT);
  EXPECT_EQ(silent.reason(), Reason::unreachable);
  EXPECT_EQ(net::fate_of_peer(silent), "is out of reach: " + silent.message());
  EXPECT_CONTAINS(silent.message(), "its machine does not answer: ");
  const Status broken = net::why_ended(ECONNRESET);
  EXPECT_EQ(broken.reason(), Reason::none);
  EXPECT_EQ(net::fate_of_peer(broken), "died: " + broken.message());
  const std::string alike = "its machine does not answer to a name like that";
  EXPECT_EQ(net::fate_of_peer({Code::remote_error, alike}), "died: " + alike);
}

TEST(Listening, WhoseSocketItIsIsKnown) {
  net::Endpoint at = net::resolve("127.0.0.1", 0)->front();
  auto listener = net::listen_at(at);
  ASSERT_TRUE(listener.ok());
  EXPECT_TRUE(net::bound_by_this_process(at));
  net::Endpoint elsewhere = net::resolve("127.0.0.2", at.port)->front();
  EXPECT_FALSE(net::bound_by_this_process(elsewhere));
  *listener = UniqueFd();
  EXPECT_FALSE(net::bound_by_this_process(at));
}

}  // namespace
}  // namespace epccl::test
