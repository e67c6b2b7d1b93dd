#include "base/log.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "environment.hpp"

namespace epccl {
namespace {

class Log : public testing::Test {
 protected:
  Log() {
    std::string pattern = testing::TempDir() + "logXXXXXX";
    directory_ = mkdtemp(pattern.data());
    environment_.unset("EPCCL_CONF_FILE");
    environment_.unset("NCCL_DEBUG");
    environment_.unset("NCCL_DEBUG_SUBSYS");
    environment_.set("HOME", directory_);
    environment_.unset("EPCCL_DEBUG_SUBSYS");
    environment_.set("EPCCL_DEBUG_FILE", directory_ + "/log");
    char buffer[256] = {};
    gethostname(buffer, sizeof buffer - 1);
    host_ = std::string(buffer).substr(0, std::string(buffer).find('.'));
  }
  ~Log() override { std::filesystem::remove_all(directory_); }

  std::vector<std::string> lines(const std::string& name = "log") const {
    std::ifstream file(directory_ + "/" + name);
    std::vector<std::string> all;
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }
  std::string start() const { return fmt::format("{}:{} ", host_, getpid()); }

  std::string directory_, host_;
  test::Environment environment_;
};

TEST_F(Log, WritesNothingUnlessAsked) {
  environment_.unset("EPCCL_DEBUG");
  log::warn(log::init, 0, "unheard");
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/log"));
}

TEST_F(Log, AsksNcclsVariableWhereItsOwnIsNotSet) {
  environment_.unset("EPCCL_DEBUG");
  environment_.set("NCCL_DEBUG", "WARN");
  log::warn(log::init, -1, "heard");
  environment_.set("EPCCL_DEBUG", "NONE");
  log::warn(log::init, -1, "unheard");
  environment_.unset("EPCCL_DEBUG");
  environment_.set("NCCL_DEBUG", "ABORT");  // which is none of ours
  log::warn(log::init, -1, "unheard");
  EXPECT_EQ(lines(), (std::vector<std::string>{start() + "WARN INIT heard"}));
}

TEST_F(Log, TakesNcclsSubsystemsWithNcclsLevel) {
  environment_.unset("EPCCL_DEBUG");
  environment_.set("NCCL_DEBUG", "INFO");
  environment_.set("NCCL_DEBUG_SUBSYS", "GRAPH,NVLS,call");
  log::info(log::topo, -1, "graph");
  log::info(log::coll, -1, "call");
  log::info(log::init, -1, "unheard");
  environment_.set("NCCL_DEBUG_SUBSYS", "^BOOTSTRAP");
  log::info(log::init, -1, "unheard");
  log::info(log::net, -1, "net");
  environment_.set("EPCCL_DEBUG_SUBSYS", "INIT");  // comes first
  log::info(log::net, -1, "unheard");
  log::info(log::init, -1, "init");
  environment_.unset("EPCCL_DEBUG_SUBSYS");
  environment_.set("EPCCL_DEBUG", "INFO");  // with which NCCL's is not asked
  log::info(log::init, -1, "own");
  EXPECT_EQ(lines(), (std::vector<std::string>{start() + "INFO TOPO graph", start() + "INFO COLL call",
                                               start() + "INFO NET net", start() + "INFO INIT init",
                                               start() + "INFO INIT own"}));
}

TEST_F(Log, LineHasHostProcessRankLevelAndSubsystem) {
  environment_.set("EPCCL_DEBUG", "INFO");
  log::info(log::coll, 3, "alltoall {} bytes", 42);
  log::warn(log::net, -1, "no rank");
  EXPECT_EQ(lines(), (std::vector<std::string>{start() + "[3] INFO COLL alltoall 42 bytes",
                                               start() + "WARN NET no rank"}));
}

TEST_F(Log, LevelIsAThreshold) {
  environment_.set("EPCCL_DEBUG", "warn");
  log::warn(log::init, -1, "seen");
  log::info(log::init, -1, "unseen");
  log::trace(log::init, -1, "unseen");
  EXPECT_EQ(lines().size(), 1u);
}

// A loop of a million calls must not write a million lines, nor must ranks of one process that make them by turns.
TEST_F(Log, WhatEachCallSaysIsWrittenOnceAndWithTraceEveryTime) {
  const auto call = [](int rank, int count) { log::info_once(log::coll, rank, "alltoall count {}", count); };
  environment_.set("EPCCL_DEBUG", "INFO");
  for (const int count : {4, 4, 8, 4})
    for (const int rank : {0, 1}) call(rank, count);
  EXPECT_EQ(lines(),
            (std::vector<std::string>{
                start() + "[0] INFO COLL alltoall count 4", start() + "[1] INFO COLL alltoall count 4",
                start() + "[0] INFO COLL alltoall count 8", start() + "[1] INFO COLL alltoall count 8"}));
  environment_.set("EPCCL_DEBUG", "TRACE");
  environment_.set("EPCCL_DEBUG_FILE", directory_ + "/trace");
  for (const int count : {4, 4}) call(0, count);
  EXPECT_EQ(lines("trace"), (std::vector<std::string>{start() + "[0] INFO COLL alltoall count 4",
                                                      start() + "[0] TRACE COLL alltoall count 4"}));
  environment_.set("EPCCL_DEBUG", "WARN");
  environment_.set("EPCCL_DEBUG_FILE", directory_ + "/warn");
  call(0, 16);
  EXPECT_TRUE(lines("warn").empty());
}

TEST_F(Log, SubsystemsFilterAllButWarnings) {
  environment_.set("EPCCL_DEBUG", "TRACE");
  environment_.set("EPCCL_DEBUG_SUBSYS", "init,COLL");
  EXPECT_TRUE(log::enabled(log::Level::info, log::init));
  EXPECT_TRUE(log::enabled(log::Level::trace, log::coll));
  EXPECT_FALSE(log::enabled(log::Level::info, log::net));
  EXPECT_TRUE(log::enabled(log::Level::warn, log::net));
}

TEST_F(Log, CaretMeansAllButThese) {
  environment_.set("EPCCL_DEBUG", "INFO");
  environment_.set("EPCCL_DEBUG_SUBSYS", "^NET");
  EXPECT_FALSE(log::enabled(log::Level::info, log::net));
  EXPECT_TRUE(log::enabled(log::Level::info, log::shm));
}

TEST_F(Log, UnknownLevelIsWarnedAboutAndMeansWarn) {
  environment_.set("EPCCL_DEBUG", "LOUD");
  EXPECT_TRUE(log::enabled(log::Level::warn, log::init));
  EXPECT_FALSE(log::enabled(log::Level::info, log::init));
  ASSERT_EQ(lines().size(), 1u);
  EXPECT_NE(lines()[0].find("\"LOUD\""), std::string::npos);
}

TEST_F(Log, FileNameTakesHostAndProcess) {
  environment_.set("EPCCL_DEBUG", "INFO");
  environment_.set("EPCCL_DEBUG_FILE", directory_ + "/%h.%p.100%%.%x");
  log::info(log::init, -1, "here");
  EXPECT_EQ(lines(fmt::format("{}.{}.100%.%x", host_, getpid())).size(), 1u);
}

TEST_F(Log, GoesToAnotherFileWhereSettingsAreReadAgainAndKeepsNoOtherOpen) {
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  environment_.set("EPCCL_DEBUG", "INFO");
  log::info(log::init, -1, "first");
  const auto before = descriptors();
  for (const std::string name : {"a", "b", "c"}) {
    environment_.set("EPCCL_DEBUG_FILE", directory_ + "/" + name);
    log::info(log::init, -1, "{}", name);
    EXPECT_EQ(lines(name), std::vector<std::string>{start() + "INFO INIT " + name});
  }
  EXPECT_EQ(lines(), std::vector<std::string>{start() + "INFO INIT first"});
  EXPECT_EQ(descriptors(), before);
  environment_.unset("EPCCL_DEBUG_FILE");
  testing::internal::CaptureStderr();
  log::info(log::init, -1, "on standard error");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), start() + "INFO INIT on standard error\n");
}

