// Who is on one node: same host name, boot and namespaces, unless EPCCL_HOSTID says otherwise.
#include "topology/host_id.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace epccl::topology {
namespace {

HostIdentity identity() {
  return {"nid001", "527b0c3a", {{"pid", "pid:[1]"}, {"net", "net:[2]"}, {"ipc", "ipc:[3]"}}};
}

TEST(HostId, EveryPartOfTheIdentityCounts) {
  const uint64_t hash = make_host_id(identity(), {}).hash;
  EXPECT_EQ(hash, make_host_id(identity(), {}).hash);
  HostIdentity other = identity();
  other.host = "nid002";
  EXPECT_NE(hash, make_host_id(other, {}).hash);
  other = identity();
  other.boot_id = "rebooted";
  EXPECT_NE(hash, make_host_id(other, {}).hash);
  for (size_t i = 0; i < 3; ++i) {
    other = identity();
    other.namespaces[i].second += "x";
    EXPECT_NE(hash, make_host_id(other, {}).hash) << other.namespaces[i].first;
  }
}

TEST(HostId, FieldsDoNotRunIntoEachOther) {
  EXPECT_NE(make_host_id({"ab", "c", {}}, {}).hash, make_host_id({"a", "bc", {}}, {}).hash);
}

TEST(HostId, OverrideReplacesTheIdentity) {
  HostIdentity other = identity();
  other.host = "nid002";
  const HostId a = make_host_id(identity(), "node0"), b = make_host_id(other, "node0");
  EXPECT_EQ(a.hash, b.hash);
  EXPECT_NE(a.hash, make_host_id(identity(), "node1").hash);
  EXPECT_NE(a.hash, make_host_id(identity(), {}).hash);
  EXPECT_EQ(a.label(), "nid001 (EPCCL_HOSTID=node0)");
}

TEST(HostId, VirtualNodesAndContainersOfOneMachineHaveOneKernel) {
  const HostId here = make_host_id(identity(), {});
  EXPECT_EQ(here.kernel, make_host_id(identity(), "node0").kernel);
  HostIdentity container = identity();
  container.host = "container7";
  container.namespaces[0].second += "x";
  EXPECT_EQ(here.kernel, make_host_id(container, {}).kernel);
  HostIdentity rebooted = identity();
  rebooted.boot_id = "rebooted";
  EXPECT_NE(here.kernel, make_host_id(rebooted, {}).kernel);
}

TEST(HostId, WithoutProcTheHostNameStandsForTheKernel) {
  HostIdentity one = identity(), other = identity();
  one.boot_id = other.boot_id = "";
  EXPECT_EQ(make_host_id(one, {}).kernel, make_host_id(other, {}).kernel);
  other.host = "nid002";
  EXPECT_NE(make_host_id(one, {}).kernel, make_host_id(other, {}).kernel);
}

TEST(HostId, EmptyOverrideCountsAsNone) {
  EXPECT_EQ(make_host_id(identity(), "").hash, make_host_id(identity(), {}).hash);
  EXPECT_EQ(make_host_id(identity(), "").label(), "nid001");
}

TEST(HostId, OfThisProcessIsThatOfItsChild) {
  const auto mine = this_host_id();
  ASSERT_TRUE(mine.ok()) << mine.status().message();
  EXPECT_EQ(mine->host, host_name());
  const pid_t child = fork();
  if (child == 0) {
    const auto theirs = this_host_id();
    _exit(theirs.ok() && theirs->hash == mine->hash ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_EQ(state, 0);
}

// As where each rank has an unprivileged container of its own.
TEST(HostId, OfAProcessInAnotherUserNamespaceIsTheSame) {
  constexpr int not_permitted = 77;
  const auto mine = this_host_id();
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER) != 0) _exit(not_permitted);
    const auto theirs = this_host_id();
    _exit(theirs.ok() && mine.ok() && theirs->hash == mine->hash ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  if (WEXITSTATUS(state) == not_permitted) GTEST_SKIP() << "no user namespace of one's own can be had here";
  EXPECT_EQ(state, 0);
}

TEST(HostId, HostNamesMayBeAsLongAsTheKernelHasThemAndNotEmpty) {
  constexpr int not_permitted = 77;
  const pid_t child = fork();
  if (child == 0) {
    const std::string name(HOST_NAME_MAX, 'n');
    const bool own_name = unshare(CLONE_NEWUTS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWUTS) == 0;
    if (!own_name || sethostname(name.data(), name.size()) != 0) _exit(not_permitted);
    const auto id = this_host_id();
    if (sethostname("", 0) != 0) _exit(not_permitted);
    const Status empty = this_host_id().status();
    _exit(id.ok() && id->host == name && empty.message() == "this machine's name is empty" ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  if (WEXITSTATUS(state) == not_permitted) GTEST_SKIP() << "no host name of one's own can be had here";
  EXPECT_EQ(state, 0);
}

TEST(HostId, EnvironmentVariableOverrides) {
  const auto plain = this_host_id();
  setenv("EPCCL_HOSTID", "virtual-7", 1);
  const auto overridden = this_host_id();
  unsetenv("EPCCL_HOSTID");
  ASSERT_TRUE(plain.ok() && overridden.ok());
  EXPECT_NE(plain->hash, overridden->hash);
  EXPECT_EQ(overridden->hash, make_host_id({}, "virtual-7").hash);
  EXPECT_EQ(overridden->host, plain->host);
}

}  // namespace
}  // namespace epccl::topology
