#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "ranks.hpp"

namespace epccl::tests {
namespace {

/// An alltoall of one number a rank.
struct Exchange {
  explicit Exchange(const RankContext& context, int number)
      : in(static_cast<size_t>(context.ranks), number), out(static_cast<size_t>(context.ranks), -1) {}
  epcclResult_t start(epcclComm_t comm, epcclStream_t stream) {
    return epcclAlltoall(in.data(), out.data(), 1, epcclInt32, comm, stream);
  }
  std::vector<int> in, out;
};

TEST(Events, OrderWorkOfTwoStreamsAndCommunicators) {
  // The stream waits for the event, not the communicator: the second has nothing to do with the first.
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    RankContext other = context;
    Comm first(context);
    if (context.rank == 0) {
      ASSERT_EQ(epcclGetUniqueId(&other.id), epcclSuccess);
    }
    std::vector<epcclUniqueId> ids(2, other.id), all(2);
    ASSERT_EQ(epcclAlltoall(ids.data(), all.data(), sizeof(epcclUniqueId), epcclInt8, first, nullptr),
              epcclSuccess);
    other.id = all[0];
    Comm second(other);
    epcclStream_t streams[2] = {};
    for (auto& stream : streams) ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    epcclEvent_t event = nullptr;
    ASSERT_EQ(epcclEventCreate(&event), epcclSuccess);
    Exchange there(context, context.rank + 1), back(context, 0);
    ASSERT_EQ(there.start(first, streams[0]), epcclSuccess);
    ASSERT_EQ(epcclEventRecord(event, streams[0]), epcclSuccess);
    ASSERT_EQ(epcclStreamWaitEvent(streams[1], event), epcclSuccess);
    EXPECT_EQ(epcclEventDestroy(event), epcclSuccess);
    ASSERT_EQ(epcclAlltoall(there.out.data(), back.out.data(), 1, epcclInt32, second, streams[1]),
              epcclSuccess);
    ASSERT_EQ(epcclStreamSynchronize(streams[1]), epcclSuccess);
    EXPECT_EQ(back.out, std::vector<int>(2, context.rank + 1));
    for (auto& stream : streams) EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

TEST(Events, AreInProgressUntilTheWorkBeforeThemIsOver) {
  int channel[2];
  ASSERT_EQ(pipe(channel), 0);
  run_ranks({{2}, {}, {}}, [&](const RankContext& context) {
    Comm comm(context);
    epcclStream_t stream = nullptr;
    epcclEvent_t event = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    ASSERT_EQ(epcclEventCreate(&event), epcclSuccess);
    EXPECT_EQ(epcclEventQuery(event), epcclSuccess);  // never recorded
    EXPECT_EQ(epcclEventSynchronize(event), epcclSuccess);
    EXPECT_EQ(epcclStreamWaitEvent(stream, event), epcclSuccess);
    Exchange on_stream(context, 7), inline_call(context, 8);
    if (context.rank == 0) {
      ASSERT_EQ(on_stream.start(comm, stream), epcclSuccess);
      ASSERT_EQ(epcclEventRecord(event, stream), epcclSuccess);
      EXPECT_EQ(epcclEventQuery(event), epcclInProgress);  // rank 1 comes only after this
      char sent = 1;
      EXPECT_EQ(write(channel[1], &sent, 1), 1);
      EXPECT_EQ(epcclStreamWaitEvent(nullptr, event), epcclSuccess);
    } else {
      char sent = 0;
      EXPECT_EQ(read(channel[0], &sent, 1), 1);
      ASSERT_EQ(on_stream.start(comm, stream), epcclSuccess);
      ASSERT_EQ(epcclEventRecord(event, stream), epcclSuccess);
      EXPECT_EQ(epcclEventSynchronize(event), epcclSuccess);
    }
    EXPECT_EQ(epcclEventQuery(event), epcclSuccess);
    EXPECT_EQ(on_stream.out, (std::vector{7, 7}));
    ASSERT_EQ(inline_call.start(comm, nullptr), epcclSuccess);
    ASSERT_EQ(epcclEventRecord(event, nullptr), epcclSuccess);
    EXPECT_EQ(epcclEventQuery(event), epcclSuccess);
    EXPECT_EQ(epcclEventDestroy(event), epcclSuccess);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
  close(channel[0]);
  close(channel[1]);
}

TEST(Events, CompleteAfterFailedWorkAndTheStreamHasTheError) {
  run_ranks({{2}, {}, {1}}, [](const RankContext& context) {
    Comm comm(context);
    if (context.rank == 1) _exit(0);  // without goodbye
    epcclStream_t stream = nullptr;
    epcclEvent_t event = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    ASSERT_EQ(epcclEventCreate(&event), epcclSuccess);
    Exchange exchange(context, 1);
    ASSERT_EQ(exchange.start(comm, stream), epcclSuccess);
    ASSERT_EQ(epcclEventRecord(event, stream), epcclSuccess);
    EXPECT_EQ(epcclEventSynchronize(event), epcclSuccess);
    EXPECT_EQ(epcclEventQuery(event), epcclSuccess);
    EXPECT_EQ(epcclStreamSynchronize(stream), epcclRemoteError);
    EXPECT_EQ(epcclEventDestroy(event), epcclSuccess);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

void expect_refused(epcclResult_t result, const std::string& part) {
  EXPECT_EQ(result, epcclInvalidArgument);
  EXPECT_NE(std::string(epcclGetLastError(nullptr)).find(part), std::string::npos)
      << epcclGetLastError(nullptr);
}

TEST(Events, ThatDoNotExistAreRefused) {
  epcclEvent_t event = nullptr;
  epcclStream_t stream = nullptr;
  int neither = 0;
  expect_refused(epcclEventCreate(nullptr), "event is NULL");
  ASSERT_EQ(epcclEventCreate(&event), epcclSuccess);
  ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
  expect_refused(epcclEventRecord(event, &neither), "is not a stream");
  expect_refused(epcclEventRecord(nullptr, stream), "event is NULL");
  expect_refused(epcclEventRecord(&neither, stream), "is not an event");
  expect_refused(epcclEventRecord(stream, stream), "is not an event");
  expect_refused(epcclStreamWaitEvent(&neither, event), "is not a stream");
  expect_refused(epcclStreamWaitEvent(stream, nullptr), "event is NULL");
  EXPECT_EQ(epcclEventDestroy(event), epcclSuccess);
  expect_refused(epcclEventQuery(event), "was destroyed");
  expect_refused(epcclEventSynchronize(event), "was destroyed");
  expect_refused(epcclEventDestroy(event), "was destroyed");
  EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
}

}  // namespace
}  // namespace epccl::tests