/// What comes out of descriptor 2 when a line is written, after a child has made it a pipe by `take(pipe's end)`.
std::string said_into(const std::function<void(int)>& take) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    take(ends[1]);
    struct stat has {};
    struct stat wanted {};
    if (fstat(STDERR_FILENO, &has) != 0 || fstat(ends[1], &wanted) != 0 || has.st_ino != wanted.st_ino)
      _exit(1);
    log::warn(log::init, -1, "a line");
    _exit(0);
  }
  close(ends[1]);
  char text[256] = {};
  const ssize_t got = read(ends[0], text, sizeof text);
  close(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "descriptor 2 is not what it should be";
  return {text, static_cast<size_t>(std::max<ssize_t>(got, 0))};
}

TEST_F(Log, GoesWhereTheProgramDirectsItsStandardError) {
  environment_.set("EPCCL_DEBUG", "WARN");
  environment_.unset("EPCCL_DEBUG_FILE");
  EXPECT_NE(said_into([](int end) { dup2(end, STDERR_FILENO); }).find("a line\n"), std::string::npos);
}

TEST_F(Log, GoesIntoNoDescriptorThatHasGotTheNumberOfAClosedStandardError) {
  environment_.set("EPCCL_DEBUG", "WARN");
  environment_.unset("EPCCL_DEBUG_FILE");
  EXPECT_EQ(said_into([](int end) { dup3(end, STDERR_FILENO, O_CLOEXEC); }), "");
}

