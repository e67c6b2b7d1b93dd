// Which control groups a process is in, and the quota they leave it: from files as the kernel writes them.
#include "base/control_groups.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace epccl {
namespace {

namespace fs = std::filesystem;
using Groups = std::vector<std::string>;

class ControlGroups : public testing::Test {
 protected:
  ControlGroups() {
    std::string pattern = testing::TempDir() + "cgroupXXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~ControlGroups() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  Groups groups(const std::string& controller) const {
    return control_groups(controller, root_ + "/proc", root_);
  }
  /// What groups() gives, without the test's own directory before it.
  Groups names(const std::string& controller) const {
    Groups all = groups(controller);
    for (std::string& each : all) each = each.substr(root_.size());
    return all;
  }

  std::string root_;
};

constexpr const char* unified_mount =
    "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST_F(ControlGroups, AreTheProcesssOwnAndAllAboveIt) {
  write("/proc/cgroup", "0::/system.slice/slurmstepd.scope/job_7/step_0/task_1\n");
  write("/proc/mountinfo", std::string("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n") + unified_mount);
  EXPECT_EQ(names("cpu"), (Groups{"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/task_1",
                                  "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0",
                                  "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7",
                                  "/sys/fs/cgroup/system.slice/slurmstepd.scope",
                                  "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup"}));
}

TEST_F(ControlGroups, OfAContainerAreWhatItIsShown) {
  // With a namespace of its own, with its own group mounted as all there is, and with a group outside of what is mounted.
  write("/proc/mountinfo", unified_mount);
  write("/proc/cgroup", "0::/\n");
  EXPECT_EQ(names("memory"), Groups{"/sys/fs/cgroup"});
  write("/proc/mountinfo", "29 23 0:26 /docker/ab12 /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  write("/proc/cgroup", "0::/docker/ab12/worker\n");
  EXPECT_EQ(names("memory"), (Groups{"/sys/fs/cgroup/worker", "/sys/fs/cgroup"}));
  for (const char* elsewhere : {"0::/docker/ab123\n", "0::/../cd34\n", "0::nonsense\n"}) {
    write("/proc/cgroup", elsewhere);
    EXPECT_EQ(names("memory"), Groups{"/sys/fs/cgroup"}) << elsewhere;
  }
}

TEST_F(ControlGroups, OfVersionOneAreThoseOfTheController) {
  write("/proc/cgroup", "4:memory:/user\n3:cpuset:/\n2:cpu,cpuacct:/batch/7\n0::/init\n");
  write("/proc/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  EXPECT_EQ(names("cpu"), (Groups{"/sys/fs/cgroup/cpu,cpuacct/batch/7", "/sys/fs/cgroup/cpu,cpuacct/batch",
                                  "/sys/fs/cgroup/cpu,cpuacct"}));
  EXPECT_EQ(names("memory"), (Groups{"/sys/fs/cgroup/memory/user", "/sys/fs/cgroup/memory"}));
  EXPECT_EQ(names("io"), (Groups{"/sys/fs/cgroup/unified/init", "/sys/fs/cgroup/unified"}));
}

TEST_F(ControlGroups, AreNoneWhereNothingSaysSo) {
  EXPECT_EQ(names("cpu"), Groups());
  write("/proc/cgroup", "0::/a\n");
  EXPECT_EQ(names("cpu"), Groups()) << "not mounted";
  EXPECT_EQ(cpu_quota({}).cores, 0);
}

TEST_F(ControlGroups, TheSmallestQuotaOnTheWayUpCounts) {
  write("/proc/cgroup", "0::/pod/worker\n");
  write("/proc/mountinfo", unified_mount);
  EXPECT_EQ(cpu_quota(groups("cpu")).cores, 0) << "no files";
  write("/sys/fs/cgroup/pod/worker/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(groups("cpu")).cores, 0);
  write("/sys/fs/cgroup/pod/cpu.max", "250000 100000\n");
  EXPECT_DOUBLE_EQ(cpu_quota(groups("cpu")).cores, 2.5);
  const uint64_t of_pod = cpu_quota(groups("cpu")).group;
  write("/sys/fs/cgroup/pod/worker/cpu.max", "400000 100000\n");
  EXPECT_DOUBLE_EQ(cpu_quota(groups("cpu")).cores, 2.5);
  EXPECT_EQ(cpu_quota(groups("cpu")).group, of_pod);
  write("/sys/fs/cgroup/pod/worker/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(cpu_quota(groups("cpu")).cores, 0.5);
  EXPECT_NE(cpu_quota(groups("cpu")).group, of_pod) << "another group's";
}

TEST_F(ControlGroups, QuotasOfVersionOneAreTwoFiles) {
  write("/cpu/cpu.cfs_quota_us", "-1\n");
  write("/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota({root_ + "/cpu"}).cores, 0) << "-1 is no quota";
  write("/cpu/cpu.cfs_quota_us", "50000\n");
  EXPECT_DOUBLE_EQ(cpu_quota({root_ + "/cpu"}).cores, 0.5);
}

}  // namespace
}  // namespace epccl
