#include "base/settings.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <semaphore>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "environment.hpp"

namespace epccl {
namespace {

/// A directory that stands for the user's home, so that no file of the machine takes part.
class Settings : public testing::Test {
 protected:
  Settings() {
    std::string pattern = testing::TempDir() + "settingsXXXXXX";
    home_ = mkdtemp(pattern.data());
    environment_.set("HOME", home_);
    environment_.unset("EPCCL_CONF_FILE");
    for (const settings::Entry& entry : settings::table()) environment_.unset(entry.name);
  }
  ~Settings() override { std::filesystem::remove_all(home_); }

  std::string write(const std::string& name, const std::string& text) {
    const std::string path = home_ + "/" + name;
    std::ofstream(path) << text;
    settings::reload();
    return path;
  }

  std::string home_;
  test::Environment environment_;
};

TEST_F(Settings, DefaultAppliesWhereNothingIsSet) {
  EXPECT_EQ(settings::get("EPCCL_ALGO"), "auto");
  EXPECT_EQ(settings::get_explicit("EPCCL_ALGO"), std::nullopt);
}

TEST_F(Settings, FileGoesBeforeDefault) {
  write(".epccl.conf", "# a comment\n\n  EPCCL_ALGO = flat  \nEPCCL_NET=\"none\"\nno equals sign\n");
  EXPECT_EQ(settings::get("EPCCL_ALGO"), "flat");
  EXPECT_EQ(settings::get("EPCCL_NET"), "none");
}

TEST_F(Settings, EnvironmentGoesBeforeFile) {
  write(".epccl.conf", "EPCCL_ALGO=flat\n");
  environment_.set("EPCCL_ALGO", "two_stage");
  EXPECT_EQ(settings::get("EPCCL_ALGO"), "two_stage");
}

TEST_F(Settings, EmptyVariableCountsAsUnset) {
  write(".epccl.conf", "EPCCL_ALGO=flat\n");
  environment_.set("EPCCL_ALGO", "");
  EXPECT_EQ(settings::get("EPCCL_ALGO"), "flat");
}

TEST_F(Settings, NamedFileReplacesTheOneAtHome) {
  write(".epccl.conf", "EPCCL_ALGO=flat\nEPCCL_NET=none\n");
  environment_.set("EPCCL_CONF_FILE", write("other.conf", "EPCCL_ALGO=two_stage\n"));
  EXPECT_EQ(settings::get("EPCCL_ALGO"), "two_stage");
  EXPECT_EQ(settings::get("EPCCL_NET"), "auto");
}

TEST_F(Settings, FilesAreReadOnce) {
  write(".epccl.conf", "EPCCL_ALGO=flat\n");
  EXPECT_EQ(settings::get("EPCCL_ALGO"), "flat");
  std::ofstream(home_ + "/.epccl.conf") << "EPCCL_ALGO=two_stage\n";
  EXPECT_EQ(settings::get("EPCCL_ALGO"), "flat");
}

TEST_F(Settings, UnknownNamesAreFoundInEnvironmentAndFiles) {
  environment_.set("EPCCL_ALGOO", "flat");
  environment_.set("EPCCL_ALGO", "flat");
  write(".epccl.conf", "EPCCL_TIMEOUTS=3\nOTHER_NAME=3\n");
  EXPECT_EQ(settings::unknown_names(), (std::vector<std::string>{"EPCCL_ALGOO", "EPCCL_TIMEOUTS"}));
}

TEST_F(Settings, DefaultsAndExamplesAreAllowed) {
  EXPECT_TRUE(settings::check().ok()) << settings::check().message();
  for (const settings::Entry& entry : settings::table()) {
    if (!*entry.default_value) continue;
    environment_.set(entry.name, entry.default_value);
    EXPECT_TRUE(settings::check().ok()) << settings::check().message();
  }
  for (const auto& [name, value] :
       {std::pair("EPCCL_SPIN", "20"), std::pair("EPCCL_RAIL_FAILOVER", "yes"),
        std::pair("EPCCL_LINK_RATE", "4gbit"), std::pair("EPCCL_CMA", "0"),
        std::pair("EPCCL_MASTER_PORT", "29501"), std::pair("EPCCL_RAILS", "4"),
        std::pair("EPCCL_VERBS_EAGER_LIMIT", "64K"), std::pair("EPCCL_SOCKET_IFNAME", "^=eth0,lo"),
        std::pair("EPCCL_HOST_ENGINE_CORES", "2,3"), std::pair("EPCCL_HOST_ENGINE_GBPS", "2.5"),
        std::pair("EPCCL_COMM_ID", "[::1]:80"), std::pair("EPCCL_CUDA_STUCK", "0"),
        std::pair("EPCCL_DEBUG_SUBSYS", "a,,b"), std::pair("EPCCL_CONF_FILE", "/dev/null")}) {
    environment_.set(name, value);
    EXPECT_TRUE(settings::check().ok()) << settings::check().message();
  }
}

TEST_F(Settings, ValueThatTheTableDoesNotAllowIsNamedWithWhatItDoes) {
  for (const auto& [name, value, wanted] :
       {std::tuple("EPCCL_ALGO", "two-stage", "flat|two_stage|auto"),
        std::tuple("EPCCL_NCCL_GROUPS", "garbage", "auto|native|real"),
        std::tuple("EPCCL_CMA", " 0", "0|1|auto"),
        std::tuple("EPCCL_SPIN", "20us", "microseconds|auto"),
        std::tuple("EPCCL_STREAMING_SIZE", "much", "auto, or bytes"),
        std::tuple("EPCCL_RAILS", "99999999999999999999", "integer 1..4|auto"),
        std::tuple("EPCCL_RAILS", "0", "integer 1..4|auto"),
        std::tuple("EPCCL_VERBS_GID_INDEX", "-1", "integer 0..255|auto"),
        std::tuple("EPCCL_VERBS_EAGER_LIMIT", "65K", "bytes up to 64K"),
        std::tuple("EPCCL_HOST_ENGINES", "0", "integer 1..64"),
        std::tuple("EPCCL_HOST_ENGINE_CORES", "0,,1", "list of cores"),
        std::tuple("EPCCL_HOST_REDUCTION_CORES", "x", "list of cores"),
        std::tuple("EPCCL_HOST_ENGINE_CORES", "99999", "list of cores"),
        std::tuple("EPCCL_HOST_ENGINE_GBPS", "inf", "10^9 bytes per second above 0"),
        std::tuple("EPCCL_HOST_ENGINE_GBPS", "0", "above 0"),
        std::tuple("EPCCL_SOCKET_IFNAME", "eth,,ib", "without blanks or empty entries"),
        std::tuple("EPCCL_SOCKET_IFNAME", "^", "without blanks or empty entries"),
        std::tuple("EPCCL_SOCKET_IFNAME", "eth0, eth1", "without blanks or empty entries"),
        std::tuple("EPCCL_VERBS_DEVICES", "mlx5_0,", "without blanks or empty entries"),
        std::tuple("EPCCL_COMM_ID", "host:99999", "host:port"),
        std::tuple("EPCCL_LINK_RATE", "1e300tbit", "bits per second"),
        std::tuple("EPCCL_STAGE_SIZE", "0", "bytes above 0"),
        std::tuple("EPCCL_CHUNK_SIZE", "0", "auto, or bytes above 0"),
        std::tuple("EPCCL_TIMEOUT", "0", "seconds above 0"),
        std::tuple("EPCCL_TIMEOUT", "inf", "seconds"),
        std::tuple("EPCCL_TIMEOUT", "-3", "seconds"),
        std::tuple("EPCCL_NCCL_TIMEOUT", "0ms", "seconds above 0"),
        std::tuple("EPCCL_YIELD", "-1", "microseconds|auto"),
        std::tuple("EPCCL_RAIL_FAILOVER", "2", "0 or 1"),
        std::tuple("EPCCL_CUDA_AHEAD", "2", "0 or 1"),
        std::tuple("EPCCL_CHUNK_SIZE", "-1", "auto, or bytes"),
        std::tuple("EPCCL_VERBS_TIMEOUT", "nan", "seconds"),
        std::tuple("EPCCL_HOST_ENGINES", "two", "integer"),
        std::tuple("EPCCL_MASTER_PORT", "70000", "1 to 65535"),
        std::tuple("EPCCL_LINK_RATE", "fast", "bits per second")}) {
    test::Environment environment;
    environment.set(name, value);
    const Status status = settings::check();
    EXPECT_EQ(status.code(), Code::invalid_argument) << name;
    EXPECT_NE(status.message().find(fmt::format("{}=\"{}\"", name, value)), std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find(wanted), std::string::npos) << status.message();
  }
}

TEST_F(Settings, ValueOfAFileIsCheckedToo) {
  write(".epccl.conf", "EPCCL_NET=carrier-pigeon\n");
  EXPECT_NE(settings::check().message().find("EPCCL_NET=\"carrier-pigeon\""), std::string::npos);
}

TEST_F(Settings, FileThatIsNamedMustBeThere) {
  environment_.set("EPCCL_CONF_FILE", home_ + "/none.conf");
  EXPECT_NE(settings::check().message().find("EPCCL_CONF_FILE=\"" + home_ + "/none.conf\": No such file"),
            std::string::npos)
      << settings::check().message();
  write("none.conf", "");
  EXPECT_TRUE(settings::check().ok());
}

TEST_F(Settings, FileAtHomeThatCannotBeReadIsWarnedAboutOnce) {
  const std::string file = home_ + "/.epccl.conf", log = home_ + "/log";
  environment_.set("EPCCL_DEBUG", "WARN");
  environment_.set("EPCCL_DEBUG_FILE", log);
  const auto warned = [&](const std::string& why) {
    settings::reload();
    log::reload();
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(settings::check().ok());
    std::ifstream in(log);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    std::filesystem::remove(log);
    const auto at = text.find(fmt::format("WARN ENV {} cannot be read: {}", file, why));
    return at != std::string::npos && text.find('\n') == text.size() - 1;
  };
  EXPECT_FALSE(warned("")) << "it is not there";
  std::filesystem::create_directory(file);
  EXPECT_TRUE(warned("Is a directory"));
  std::filesystem::remove(file);
  std::filesystem::create_symlink(file, file);
  EXPECT_TRUE(warned("Too many levels"));
  std::filesystem::remove(file);
  std::ofstream(file) << "EPCCL_ALGO=flat\n";
  std::filesystem::permissions(file, std::filesystem::perms::none);
  if (geteuid() != 0) {
    EXPECT_TRUE(warned("Permission denied"));
  }
}

TEST_F(Settings, FileThatIsNamedIsNoFolder) {
  environment_.set("EPCCL_CONF_FILE", home_);
  EXPECT_NE(settings::check().message().find("EPCCL_CONF_FILE=\"" + home_ + "\": Is a directory"),
            std::string::npos)
      << settings::check().message();
}

TEST_F(Settings, FileThatIsNamedCanBeRead) {
  environment_.set("EPCCL_CONF_FILE", "/proc/self/mem");  // opens, and gives nothing
  EXPECT_NE(settings::check().message().find("EPCCL_CONF_FILE=\"/proc/self/mem\": Input/output error"),
            std::string::npos)
      << settings::check().message();
}

TEST_F(Settings, NameOfANodeIsNoLongerThanHubsTake) {
  environment_.set("EPCCL_HOSTID", std::string(255, 'x').c_str());
  EXPECT_TRUE(settings::check().ok()) << settings::check().message();
  environment_.set("EPCCL_HOSTID", std::string(256, 'x').c_str());
  EXPECT_NE(settings::check().message().find("EPCCL_HOSTID=\"xxxxxxxxxxxxxxxxxxxx...\""), std::string::npos)
      << settings::check().message();
}

TEST_F(Settings, LineOfAFileThatSetsNothingIsNamed) {
  for (const auto& [line, told] : {std::pair("EPCCL_ALGO flat", "EPCCL_ALGO flat"),
                                   std::pair("export EPCCL_ALGO=flat", "export EPCCL_ALGO=flat"),
                                   std::pair("\x7f"
                                             "ELF\x02=\x01",
                                             "?ELF?=?"),
                                   std::pair("=flat", "=flat")}) {
    settings::reload();
    const std::string path = write(".epccl.conf", fmt::format("# a comment\n\n{}\nEPCCL_NET=none\n", line));
    EXPECT_NE(settings::check().message().find(fmt::format("{}, line 3: \"{}\": want KEY=VALUE", path, told)),
              std::string::npos)
        << settings::check().message();
    EXPECT_EQ(settings::get("EPCCL_NET"), "none");
  }
}

TEST_F(Settings, EveryDefaultParsesAsWhatItIs) {
  for (const settings::Entry& entry : settings::table()) {
    const std::string_view kind = entry.values;
    EXPECT_TRUE(!kind.starts_with("bytes") || entry.default_value == std::string_view("auto") ||
                settings::get_bytes(entry.name).ok())
        << entry.name;
    EXPECT_TRUE(!kind.starts_with("seconds") || settings::get_seconds(entry.name).ok()) << entry.name;
  }
}

TEST_F(Settings, NamesAreUniqueAndPrefixed) {
  std::set<std::string> names;
  for (const settings::Entry& entry : settings::table()) {
    EXPECT_TRUE(std::string_view(entry.name).starts_with("EPCCL_")) << entry.name;
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name << " is there twice";
  }
}

TEST_F(Settings, DocumentationHasARowPerSetting) {
  const std::string text = settings::documentation();
  for (const settings::Entry& entry : settings::table())
    EXPECT_NE(text.find(fmt::format("| `{}` |", entry.name)), std::string::npos) << entry.name;
  EXPECT_NE(text.find("| `EPCCL_ALGO` | `auto` | flat\\|two_stage\\|auto |"), std::string::npos);
  for (size_t line = text.find("\n| `"); line != std::string::npos; line = text.find("\n| `", line + 1)) {
    const std::string row = text.substr(line + 1, text.find('\n', line + 1) - line - 1);
    int cells = 0;
    for (size_t i = 0; i < row.size(); ++i) cells += row[i] == '|' && (i == 0 || row[i - 1] != '\\');
    EXPECT_EQ(cells, 5) << row;
  }
}

// By hand it would be forgotten.
TEST_F(Settings, DocumentationSaysOfWhomAValueIs) {
  const std::string text = settings::documentation(), sentence = "Must be equal on all ranks.";
  for (const settings::Entry& entry : settings::table()) {
    EXPECT_EQ(std::string_view(entry.description).find("equal on all ranks."), std::string_view::npos)
        << entry.name << ": the column scope says that";
    const size_t row = text.find(fmt::format("| `{}` |", entry.name));
    const size_t said = text.substr(row, text.find('\n', row) - row).find(sentence);
    EXPECT_EQ(said != std::string::npos, entry.scope == settings::Scope::all_ranks) << entry.name;
  }
}

TEST_F(Settings, PlainValuesOfEqualOnesAreEqual) {
  for (const auto& [name, value, plain] :
       {std::tuple("EPCCL_CHUNK_SIZE", "auto", "auto"), std::tuple("EPCCL_CHUNK_SIZE", " 64 KiB", "65536"),
        std::tuple("EPCCL_RAIL_FAILOVER", "On", "1"), std::tuple("EPCCL_CARRIERS", "007", "7"),
        std::tuple("EPCCL_RAILS", "auto", "auto"), std::tuple("EPCCL_ALGO", "flat", "flat"),
        std::tuple("EPCCL_CMA", "1", "1")}) {
    environment_.set(name, value);
    EXPECT_EQ(settings::get_plain(name), plain) << name << "=" << value;
  }
  environment_.unset("EPCCL_SCRATCH_SIZE");
  EXPECT_EQ(settings::get_plain("EPCCL_SCRATCH_SIZE"), "8388608") << "the default";
}

TEST_F(Settings, WrongValueNamesSettingValueAndChoice) {
  environment_.set("EPCCL_TIMEOUT", "soon");
  const auto seconds = settings::get_seconds("EPCCL_TIMEOUT");
  ASSERT_FALSE(seconds.ok());
  EXPECT_EQ(seconds.status().code(), Code::invalid_argument);
  EXPECT_NE(seconds.status().message().find("EPCCL_TIMEOUT=\"soon\": want seconds"), std::string::npos)
      << seconds.status().message();
}

TEST_F(Settings, Seconds) {
  const auto parsed = [&](const std::string& text) {
    environment_.set("EPCCL_TIMEOUT", text);
    const auto value = settings::get_seconds("EPCCL_TIMEOUT");
    return value.ok() ? *value : -1.0;
  };
  EXPECT_DOUBLE_EQ(parsed("30"), 30);
  EXPECT_DOUBLE_EQ(parsed("0.5"), 0.5);
  EXPECT_DOUBLE_EQ(parsed("200ms"), 0.2);
  EXPECT_DOUBLE_EQ(parsed("2 s"), 2);
  for (const char* wrong : {"-1", "nan", "inf", "3 h", "1e999"}) EXPECT_DOUBLE_EQ(parsed(wrong), -1) << wrong;
}

TEST_F(Settings, Integers) {
  environment_.set("EPCCL_RANK", "-3");
  EXPECT_EQ(*settings::get_integer("EPCCL_RANK"), -3);
  for (const char* wrong : {"3x", "three", "99999999999999999999", "1.5"}) {
    environment_.set("EPCCL_RANK", wrong);
    EXPECT_FALSE(settings::get_integer("EPCCL_RANK").ok()) << wrong;
  }
}

TEST_F(Settings, Booleans) {
  const std::vector<std::pair<const char*, bool>> cases = {{"1", true},      {"yes", true}, {"TRUE", true},
                                                           {"on", true},     {"0", false},  {"no", false},
                                                           {"False", false}, {"off", false}};
  for (const auto& [text, wanted] : cases) {
    environment_.set("EPCCL_CMA", text);
    ASSERT_TRUE(settings::get_bool("EPCCL_CMA").ok()) << text;
    EXPECT_EQ(*settings::get_bool("EPCCL_CMA"), wanted) << text;
  }
  environment_.set("EPCCL_CMA", "auto");
  EXPECT_FALSE(settings::get_bool("EPCCL_CMA").ok());
}

TEST(ParseBytes, TakesUnitsThatArePowersOfTwo) {
  const std::vector<std::pair<const char*, uint64_t>> cases = {
      {"0", 0},
      {"64", 64},
      {"4K", 4096},
      {"4k", 4096},
      {"4KB", 4096},
      {"4KiB", 4096},
      {"8M", 8u << 20},
      {"1G", 1u << 30},
      {"2T", 2ull << 40},
      {" 12 K ", 12288},
      {"16777215T", 16777215ull << 40},
      {"18446744073709551615", std::numeric_limits<uint64_t>::max()}};
  for (const auto& [text, wanted] : cases) {
    const auto parsed = settings::parse_bytes(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.status().message();
    EXPECT_EQ(*parsed, wanted) << text;
  }
}

// The file is a pipe, so that its reader waits as long as the test wants.
TEST_F(Settings, AreReadByAChildThatWasForkedWhileAnotherThreadReadThem) {
  const std::string pipe = home_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  environment_.set("EPCCL_CONF_FILE", pipe);
  std::thread reader([] { EXPECT_EQ(settings::get("EPCCL_ALGO"), "local"); });
  std::ofstream file(pipe);  // open when the reader has opened it
  std::binary_semaphore has_ended(0);
  std::thread writer([&] {
    EXPECT_TRUE(has_ended.try_acquire_for(std::chrono::seconds(5))) << "fork() waits for the file";
    file << "EPCCL_ALGO=local\n";
    file.close();
  });
  const pid_t child = fork();
  if (child == 0) {
    alarm(5);
    std::ofstream(home_ + "/of_child") << "EPCCL_ALGO=flat\n";
    setenv("EPCCL_CONF_FILE", (home_ + "/of_child").c_str(), 1);
    _exit(settings::get("EPCCL_ALGO") == "flat" ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  has_ended.release();
  writer.join();
  reader.join();
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "K", "-1", "4X", "4KK", "1.5M", "18446744073709551616", "16777216T", "0x10", "4 4"})
    EXPECT_FALSE(settings::parse_bytes(text).ok()) << text;
}

TEST(ParseRate, TakesUnitsThatArePowersOfTen) {
  const std::vector<std::pair<const char*, double>> cases = {{"4gbit", 4e9},        {"1Gbit", 1e9},
                                                             {"100mbit", 1e8},      {"25e9", 25e9},
                                                             {"2.5 Gbit/s", 2.5e9}, {"400G", 4e11}};
  for (const auto& [text, wanted] : cases) {
    const auto parsed = settings::parse_rate(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.status().message();
    EXPECT_DOUBLE_EQ(*parsed, wanted) << text;
  }
  for (const char* text : {"", "0", "-4gbit", "fast", "4gbyte", "inf"})
    EXPECT_FALSE(settings::parse_rate(text).ok()) << text;
}

// docs/configuration.md is what `epccl-settings` prints.
TEST_F(Settings, ArePrintedAsTheDocumentationHasThem) {
  std::ifstream page(EPCCL_CONFIGURATION_PAGE);
  const std::string text((std::istreambuf_iterator<char>(page)), std::istreambuf_iterator<char>());
  EXPECT_EQ(text, settings::documentation());
}

}  // namespace
}  // namespace epccl
