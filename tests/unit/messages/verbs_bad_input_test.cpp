// What is wrong with devices, limits and peers is named.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <functional>

#include "soft_roce.hpp"

namespace epccl::transports {
namespace {

using verbs::device_selected;

TEST(VerbsDevices, AreSelectedByPrefixNameAndPort) {
  EXPECT_TRUE(device_selected("", "mlx5_0", 1));
  EXPECT_TRUE(device_selected("mlx5", "mlx5_0", 1));
  EXPECT_TRUE(device_selected("efa,mlx5_1", "mlx5_10", 1)) << "by prefix";
  EXPECT_FALSE(device_selected("efa,=mlx5_1", "mlx5_10", 1));
  EXPECT_TRUE(device_selected("mlx5_0:2", "mlx5_0", 2));
  EXPECT_FALSE(device_selected("mlx5_0:2", "mlx5_0", 1));
  EXPECT_FALSE(device_selected("^mlx5_0", "mlx5_0", 1));
  EXPECT_TRUE(device_selected("^mlx5_0", "mlx5_1", 1));
  EXPECT_FALSE(device_selected("^mlx5_0:1,efa", "mlx5_0", 1));
  EXPECT_TRUE(device_selected("^mlx5_0:1,efa", "mlx5_0", 2));
}

TEST(VerbsSignals, ComeBackAsTheyWent) {
  for (const uint32_t id : {1U, 0x3ffffU, 0xfffffffU})
    for (const uint32_t parts : {1U, 2U, 4U})
      for (const bool shorter : {false, true}) {
        const auto back = verbs::Signal::decode(verbs::Signal{id, parts, shorter}.encode());
        EXPECT_EQ(back.id, id);
        EXPECT_EQ(back.parts, parts);
        EXPECT_EQ(back.shorter, shorter);
      }
}

TEST(VerbsAdverts, FindNothingOnceTheyAreOver) {
  verbs::AdvertTable table;
  verbs::Receive first, second;
  const uint32_t id = table.add(first);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(table.find(id), &first);
  table.remove(id);
  EXPECT_EQ(table.find(id), nullptr);
  const uint32_t next = table.add(second);
  EXPECT_NE(next, id) << "a late signal would end another receive";
  EXPECT_EQ(table.find(next), &second);
}

class VerbsBadInput : public OnSoftRoce {
 protected:
  static Status open(const VerbsOptions& options) {
    const auto loopback = net::local_address("lo");
    const auto lookup = [](int) -> Result<std::vector<std::byte>> {
      return error(Code::internal_error, "unused");
    };
    return VerbsTransport::create(0, 2, *loopback, lookup, options).status();
  }
  static void expect_said(const Status& status, std::initializer_list<const char*> words) {
    EXPECT_FALSE(status.ok());
    for (const char* word : words)
      EXPECT_NE(status.message().find(word), std::string::npos) << word << " is not in: " << status.message();
  }
};

TEST_F(VerbsBadInput, ADeviceThatIsNotThereIsNamedAsAskedFor) {
  VerbsOptions options;
  options.ports.devices = "mlx5_7";
  expect_said(open(options), {"no RDMA port can be used", "EPCCL_VERBS_DEVICES=mlx5_7", "4 devices"});
}

TEST_F(VerbsBadInput, AGidIndexThatIsEmptyIsNamed) {
  VerbsOptions options;
  options.ports.devices = "n0r0";
  options.ports.gid_index = 200;
  const Status status = open(options);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  expect_said(status, {"n0r0 port 1", "index 200", "EPCCL_VERBS_GID_INDEX"});
}

TEST_F(VerbsBadInput, PortsThatAreDownAreSaidToBe) {
  link("v0r0", "down");
  VerbsOptions options;
  options.ports.devices = "n0r0";
  expect_said(open(options), {"no RDMA port can be used", "n0r0 port 1: down"});
}

/// In a child that may lock `bytes` of memory and has no right to more; what it says.
std::string told_with_memlock(rlim_t bytes, const std::function<Status()>& what) {
  int ends[2];
  if (::pipe(ends) != 0) return "";
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_MEMLOCK, &limit);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, 2> none{};
    ::syscall(SYS_capset, &header, none.data());
    const std::string said = what().message();
    (void)!::write(ends[1], said.data(), said.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said(4096, 0);
  size_t length = 0;
  for (ssize_t got = 0; (got = ::read(ends[0], said.data() + length, said.size() - length)) > 0;)
    length += static_cast<size_t>(got);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  said.resize(length);
  return said;
}

TEST_F(VerbsBadInput, ALimitOnLockedMemoryIsNamedWithTheCommandThatRaisesIt) {
  const std::string said = told_with_memlock(64 << 10, [] { return open(Verbs::options(0)); });
  for (const char* word :
       {"n0r0 port 1", "registering", "65536 bytes", "RLIMIT_MEMLOCK", "ulimit -l unlimited"})
    EXPECT_NE(said.find(word), std::string::npos) << word << " is not in: " << said;
}

TEST_F(VerbsBadInput, ARegistrationThatFailsFailsItsMessageAndNoOther) {
  Fabric<Verbs> fabric(2);
  Message hello(0, 1, 0, 10);
  ASSERT_TRUE(hello.recv(fabric).ok());
  ASSERT_TRUE(hello.send(fabric).ok());
  ASSERT_TRUE(fabric.finish(hello.receiving));
  Completion receiving;
  void* nowhere = reinterpret_cast<void*>(uintptr_t{1} << 40);
  EXPECT_EQ(fabric[1].recv(0, 1, nowhere, 1 << 20, receiving).code(), Code::system_error);
  EXPECT_EQ(receiving.state, Completion::State::failed);
  EXPECT_NE(receiving.status.message().find("registering 1048576 bytes with n1r0 port 1"), std::string::npos)
      << receiving.status.message();
  Message next(0, 1, 2, 1 << 20);
  ASSERT_TRUE(next.recv(fabric).ok());
  ASSERT_TRUE(next.send(fabric).ok());
  ASSERT_TRUE(fabric.drive_until([&] { return next.finished(); }));
  next.expect_arrived();
}

// A peer that goes away at each step of the handshake: it accepts and closes at once, or after the greeting, or answers nonsense.
TEST_F(VerbsBadInput, APeerThatGoesAwayWhileConnectingFailsTheSend) {
  for (const int step : {0, 1, 2}) {
    SCOPED_TRACE(step);
    net::Endpoint at = *net::local_address("lo");
    auto listener = net::listen_at(at);
    ASSERT_TRUE(listener.ok());
    verbs::Address address;
    address.endpoint = at;
    const auto loopback = net::local_address("lo");
    auto created = VerbsTransport::create(
        0, 2, *loopback, [&](int) { return Result(address.encode()); }, Verbs::options(0));
    ASSERT_TRUE(created.ok());
    Completion sending;
    char byte = 'x';
    (void)(*created)->send(1, 1, &byte, 1, sending);
    ASSERT_TRUE(net::wait_for(listener->get(), POLLIN, now_seconds() + patience_seconds));
    UniqueFd socket(::accept(listener->get(), nullptr, nullptr));
    const double deadline = now_seconds() + patience_seconds;
    if (step > 0) {
      verbs::Hello hello;
      for (size_t have = 0; have < sizeof hello && now_seconds() < deadline;) {
        (*created)->progress();
        const ssize_t got =
            ::recv(socket.get(), reinterpret_cast<char*>(&hello) + have, sizeof hello - have, MSG_DONTWAIT);
        if (got > 0) have += static_cast<size_t>(got);
      }
      EXPECT_EQ(hello.ends.count, 2);
    }
    if (step == 2) {
      verbs::Answer answer;
      answer.verdict = verbs::Verdict::welcome;
      answer.ends.count = 1;
      answer.ends.rails[0].mtu = 99;
      answer.ends.rails[0].ethernet = 1;
      ASSERT_EQ(::send(socket.get(), &answer, sizeof answer, MSG_NOSIGNAL),
                static_cast<ssize_t>(sizeof answer));
    } else {
      socket.reset();
    }
    while (!sending.finished() && now_seconds() < deadline) (*created)->progress();
    ASSERT_EQ(sending.state, Completion::State::failed);
    EXPECT_EQ(sending.status.code(), Code::remote_error);
    EXPECT_NE(sending.status.message().find("rank 1"), std::string::npos) << sending.status.message();
    if (step == 2) {
      EXPECT_NE(sending.status.message().find("MTU"), std::string::npos) << sending.status.message();
    }
  }
}

}  // namespace
}  // namespace epccl::transports
