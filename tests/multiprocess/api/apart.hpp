// Ranks of one machine that may not look into each other: /proc/<pid>/fd of one is closed to the other.
#pragma once

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

namespace epccl::tests {

enum class Apart {
  user_namespaces,  // each in one of its own, as an unprivileged container is
  capabilities,     // each without one that others have
  not_dumpable,     // no process of this user may be looked into
};

inline std::string text_of(Apart how) {
  constexpr std::array names{"UserNamespaces", "Capabilities", "NotDumpable"};
  return names[static_cast<size_t>(how)];
}

inline bool enter_user_namespace() {
  const std::string user = std::to_string(geteuid()), group = std::to_string(getegid());
  if (unshare(CLONE_NEWUSER) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << user + " " + user + " 1";
  std::ofstream("/proc/self/gid_map") << group + " " + group + " 1";
  return std::to_string(geteuid()) == user;
}

/// Each rank loses another one of the first.
inline bool lose_capability(int number) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> sets{};
  if (syscall(SYS_capget, &header, sets.data()) != 0) return false;
  const uint32_t lost = uint32_t{1} << CAP_SYS_PTRACE | uint32_t{1} << number;
  if ((sets[0].permitted & lost) != lost) return false;
  sets[0].effective &= ~lost;
  sets[0].permitted &= ~lost;
  return syscall(SYS_capset, &header, sets.data()) == 0;
}

/// Root may look into any process: as nobody, then.
inline bool forbid_to_look() {
  constexpr unsigned nobody = 65534;
  if (geteuid() == 0 && (setresgid(nobody, nobody, nobody) != 0 || setresuid(nobody, nobody, nobody) != 0))
    return false;
  return prctl(PR_SET_DUMPABLE, 0) == 0;
}

/// Of the calling rank; false: not permitted here. Rank 0, which has threads, stays in the namespace that it is in.
inline bool set_apart(Apart how, int rank) {
  switch (how) {
    case Apart::user_namespaces:
      return rank == 0 || enter_user_namespace();
    case Apart::capabilities:
      return lose_capability(rank);
    case Apart::not_dumpable:
      return forbid_to_look();
  }
  return false;
}

/// Tried in a child.
inline bool can_be_set_apart(Apart how) {
  const pid_t child = fork();
  if (child == 0) _exit(set_apart(how, 1) ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace epccl::tests
