// Pre-multiplied sums of communicators of both libraries.
#include "cuda_rank.hpp"

namespace nccl_programs {
namespace {

using testing::ElementsAre;

TEST(Passing, APremultipliedSumHasANumberInEachLibrary) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    const std::string real = made_in(asked_of_real());
    const DeviceMemory memory(64);
    float scalar = 0.5F;
    ncclRedOp_t op{};
    NCCL_OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comm));
    EXPECT_GE(static_cast<int>(op), static_cast<int>(ncclNumOps));
    asked_of_real();
    NCCL_OK(ncclAllReduce(memory.get(), memory.get(), 1, ncclFloat32, op, comm, nullptr));
    NCCL_OK(ncclRedOpDestroy(op, comm));
    const std::string text = text_of(memory.get());
    EXPECT_THAT(asked_of_real(), ElementsAre("AllReduce " + text + " " + text + " 1 7 100 " + real + " 0",
                                             "RedOpDestroy 100 " + real));
    NCCL_FAILS(ncclRedOpDestroy(op, comm), ncclInvalidArgument, " is not one of this communicator's");
  });
}

// Numbers of several communicators, and of the two libraries, are never mistaken for each other.
TEST(Passing, PremultipliedSumsAreKnownToTheirCommunicatorOnly) {
  run_ranks(with_gpus(2), [](const RankContext& context) {
    Comm comm(context);
    ncclComm_t other = nullptr;
    NCCL_OK(ncclCommSplit(comm, 0, context.rank, &other, nullptr));
    float two = 2, three = 3, one = 1;
    ncclRedOp_t gone{}, doubled{}, tripled{};
    NCCL_OK(ncclRedOpCreatePreMulSum(&gone, &three, ncclFloat32, ncclScalarHostImmediate, comm));
    NCCL_OK(ncclRedOpCreatePreMulSum(&doubled, &two, ncclFloat32, ncclScalarHostImmediate, comm));
    NCCL_OK(ncclRedOpCreatePreMulSum(&tripled, &three, ncclFloat32, ncclScalarHostImmediate, other));
    NCCL_FAILS(ncclRedOpDestroy(tripled, comm), ncclInvalidArgument, "is not one of this communicator's");
    NCCL_FAILS(ncclRedOpDestroy(doubled, other), ncclInvalidArgument, "is not one of this communicator's");
    NCCL_FAILS(ncclRedOpDestroy(ncclAvg, comm), ncclInvalidArgument, "op 4 is not one");
    NCCL_OK(ncclRedOpDestroy(gone, comm));
    for (const ncclRedOp_t wrong : {gone, tripled}) {
      float out = 0;
      NCCL_FAILS(ncclAllReduce(&one, &out, 1, ncclFloat32, wrong, comm, nullptr), ncclInvalidArgument, "op ");
    }
    float sum = 0;
    NCCL_OK(ncclAllReduce(&one, &sum, 1, ncclFloat32, doubled, comm, nullptr));
    EXPECT_EQ(sum, 4);
    NCCL_OK(ncclRedOpDestroy(doubled, comm));
    NCCL_OK(ncclRedOpDestroy(tripled, other));
    NCCL_OK(ncclCommDestroy(other));
  });
}

}  // namespace
}  // namespace nccl_programs
