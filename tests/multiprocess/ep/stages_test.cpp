// How far started calls are, and waiting for a stage of them. Ranks stop at places of which the test says when they go on.
#include <gtest/gtest.h>
#include <unistd.h>

#include "setting.hpp"

namespace epccl::tests {
namespace {

/// One rank waits here until another one opens it.
class Gate {
 public:
  Gate() { EXPECT_EQ(pipe(ends_), 0); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    close(ends_[0]);
    close(ends_[1]);
  }
  void open() const {
    const char token = 1;
    EXPECT_EQ(write(ends_[1], &token, 1), 1);
  }
  void wait() const {
    char token = 0;
    EXPECT_EQ(read(ends_[0], &token, 1), 1);
  }

 private:
  int ends_[2] = {-1, -1};
};

epcclEpProgress_t progress_of(epcclEpHandle_t handle) {
  epcclEpProgress_t progress = EPCCL_EP_PROGRESS_INIT;
  EXPECT_EQ(epcclEpGetProgress(handle, &progress), epcclSuccess) << epcclGetLastError(nullptr);
  return progress;
}

void expect_calls(epcclEpHandle_t handle, uint64_t started, uint64_t past_stage1, uint64_t over) {
  const epcclEpProgress_t progress = progress_of(handle);
  EXPECT_EQ(progress.calls_started, started);
  EXPECT_EQ(progress.calls_past_stage1, past_stage1);
  EXPECT_EQ(progress.calls_over, over);
}

constexpr uint64_t row = 32;

/// Ranks 0 and 1 on one node, rank 2 on the other. Of a rank's four tokens rank 0 gets two, rank 1 two, and rank 2 three; three
/// have experts on the first node, and three on the second.
struct ThreeRanks {
  static RunOptions options() { return {{2, 1}, {{"EPCCL_TIMEOUT", "30"}}, {}}; }

  ThreeRanks(const RankContext& context, epcclComm_t comm) : setting(context, comm) {
    setting.config.expert_to_rank = owner.data();
    setting.config.strategy = EPCCL_EP_STRATEGY_DEDUP;
    setting.make_group();
    EXPECT_EQ(setting.make_handle(4, 2), epcclSuccess) << epcclGetLastError(nullptr);
    handle = setting.handle;
  }
  ~ThreeRanks() { setting.destroy(); }

