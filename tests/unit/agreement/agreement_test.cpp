// The text that ranks compare follows from the settings' table: all that is of scope all_ranks is in it, by what it amounts to.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "../base/environment.hpp"
#include "algorithms/alltoall/algorithm.hpp"
#include "algorithms/collectives/collective.hpp"
#include "base/settings.hpp"
#include "runtime/comm/comm_config.hpp"
#include "runtime/comm/rank_info.hpp"

namespace epccl::runtime {
namespace {

using settings::Entry;
using settings::Scope;

std::vector<Entry> shared_settings() {
  std::vector<Entry> shared;
  for (const Entry& entry : settings::table())
    if (entry.scope == Scope::all_ranks) shared.push_back(entry);
  return shared;
}

std::vector<std::string> words_of(std::string_view kind) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= kind.size(); at += words.back().size() + 1)
    words.emplace_back(kind.substr(at, kind.find('|', at) - at));
  return words;
}

/// Of the values that one word of the table allows the ones that differ, the longest last; empty: no such word can be of scope
/// all_ranks, since it has no longest value, or equal ones that are not written alike (get_plain).
std::vector<std::string> values_of(const std::string& word) {
  const std::string up_to = "bytes up to ", integer = "integer ";
  if (word.starts_with(up_to))
    return {"16", std::to_string(settings::parse_bytes(word.substr(up_to.size())).value())};
  if (word.starts_with("bytes")) return {"16", "18446744073709551615"};
  if (word.starts_with(integer)) return {word.substr(word.find("..") + 2)};
  return word.find(' ') == std::string::npos && word != "microseconds" ? std::vector{word}
                                                                       : std::vector<std::string>{};
}

std::vector<std::string> values_of(const Entry& entry) {
  std::vector<std::string> values;
  const std::vector<std::string> words = words_of(entry.values);
  EXPECT_TRUE(words.size() > 1 || words[0].starts_with("bytes") || words[0].starts_with("integer "))
      << entry.name << ": any text";
  for (const std::string& word : words) {
    const std::vector<std::string> more = values_of(word);
    EXPECT_FALSE(more.empty()) << entry.name << ": " << word;
    values.insert(values.end(), more.begin(), more.end());
  }
  return values;
}

/// With nothing set but what a test sets.
class Agreement : public testing::Test {
 protected:
  Agreement() {
    environment_.set("EPCCL_CONF_FILE", "/dev/null");
    for (const Entry& entry : settings::table())
      if (entry.name != std::string_view("EPCCL_CONF_FILE")) environment_.unset(entry.name);
  }

  static std::string agreement(const CommOptions& options = {}) {
    const Result<CommConfig> config = read_comm_config(options);
    EXPECT_TRUE(config.ok()) << config.status().message();
    return config.ok() ? config->agreement : "";
  }

  static std::string agreement_with(const char* name, const std::string& value) {
    test::Environment environment;
    environment.set(name, value);
    return agreement();
  }

  test::Environment environment_;
};

TEST_F(Agreement, NamesWhatTheTableSaysMustBeEqual) {
  const std::string text = " " + agreement();
  for (const Entry& entry : settings::table()) {
    const std::string word = fmt::format(" {}=", std::string_view(entry.name).substr(6));
    EXPECT_EQ(text.find(word) != std::string::npos, entry.scope == Scope::all_ranks) << entry.name << text;
  }
}

TEST_F(Agreement, ADefaultThatIsSetIsNoDifference) {
  const std::string text = agreement();
  for (const Entry& entry : shared_settings())
    EXPECT_EQ(agreement_with(entry.name, entry.default_value), text) << entry.name;
}

TEST_F(Agreement, EveryValueThatActsOtherwiseIsADifference) {
  for (const Entry& entry : shared_settings()) {
    std::vector<std::string> values = values_of(entry);
    // Either may be done without the other's leave.
    if (entry.name == std::string_view("EPCCL_CMA")) std::erase(values, "1");
    for (const std::string& one : values)
      for (const std::string& other : values)
        EXPECT_EQ(agreement_with(entry.name, one) == agreement_with(entry.name, other), one == other)
            << entry.name << ": " << one << ", " << other;
  }
}

TEST_F(Agreement, HowAValueIsWrittenIsNone) {
  for (const auto& [name, one, other] :
       {std::tuple("EPCCL_CHUNK_SIZE", "128K", "131072"), std::tuple("EPCCL_SCRATCH_SIZE", "4MiB", "4096K"),
        std::tuple("EPCCL_RAIL_FAILOVER", "yes", "1"), std::tuple("EPCCL_CARRIERS", "2", "02"),
        std::tuple("EPCCL_CMA", "auto", "1")})
    EXPECT_EQ(agreement_with(name, one), agreement_with(name, other)) << name;
}