TEST_F(Log, FileHasNoStandardNumber) {
  environment_.set("EPCCL_DEBUG", "WARN");
  const std::string other = directory_ + "/other";
  const pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    environment_.set("EPCCL_DEBUG_FILE", other);
    log::warn(log::init, -1, "a line");
    _exit(fcntl(STDERR_FILENO, F_GETFD) < 0 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(lines("other").size(), 1u);
}

TEST_F(Log, MessageStaysOneLineWhateverIsInIt) {
  environment_.set("EPCCL_DEBUG", "INFO");
  log::info(log::init, -1, "a\nb\x1b[2Jc");
  EXPECT_EQ(lines(), (std::vector<std::string>{start() + "INFO INIT a b [2Jc"}));
}

TEST_F(Log, LinesOfThreadsAreNotTorn) {
  environment_.set("EPCCL_DEBUG", "INFO");
  constexpr int threads = 8, each = 200;
  {
    std::vector<std::jthread> writers;
    for (int t = 0; t < threads; ++t) {
      writers.emplace_back([t] {
        for (int i = 0; i < each; ++i)
          log::info(log::init, t, "{} {}", i, std::string(100, static_cast<char>('a' + t)));
      });
    }
  }
  std::set<std::string> wanted;
  for (int t = 0; t < threads; ++t) {
    for (int i = 0; i < each; ++i)
      wanted.insert(
          fmt::format("{}[{}] INFO INIT {} {}", start(), t, i, std::string(100, static_cast<char>('a' + t))));
  }
  const auto written = lines();
  EXPECT_EQ(written.size(), wanted.size());
  EXPECT_EQ(std::set<std::string>(written.begin(), written.end()), wanted);
}

// The file is a pipe: to open it for writing waits for a reader.
TEST_F(Log, IsWrittenByAChildThatWasForkedWhileAnotherThreadOpenedIt) {
  const std::string pipe = directory_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  environment_.set("EPCCL_DEBUG_FILE", pipe);
  environment_.set("EPCCL_DEBUG", "WARN");
  std::thread opens([] { log::warn(log::init, -1, "of the parent"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const pid_t child = fork();
  if (child == 0) {
    alarm(5);
    setenv("EPCCL_DEBUG_FILE", (directory_ + "/of_child").c_str(), 1);
    log::reload();
    log::warn(log::init, -1, "of the child");
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(lines("of_child").size(), 1U);
  std::ifstream reads(pipe);
  std::string line;
  EXPECT_TRUE(std::getline(reads, line) && line.ends_with("of the parent")) << line;
  opens.join();
}

}  // namespace
}  // namespace epccl