  const std::vector<int> owner{0, 1, 2, 2};
  Setting setting;
  epcclEpHandle_t handle = nullptr;
};

TEST(EpStages, TheFirstIsOverWhileARankOfTheNodeIsNotThere) {
  const Gate gate;
  run_ranks(ThreeRanks::options(), [&](const RankContext& context) {
    Comm comm(context);
    ThreeRanks ranks(context, comm);
    expect_calls(ranks.handle, 0, 0, 0);
    if (context.rank == 1) gate.wait();
    ASSERT_EQ(ranks.setting.start_dispatch(), epcclSuccess);
    if (context.rank == 0) {
      ASSERT_EQ(epcclEpCompleteStage(ranks.handle, 1), epcclSuccess) << epcclGetLastError(nullptr);
      expect_calls(ranks.handle, 1, 1, 0);
      const epcclEpProgress_t progress = progress_of(ranks.handle);
      EXPECT_EQ(progress.stage1_bytes, (3 + 3) * row);  // its own tokens, and rank 2's
      EXPECT_EQ(progress.stage1_bytes_done, progress.stage1_bytes);
      // Its tokens and rank 2's, and rank 1's for itself, which it fetches: rank 1 cannot map its output.
      EXPECT_EQ(progress.stage2_bytes, (2 * (2 + 2) + 2) * row);
      EXPECT_LE(progress.stage2_bytes_done, 2 * 2 * row);  // what rank 1 is to get has to wait for it
      gate.open();
    }
    EXPECT_EQ(epcclEpCompleteStage(ranks.handle, 2), epcclSuccess) << epcclGetLastError(nullptr);
    expect_calls(ranks.handle, 1, 1, 1);
    EXPECT_EQ(progress_of(ranks.handle).stage1_bytes, 0U);
  });
}

TEST(EpStages, ACombineSendsWhenItsNodeHasAddedUp) {
  const Gate gate;
  run_ranks(ThreeRanks::options(), [&](const RankContext& context) {
    Comm comm(context);
    ThreeRanks ranks(context, comm);
    ASSERT_EQ(ranks.setting.dispatch(100, 8), epcclSuccess);
    expect_calls(ranks.handle, 0, 0, 0);  // nobody had to wait for this one later
    if (context.rank == 1) gate.wait();
    ASSERT_EQ(ranks.setting.start_combine(), epcclSuccess);
    if (context.rank == 0) {
      while (progress_of(ranks.handle).stage1_bytes == 0) usleep(100);  // until it begins
      const epcclEpProgress_t progress = progress_of(ranks.handle);
      EXPECT_EQ(progress.calls_past_stage1, 0U);
      EXPECT_EQ(progress.stage1_bytes, (3 + 3) * row);  // the sums for rank 2's tokens, and for its own
      EXPECT_LE(progress.stage1_bytes_done, 3 * row);   // the first need rank 1
      EXPECT_EQ(progress.stage2_bytes, 4 * row);        // its tokens
      gate.open();
    }
    EXPECT_EQ(epcclEpCompleteStage(ranks.handle, 1), epcclSuccess);
    EXPECT_EQ(progress_of(ranks.handle).calls_past_stage1, 1U);
    EXPECT_EQ(epcclEpComplete(ranks.handle), epcclSuccess);
    expect_calls(ranks.handle, 1, 1, 1);
    // Ones, added up once for each of a token's ranks.
    EXPECT_EQ(ranks.setting.combined[0], 2);
    EXPECT_EQ(ranks.setting.combined[8], 1);
  });
}

TEST(EpStages, CallsThatWaitForTheirTurnAreNotPastTheFirst) {
  const Gate gate;
  run_ranks(ThreeRanks::options(), [&](const RankContext& context) {
    Comm comm(context);
    ThreeRanks ranks(context, comm);
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    if (context.rank == 1) gate.wait();
    ASSERT_EQ(ranks.setting.start_dispatch(), epcclSuccess);
    ASSERT_EQ(ranks.setting.start_dispatch(stream), epcclSuccess);
    ASSERT_EQ(ranks.setting.start_combine(), epcclSuccess);
    if (context.rank == 0) {
      while (progress_of(ranks.handle).calls_past_stage1 == 0) usleep(100);
      expect_calls(ranks.handle, 3, 1, 0);
      EXPECT_EQ(progress_of(ranks.handle).stage1_bytes, (3 + 3) * row);  // of the one that runs
      gate.open();
    }
    EXPECT_EQ(epcclEpCompleteStage(ranks.handle, 1), epcclSuccess);
    EXPECT_EQ(progress_of(ranks.handle).calls_past_stage1, 3U);
    EXPECT_EQ(epcclEpCompleteStage(ranks.handle, 2), epcclSuccess);
    expect_calls(ranks.handle, 3, 3, 3);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

TEST(EpStages, OneMicroBatchUsesTheNetworkUnderTheSecondStageOfAnother) {
  const Gate gate;
  run_ranks(ThreeRanks::options(), [&](const RankContext& context) {
    Comm comm(context);
    RankContext other = context;
    if (context.rank == 0) {
      ASSERT_EQ(epcclGetUniqueId(&other.id), epcclSuccess);
    }
    std::vector<epcclUniqueId> ids(3, other.id), all(3);
    ASSERT_EQ(epcclAlltoall(ids.data(), all.data(), sizeof(epcclUniqueId), epcclInt8, comm, nullptr),
              epcclSuccess);
    other.id = all[0];
    Comm second_comm(other);
    ThreeRanks first(context, comm), second(other, second_comm);
    if (context.rank != 1) {
      ASSERT_EQ(first.setting.start_dispatch(), epcclSuccess);
    }
    if (context.rank == 0) {
      ASSERT_EQ(epcclEpCompleteStage(first.handle, 1), epcclSuccess);
    }
    ASSERT_EQ(second.setting.start_dispatch(), epcclSuccess);
    EXPECT_EQ(epcclEpComplete(second.handle), epcclSuccess) << epcclGetLastError(nullptr);
    if (context.rank == 0) {
      expect_calls(first.handle, 1, 1, 0);
      gate.open();
    }
    if (context.rank == 1) {
      gate.wait();
      ASSERT_EQ(first.setting.start_dispatch(), epcclSuccess);
    }
    EXPECT_EQ(epcclEpComplete(first.handle), epcclSuccess) << epcclGetLastError(nullptr);
  });
}

TEST(EpStages, AStreamCanWaitForOne) {
  const Gate gate;
  run_ranks(ThreeRanks::options(), [&](const RankContext& context) {
    Comm comm(context);
    ThreeRanks ranks(context, comm);
    epcclStream_t stream = nullptr;
    epcclEvent_t first = nullptr, second = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    ASSERT_EQ(epcclEventCreate(&first), epcclSuccess);
    ASSERT_EQ(epcclEventCreate(&second), epcclSuccess);
    if (context.rank == 1) gate.wait();
    ASSERT_EQ(ranks.setting.start_dispatch(), epcclSuccess);
    ASSERT_EQ(epcclEpStreamWaitStage(stream, ranks.handle, 1), epcclSuccess);
    ASSERT_EQ(epcclEventRecord(first, stream), epcclSuccess);
    ASSERT_EQ(epcclEpStreamWaitStage(stream, ranks.handle, 2), epcclSuccess);
    ASSERT_EQ(epcclEventRecord(second, stream), epcclSuccess);
    EXPECT_EQ(epcclEventSynchronize(first), epcclSuccess);
    if (context.rank == 0) {
      expect_calls(ranks.handle, 1, 1, 0);
      EXPECT_EQ(epcclEventQuery(second), epcclInProgress);
      gate.open();
    }
    EXPECT_EQ(epcclEventSynchronize(second), epcclSuccess);
    expect_calls(ranks.handle, 1, 1, 1);
    EXPECT_EQ(epcclEpStreamWaitStage(nullptr, ranks.handle, 2), epcclSuccess);
    for (epcclEvent_t event : {first, second}) EXPECT_EQ(epcclEventDestroy(event), epcclSuccess);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
  });
}

TEST(EpStages, OnOneNodeThereIsNoFirst) {
  const Gate gate;
  run_ranks({{2}, {{"EPCCL_TIMEOUT", "30"}}, {}}, [&](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    setting.make_group();
    ASSERT_EQ(setting.make_handle(4, 2), epcclSuccess);
    if (context.rank == 1) gate.wait();
    ASSERT_EQ(setting.start_dispatch(), epcclSuccess);
    if (context.rank == 0) {
      EXPECT_EQ(epcclEpCompleteStage(setting.handle, 1), epcclSuccess);
      expect_calls(setting.handle, 1, 1, 0);
      const epcclEpProgress_t progress = progress_of(setting.handle);
      EXPECT_EQ(progress.stage1_bytes, 0U);
      // Three of its tokens have experts on either rank; and it fetches as many.
      EXPECT_EQ(progress.stage2_bytes, (3 + 3 + 3) * row);
      gate.open();
    }
    EXPECT_EQ(epcclEpComplete(setting.handle), epcclSuccess);
    setting.destroy();
  });
}

TEST(EpStages, AFailureReleasesAllWhoWait) {
  const Gate gate;
  run_ranks({{1, 1}, {{"EPCCL_TIMEOUT", "30"}}, {1}}, [&](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    setting.make_group();
    ASSERT_EQ(setting.make_handle(4, 2), epcclSuccess);
    if (context.rank == 1) {
      gate.wait();  // until rank 0 has its handle, too
      _exit(0);     // without goodbye
    }
    gate.open();
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    ASSERT_EQ(setting.start_dispatch(), epcclSuccess);
    ASSERT_EQ(setting.start_dispatch(), epcclSuccess);  // waits for its turn, which never comes
    ASSERT_EQ(epcclEpStreamWaitStage(stream, setting.handle, 1), epcclSuccess);
    EXPECT_EQ(epcclEpCompleteStage(setting.handle, 1), epcclRemoteError);
    expect_error(context, epcclEpCompleteStage(setting.handle, 1), "rank 1");  // again
    EXPECT_EQ(epcclEpCompleteStage(setting.handle, 2), epcclRemoteError);
    expect_calls(setting.handle, 2, 2, 2);
    EXPECT_EQ(epcclEpCompleteStage(setting.handle, 1), epcclSuccess);  // told, and forgotten
    EXPECT_EQ(epcclStreamSynchronize(stream), epcclSuccess);  // the error is not the waiting stream's
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    comm.forget();
  });
}

// An abort only tells the call to end: the buffers are the caller's when it has.
TEST(EpStages, WhatAnAbortEndsIsStillWaitedFor) {
  const Gate handle_made;  // by rank 1, which the abort would end otherwise
  const Gate gate;
  run_ranks({{2}, {{"EPCCL_TIMEOUT", "30"}}, {}}, [&](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    setting.make_group();
    ASSERT_EQ(setting.make_handle(4, 2), epcclSuccess);
    if (context.rank == 0) {
      handle_made.wait();
      ASSERT_EQ(setting.start_dispatch(), epcclSuccess);
      EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
      epcclStream_t stream = nullptr;
      ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
      EXPECT_EQ(epcclEpStreamWaitStage(stream, setting.handle, 2), epcclSuccess);
      EXPECT_EQ(epcclStreamSynchronize(stream), epcclSuccess);
      expect_error(context, epcclEpComplete(setting.handle), "the communicator was aborted");
      expect_calls(setting.handle, 1, 1, 1);
      EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
      gate.open();
    } else {
      handle_made.open();
      gate.wait();
      EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    }
    comm.forget();
    setting.destroy();
  });
}

TEST(EpStages, ErrorsOfStartedCallsAreToldAfterTheEndOfTheCommunicator) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    setting.make_group();
    ASSERT_EQ(setting.make_handle_without_routing(), epcclSuccess);
    ASSERT_EQ(setting.start_dispatch(), epcclSuccess);
    EXPECT_EQ(epcclCommFinalize(comm), epcclSuccess);
    expect_error(context, epcclEpComplete(setting.handle), "no routing yet");
    expect_error(context, setting.start_dispatch(), "has been finalized");
    setting.destroy();
  });
}

TEST(EpStages, AnErrorThatAllRanksFindIsToldByBothHandleAndStream) {
  run_ranks({{1, 1}, {{"EPCCL_TIMEOUT", "30"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    setting.make_group();
    ASSERT_EQ(setting.make_handle_without_routing(), epcclSuccess);
    epcclStream_t stream = nullptr;
    ASSERT_EQ(epcclStreamCreate(&stream), epcclSuccess);
    ASSERT_EQ(setting.start_dispatch(stream), epcclSuccess);
    expect_error(context, epcclEpCompleteStage(setting.handle, 2), "no routing yet");
    EXPECT_EQ(epcclEpComplete(setting.handle), epcclSuccess);
    EXPECT_EQ(epcclStreamSynchronize(stream), epcclInvalidUsage);
    EXPECT_EQ(epcclStreamDestroy(stream), epcclSuccess);
    setting.destroy();
  });
}

TEST(EpStages, WrongArgumentsAreRefused) {
  run_ranks({{1}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    Setting setting(context, comm);
    setting.make_group();
    ASSERT_EQ(setting.make_handle(4, 2), epcclSuccess);
    epcclEpProgress_t progress = EPCCL_EP_PROGRESS_INIT;
    expect_error(context, epcclEpGetProgress(setting.handle, nullptr), "progress is NULL");
    expect_error(context, epcclEpGetProgress(nullptr, &progress), "is not an EP handle");
    progress.magic = 0;
    expect_error(context, epcclEpGetProgress(setting.handle, &progress), "magic");
    for (const int stage : {0, 3}) {
      expect_error(context, epcclEpCompleteStage(setting.handle, stage), "is neither 1 nor 2");
      expect_error(context, epcclEpStreamWaitStage(nullptr, setting.handle, stage), "is neither 1 nor 2");
    }
    expect_error(context, epcclEpCompleteStage(nullptr, 1), "is not an EP handle");
    expect_error(context, epcclEpStreamWaitStage(&setting, setting.handle, 1), "is not a stream");
    EXPECT_EQ(epcclEpCompleteStage(setting.handle, 1), epcclSuccess);  // nothing was started
    EXPECT_EQ(epcclGroupStart(), epcclSuccess);
    expect_error(context, setting.start_dispatch(), "cannot be part of a group");
    EXPECT_EQ(epcclGroupEnd(), epcclSuccess);
    EXPECT_EQ(progress_of(setting.handle).calls_started, 0U);
    setting.destroy();
  });
}

}  // namespace
}  // namespace epccl::tests
