#include "perf/src/report_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace epccl::perf {
namespace {

namespace fs = std::filesystem;

class AReportFile : public testing::Test {
 protected:
  AReportFile() {
    std::string pattern = testing::TempDir() + "reportXXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~AReportFile() override { fs::remove_all(folder_); }

  static std::string contents(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  static Status write(const std::string& path, const std::string& text) {
    EPCCL_ASSIGN(ReportFile file, ReportFile::open(path));
    return file.write(text);
  }
  auto files() const { return std::distance(fs::directory_iterator(folder_), {}); }

  fs::path folder_;
};

TEST_F(AReportFile, KeepsWhatWasThereUntilItIsWritten) {
  const fs::path path = folder_ / "report";
  std::ofstream(path) << "a longer text of before";
  auto file = ReportFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(file->is_replaced());
  EXPECT_EQ(contents(path), "a longer text of before");
  EXPECT_TRUE(file->write("new").ok());
  EXPECT_EQ(contents(path), "new");
  EXPECT_TRUE(file->write("newer").ok());
  EXPECT_EQ(contents(path), "newer");
  EXPECT_EQ(files(), 1);
}

TEST_F(AReportFile, IsNotThereBeforeItIsWritten) {
  const fs::path path = folder_ / "report";
  auto file = ReportFile::open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(files(), 0);
  EXPECT_TRUE(file->write("text").ok());
  EXPECT_EQ(contents(path), "text");
}

TEST_F(AReportFile, KeepsModeAndLinks) {
  const fs::path path = folder_ / "report", link = folder_ / "link";
  std::ofstream(path) << "old";
  fs::permissions(path, fs::perms(0640));
  fs::create_symlink("report", link);
  EXPECT_TRUE(write(link, "new").ok());
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(contents(path), "new");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0640));
}

TEST_F(AReportFile, ThatCannotBeWrittenIsRefusedAtOnce) {
  const auto no_folder = ReportFile::open(folder_ / "none" / "report");
  ASSERT_FALSE(no_folder.ok());
  EXPECT_NE(no_folder.status().message().find("none/report: No such file"), std::string::npos);
  EXPECT_FALSE(ReportFile::open(folder_).ok());
}

TEST_F(AReportFile, ThatIsADeviceOrAPipeIsWrittenItself) {
  const auto full = ReportFile::open("/dev/full");
  ASSERT_TRUE(full.ok());
  EXPECT_FALSE(full->is_replaced());
  EXPECT_NE(write("/dev/full", "text").message().find("No space left"), std::string::npos);
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const UniqueFd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
  EXPECT_TRUE(write(pipe, "text").ok());
  char got[8] = {};
  EXPECT_EQ(read(reader.get(), got, sizeof got), 4);
  EXPECT_TRUE(fs::is_fifo(pipe));
}

// ulimit -f, of which a signal tells who does not look.
TEST_F(AReportFile, ThatMayNotBecomeSoLargeIsAnErrorAndStaysWhatItWas) {
  const fs::path path = folder_ / "report";
  std::ofstream(path) << "old";
  const pid_t child = fork();
  if (child == 0) {
    const rlimit files{100, 100};
    setrlimit(RLIMIT_FSIZE, &files);
    const Status status = write(path, std::string(1000, 'x'));
    _exit(status.message().find("File too large") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(contents(path), "old");
  EXPECT_EQ(files(), 1);
}

// The folder takes no file beside it: here, for the name would be too long.
TEST_F(AReportFile, ThatNothingCanBeBesideIsWrittenItself) {
  const fs::path path = folder_ / std::string(255, 'x');
  std::ofstream(path) << "a longer text of before";
  EXPECT_TRUE(write(path, "new").ok());
  EXPECT_EQ(contents(path), "new");
}

}  // namespace
}  // namespace epccl::perf
