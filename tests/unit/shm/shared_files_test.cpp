// Memory that ranks share, where a process may not make it, or may not look into its owner.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "node.hpp"

namespace epccl::transports {
namespace {

/// What a child says; "killed" where a signal ends it.
std::string said_by_child(const std::function<std::string()>& says) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = says();
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text(4096, 0);
  const ssize_t length = read(ends[0], text.data(), text.size());
  text.resize(length > 0 ? static_cast<size_t>(length) : 0);
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? text : "killed";
}

void expect_limit(const std::function<Status()>& make, const std::string& needed) {
  const std::string said = said_by_child([&] {
    const rlimit files{8192, 8192};
    setrlimit(RLIMIT_FSIZE, &files);
    return make().message();
  });
  EXPECT_NE(said.find("needs " + needed + " bytes, and no file of this process may have more than 8192"),
            std::string::npos)
      << said;
}

TEST(SharedFiles, ThatAreTooLargeAreAnErrorThatNamesTheLimit) {
  const auto segment = NodeSegment::create(spec_of(2));
  ASSERT_TRUE(segment.ok());
  expect_limit([] { return NodeSegment::create(spec_of(2)).take_status(); },
               std::to_string(segment->handle().memory.size));
  expect_limit([] { return device::allocate_window(100'000).take_status(); }, "100000");
}

/// Cannot be looked into while it lives, but by root.
class Undumpable {
 public:
  Undumpable() { EXPECT_EQ(prctl(PR_SET_DUMPABLE, 0), 0); }
  Undumpable(const Undumpable&) = delete;
  Undumpable& operator=(const Undumpable&) = delete;
  ~Undumpable() { prctl(PR_SET_DUMPABLE, 1); }
};

TEST(SharedFiles, OfAProcessThatMayNotBeLookedIntoSayWhyThatMayBe) {
  const auto segment = NodeSegment::create(spec_of(2));
  ASSERT_TRUE(segment.ok());
  const Undumpable process;
  const std::string said = said_by_child([&]() -> std::string {
    constexpr uid_t nobody = 65534;
    if (geteuid() == 0 && setresuid(nobody, nobody, nobody) != 0) return "cannot become another user";
    return NodeSegment::attach(spec_of(2), segment->handle()).take_status().message();
  });
  EXPECT_EQ(said.find("attaching to the node's shared segment: open of /proc/"), 0u) << said;
  for (const char* cause :
       {"another user's", "not dumpable", "setuid", "file capabilities", "/proc is hardened"})
    EXPECT_NE(said.find(cause), std::string::npos) << said;
}

TEST(SharedFiles, OfAProcessThatIsNotThereSaySo) {
  auto segment = NodeSegment::create(spec_of(2));
  ASSERT_TRUE(segment.ok());
  SegmentHandle handle = segment->handle();
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  ASSERT_EQ(waitpid(ended, nullptr, 0), ended);
  handle.memory.pid = ended;
  const std::string said = NodeSegment::attach(spec_of(2), handle).take_status().message();
  EXPECT_NE(said.find("that process has ended"), std::string::npos) << said;
}

}  // namespace
}  // namespace epccl::transports
