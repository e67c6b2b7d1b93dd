// ncclConfig_t of programs built with older and newer headers, and ones that are wrong.
#include "nccl/config.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace epccl::nccl {
namespace {

ncclConfig_t initial() {
  return read_config(nullptr).value();
}

TEST(NcclConfig, WithoutOneNothingIsDefined) {
  const ncclConfig_t config = initial();
  EXPECT_EQ(config.blocking, nccl_undefined_int);
  EXPECT_EQ(config.nvlinkCentricSched, nccl_undefined_int);
  EXPECT_EQ(config.commName, nullptr);
}

TEST(NcclConfig, ReadsAsManyBytesAsTheProgramHas) {
  // A program of 2.14, whose struct ended with `blocking`; what lies behind it is not the struct's.
  ncclConfig_t config = initial();
  config.size = offsetof(ncclConfig_t, cgaClusterSize);
  config.version = 21400;
  config.blocking = 0;
  config.splitShare = 77;
  const auto read = read_config(&config);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->blocking, 0);
  EXPECT_EQ(read->splitShare, nccl_undefined_int);
}

TEST(NcclConfig, FieldsNewerThanItsVersionAreNotTheProgramS) {
  ncclConfig_t config = initial();
  config.version = 22605;
  config.trafficClass = 3;
  config.shrinkShare = 1;
  config.nvlsCTAs = -5;
  const auto read = read_config(&config);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->trafficClass, 3);
  EXPECT_EQ(read->shrinkShare, nccl_undefined_int);
  EXPECT_EQ(read->nvlsCTAs, nccl_undefined_int);
}

TEST(NcclConfig, OneOfANewerVersionIsReadAsFarAsItIsKnown) {
  std::vector<char> bytes(sizeof(ncclConfig_t) + 64, 0x5a);
  ncclConfig_t config = initial();
  config.size = bytes.size();
  config.version = 23100;
  config.nChannelsPerNetPeer = 4;
  std::memcpy(bytes.data(), &config, sizeof config);
  const auto read = read_config(reinterpret_cast<const ncclConfig_t*>(bytes.data()));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->nChannelsPerNetPeer, 4);
  EXPECT_EQ(read->size, sizeof config);
}

TEST(NcclConfig, AWrongMagicOrSizeIsRefusedAndNamed) {
  ncclConfig_t config = initial();
  config.magic = 0x1234;
  EXPECT_NE(read_config(&config).status().message().find("config.magic is 0x1234"), std::string::npos);
  config = initial();
  config.size = 3;
  EXPECT_NE(read_config(&config).status().message().find("config.size is 3"), std::string::npos);
}

TEST(NcclConfig, ValuesOutOfRangeAreRefusedAndNamed) {
  const auto refusal = [](int ncclConfig_t::*field, int value) {
    ncclConfig_t config = initial();
    config.*field = value;
    const auto read = read_config(&config);
    EXPECT_EQ(read.status().code(), Code::invalid_argument);
    return read.status().message();
  };
  EXPECT_EQ(refusal(&ncclConfig_t::blocking, 2), "config.blocking is 2: 0..1");
  EXPECT_EQ(refusal(&ncclConfig_t::minCTAs, 0), "config.minCTAs is 0: at least 1");
  EXPECT_EQ(refusal(&ncclConfig_t::CTAPolicy, 3), "config.CTAPolicy is 3: 0..2");
  EXPECT_EQ(refusal(&ncclConfig_t::splitShare, -1), "config.splitShare is -1: 0..1");
  ncclConfig_t config = initial();
  config.minCTAs = 8;
  config.maxCTAs = 4;
  EXPECT_EQ(read_config(&config).status().message(), "config.minCTAs is 8, config.maxCTAs is 4");
}

TEST(NcclConfig, SimInfoIsCheckedToo) {
  ncclSimInfo_t info{sizeof(ncclSimInfo_t), nccl_sim_info_magic, nccl_version, nccl_undefined_float};
  EXPECT_TRUE(check_sim_info(&info).ok());
  EXPECT_TRUE(check_sim_info(nullptr).ok());
  info.magic = 1;
  EXPECT_NE(check_sim_info(&info).message().find("simInfo.magic is 0x1"), std::string::npos);
}

}  // namespace
}  // namespace epccl::nccl
