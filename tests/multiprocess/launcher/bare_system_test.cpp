// epccl-run where something is missing that every system has: in containers and sandboxes.
#include "run.hpp"

namespace epccl::test {
namespace {

using Words = std::vector<std::string>;

/// What runs the program that follows without /dev, without /proc, and with the /proc of another PID namespace.
const Words without_dev = {"unshare", "-m", "sh", "-c", "mount -t tmpfs none /dev && exec \"$@\"", "-"};
const Words without_proc = {
    "unshare", "-m", "sh", "-c", "umount -l /proc && test ! -e /proc/1 && exec \"$@\"", "-"};
const Words with_foreign_proc = {"unshare", "--pid", "--fork", "--kill-child"};

class LauncherOnABareSystem : public Launcher {
 protected:
  int run_in(Words words, const Words& arguments) {
    words.insert(words.end(), arguments.begin(), arguments.end());
    return wait(start_program(words));
  }
  bool can(const Words& bare) { return run_in(bare, {"true"}) == 0; }
};

TEST_F(LauncherOnABareSystem, NamesDevNullWhereThereIsNone) {
  if (!can(without_dev)) GTEST_SKIP() << "/dev cannot be taken away here";
  EXPECT_EQ(run_in(without_dev, {EPCCL_RUN, "-n", "2", "--grace", "0", "true"}), 126);
  EXPECT_NE(err().find("opening /dev/null, the input of rank 1: No such file or directory"),
            std::string::npos)
      << err();
}

TEST_F(LauncherOnABareSystem, EndsOrphansWithoutProc) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer has its options, and the leaks, from /proc";
#endif
  for (const Words& bare : {without_proc, with_foreign_proc}) {
    if (!can(bare)) GTEST_SKIP() << "no namespaces of its own here";
    std::filesystem::remove(directory_ + "/waits");
    EXPECT_EQ(run_in(bare, {EPCCL_RUN, "-n", "1", "sh", "-c",
                            "(setsid sh -c 'trap \"echo ended > $D/ended; exit\" TERM; echo > $D/waits; "
                            "for i in $(seq 1000); do sleep 0.01; done' &); "
                            "until test -e $D/waits; do sleep 0.01; done"}),
              0)
        << err();
    EXPECT_EQ(contents(directory_ + "/ended"), "ended\n");
    std::filesystem::remove(directory_ + "/ended");
  }
}

}  // namespace
}  // namespace epccl::test
