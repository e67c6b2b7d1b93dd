#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>

#include "fabric.hpp"
#include "transports/ucx/ucx_config.hpp"

namespace epccl::transports::ucx {
namespace {

/// A variable of the environment, for the length of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

std::string value_of(const std::vector<Setting>& settings, const std::string& name) {
  const auto found =
      std::find_if(settings.begin(), settings.end(), [&](const auto& s) { return s.name == name; });
  return found == settings.end() ? "not set" : found->value;
}

class UcxConfig : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"UCX_TLS", "UCX_NET_DEVICES", "UCX_RNDV_THRESH", "UCX_LOG_LEVEL"})
      ::unsetenv(name);
  }
};

TEST_F(UcxConfig, IsEagerAtEverySizeOnTcpAlone) {
  EXPECT_EQ(value_of(preferred_settings(true), "RNDV_THRESH"), "inf");
  EXPECT_EQ(value_of(preferred_settings(false), "RNDV_THRESH"), "not set");
  // Copied, too: see ucx_config.cpp.
  EXPECT_EQ(value_of(preferred_settings(true), "ZCOPY_THRESH"), "inf");
  EXPECT_EQ(value_of(preferred_settings(false), "ZCOPY_THRESH"), "not set");
}

// A peer that is cut off before the first message to it would hold a call in connect().
TEST_F(UcxConfig, ConnectsWithoutWaiting) {
  for (const bool tcp_only : {true, false})
    EXPECT_EQ(value_of(preferred_settings(tcp_only), "TCP_CONN_NB"), "y");
  EXPECT_EQ(value_of(preferred_settings(true), "CONN_NB"), "y") << "as UCX 1.13 has it";
}

TEST_F(UcxConfig, NamesSettingsOfTheTransportAsBothOldAndNewUcxDo) {
  const auto settings = preferred_settings(true);
  EXPECT_NE(value_of(settings, "TCP_TX_SEG_SIZE"), "not set");
  EXPECT_EQ(value_of(settings, "TX_SEG_SIZE"), value_of(settings, "TCP_TX_SEG_SIZE"));
  EXPECT_EQ(value_of(settings, "RX_SEG_SIZE"), value_of(settings, "TCP_RX_SEG_SIZE"));
  const Variable receive_segment("UCX_TCP_RX_SEG_SIZE", "16k");
  EXPECT_EQ(value_of(preferred_settings(true), "TX_SEG_SIZE"), "not set")
      << "would be larger than the user's receive";
  EXPECT_TRUE(UcxTransport::create(0, 1, nullptr).ok());
}

TEST_F(UcxConfig, LeavesWhatTheUserSet) {
  EXPECT_EQ(value_of(preferred_settings(true), "TLS"), "^shm");
  const Variable transports("UCX_TLS", "tcp,self"), threshold("UCX_RNDV_THRESH", "64k"),
      log("UCX_LOG_LEVEL", "warn");
  EXPECT_EQ(value_of(preferred_settings(true), "TLS"), "not set");
  EXPECT_EQ(value_of(preferred_settings(true), "RNDV_THRESH"), "not set");
  EXPECT_EQ(value_of(preferred_settings(true), "LOG_LEVEL"), "not set");
}

TEST_F(UcxConfig, TakesTheUsersListOfTransportsOrDevicesForTcpOnly) {
  for (const char* list : {"tcp", "tcp,self,cuda_copy", "sm,tcp", "^ib", "^rc,ud,dc", "^sm,dc,ud,rc"}) {
    const Variable transports("UCX_TLS", list);
    EXPECT_TRUE(tcp_is_the_only_network(**Library::get())) << list;
  }
  const Variable devices("UCX_NET_DEVICES", "eth0,lo");
  EXPECT_TRUE(tcp_is_the_only_network(**Library::get()));
}

TEST_F(UcxConfig, LetsAUserChooseRendezvous) {
  const Variable threshold("UCX_RNDV_THRESH", "1000");
  Fabric<Ucx> fabric(2);
  Message message(0, 1, 1, 100000);
  ASSERT_TRUE(message.send(fabric).ok());
  fabric.settle();
  EXPECT_FALSE(message.sending.finished()) << "a rendezvous cannot end before the receive is posted";
  ASSERT_TRUE(message.recv(fabric).ok());
  ASSERT_TRUE(fabric.drive_until([&] { return message.finished(); }));
  message.expect_arrived();
}

TEST_F(UcxConfig, PrintsNothing) {
  const Variable unknown("UCX_NO_SUCH_SETTING", "1");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    Fabric<Ucx> fabric(2);
    Completion sending, receiving;
    char buffer[8] = {};
    (void)fabric[0].send(1, 1, buffer, 8, sending);
    (void)fabric[1].recv(0, 2, buffer, 8, receiving);
    fabric.settle();
    fabric[1].cancel_all();
    fabric.destroy(1);
    fabric.settle();
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(UcxConfig, LeavesTheProcessItsSignals) {
  restore_signal_handlers(**Library::get());
  struct sigaction action {};
  ASSERT_EQ(sigaction(SIGHUP, nullptr, &action), 0);
  EXPECT_EQ(action.sa_handler, SIG_DFL) << "UCX swallows SIGHUP";
}

}  // namespace
}  // namespace epccl::transports::ucx