// Copy engines take larger chunks where none are asked for.
TEST_F(Agreement, OfChunksTheDefaultIsAuto) {
  EXPECT_NE((" " + agreement()).find(" CHUNK_SIZE=auto "), std::string::npos) << agreement();
  EXPECT_NE(agreement_with("EPCCL_CHUNK_SIZE", "128K").find(" CHUNK_SIZE=131072 "), std::string::npos);
  const CommConfig by_default = read_comm_config({}).value();
  EXPECT_EQ(by_default.parameters.chunk_bytes, 128U << 10);
  EXPECT_EQ(by_default.engine_parameters().chunk_bytes, 1U << 20);
  environment_.set("EPCCL_CHUNK_SIZE", "128K");
  EXPECT_EQ(read_comm_config({}).value().engine_parameters().chunk_bytes, 128U << 10);
}

// What is asked for holds for outputs that the cache would keep, too.
TEST_F(Agreement, OutputsOfAStreamingSizeThatIsSetAreWrittenPastTheCache) {
  CopyPolicy copies = read_comm_config({}).value().copies;
  copies.cached_bytes = 1 << 30;
  EXPECT_FALSE(copies.streams(0, copies.streaming_bytes));
  environment_.set("EPCCL_STREAMING_SIZE", "64K");
  copies = read_comm_config({}).value().copies;
  copies.cached_bytes = 1 << 30;
  EXPECT_TRUE(copies.streams(0, 64 << 10));
  EXPECT_FALSE(copies.streams(0, (64 << 10) - 1));
}

// What ranks agree about is what is used, whatever the environment says when a network is opened.
TEST_F(Agreement, WhatNetworksAreOpenedWithIsReadWithIt) {
  const NetworkSettings by_default = read_comm_config({}).value().network_settings;
  EXPECT_EQ(by_default.gpu_direct, GpuDirect::automatic);
  EXPECT_EQ(by_default.verbs_devices, "");
  EXPECT_FALSE(by_default.gid_index || by_default.rails || by_default.rail_failover);
  EXPECT_EQ(by_default.eager_limit, 8U << 10);
  environment_.set("EPCCL_GPU_DIRECT", "peermem");
  environment_.set("EPCCL_VERBS_DEVICES", "rxe%n,=mlx5_%n");
  environment_.set("EPCCL_HOSTID", "node7-12");
  environment_.set("EPCCL_VERBS_GID_INDEX", "0");
  environment_.set("EPCCL_RAILS", "3");
  environment_.set("EPCCL_RAIL_FAILOVER", "1");
  environment_.set("EPCCL_VERBS_EAGER_LIMIT", "16K");
  environment_.set("EPCCL_VERBS_TIMEOUT", "2.5");
  const NetworkSettings set = read_comm_config({}).value().network_settings;
  EXPECT_EQ(set.gpu_direct, GpuDirect::peermem);
  EXPECT_EQ(set.verbs_devices, "rxe12,=mlx5_12");
  EXPECT_EQ(set.gid_index, 0);
  EXPECT_EQ(set.rails, 3);
  EXPECT_TRUE(set.rail_failover);
  EXPECT_EQ(set.eager_limit, 16U << 10);
  EXPECT_EQ(set.silence, 2.5);
}

TEST_F(Agreement, OptionsOfTheCallGoBeforeSettings) {
  CommOptions options;
  options.algorithm = "flat";
  options.network = "none";
  options.engines = EngineUse::never;
  const std::string by_options = agreement(options);
  EXPECT_NE(by_options, agreement());
  environment_.set("EPCCL_ALGO", "flat");
  environment_.set("EPCCL_NET", "none");
  environment_.set("EPCCL_COPY_ENGINE", "never");
  EXPECT_EQ(agreement(), by_options);
  environment_.set("EPCCL_ALGO", "two_stage");
  environment_.set("EPCCL_NET", "tcp");
  environment_.set("EPCCL_COPY_ENGINE", "always");
  EXPECT_EQ(agreement(options), by_options);
}

/// As the table writes it: each name, and auto.
template <typename Names>
std::string one_of(const Names& names) {
  std::string text;
  for (const auto name : names) text += fmt::format("{}|", to_string(name));
  return text + "auto";
}

// The table stands below what it names.
TEST_F(Agreement, NamesEveryAlgorithmAndVariant) {
  for (const auto& [name, values] : {std::pair("EPCCL_ALGO", one_of(algorithms::all_algorithms)),
                                     std::pair("EPCCL_VARIANT", one_of(algorithms::variants))}) {
    const auto entry = std::ranges::find(settings::table(), std::string_view(name), &Entry::name);
    ASSERT_NE(entry, settings::table().end()) << name;
    EXPECT_EQ(entry->values, values) << name;
  }
}

TEST_F(Agreement, TheLongestHasRoomInAnIntroduction) {
  for (const Entry& entry : shared_settings()) {
    const std::vector<std::string> values = values_of(entry);
    ASSERT_FALSE(values.empty()) << entry.name;
    environment_.set(entry.name, *std::ranges::max_element(values, std::less{}, &std::string::size));
  }
  const Result<CommConfig> config = read_comm_config({});
  ASSERT_TRUE(config.ok()) << config.status().message();
  const Result<RankInfo> info = describe_this_rank(*config);
  ASSERT_TRUE(info.ok()) << info.status().message();
  EXPECT_EQ(info->agreement.data(), config->agreement);
  EXPECT_NE(config->agreement.find("STAGE_SIZE=18446744073709551615"), std::string::npos)
      << config->agreement;
}

}  // namespace
}  // namespace epccl::runtime
