// Reductions of integers over their whole range: sums and products are those modulo 2^n, and an average is such a sum, divided.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "ranks.hpp"

namespace nccl_programs {
namespace {

template <typename T>
constexpr ncclDataType_t datatype_of() {
  if constexpr (std::is_same_v<T, int8_t>) return ncclInt8;
  if constexpr (std::is_same_v<T, uint8_t>) return ncclUint8;
  if constexpr (std::is_same_v<T, int32_t>) return ncclInt32;
  if constexpr (std::is_same_v<T, uint32_t>) return ncclUint32;
  if constexpr (std::is_same_v<T, int64_t>) return ncclInt64;
  if constexpr (std::is_same_v<T, uint64_t>) return ncclUint64;
}

/// Any bits. Products are of odd numbers: else all of them would soon be zero.
template <typename T>
T wide(int rank, size_t index, bool odd) {
  uint64_t bits = (static_cast<uint64_t>(rank) << 32) + index + 1;
  bits = (bits ^ bits >> 33) * 0xff51afd7ed558ccd;
  bits = (bits ^ bits >> 33) * 0xc4ceb9fe1a85ec53;
  return static_cast<T>((bits ^ bits >> 33) | uint64_t{odd});
}

/// One operation (ncclNumOps: a pre-multiplied sum) on one type. What its ranks have repeats after a prime number of elements, so that
/// no chunk begins where another does.
template <typename T>
class WideReduction {
 public:
  WideReduction(int op, const RankContext& context, ncclComm_t comm)
      : op_(static_cast<ncclRedOp_t>(op)), comm_(comm), context_(context), made_(op == ncclNumOps) {
    for (size_t i = 0; i < period; ++i) result_.push_back(reduced(i));
    T mine = scalar(context.rank);
    if (made_) NCCL_OK(ncclRedOpCreatePreMulSum(&op_, &mine, type, ncclScalarHostImmediate, comm));
  }
  WideReduction(const WideReduction&) = delete;
  WideReduction& operator=(const WideReduction&) = delete;
  ~WideReduction() {
    if (made_) NCCL_OK(ncclRedOpDestroy(op_, comm_));
  }

  void all_reduce(size_t count) {
    const std::vector<T> in = inputs(count);
    std::vector<T> out(count);
    NCCL_OK(ncclAllReduce(in.data(), out.data(), count, type, op_, comm_, nullptr));
    expect_result(out, 0, "AllReduce");
  }
  void reduce(size_t count) {
    const int root = context_.ranks - 1;
    std::vector<T> data = inputs(count);
    NCCL_OK(ncclReduce(data.data(), data.data(), count, type, op_, root, comm_, nullptr));
    if (context_.rank == root) expect_result(data, 0, "Reduce");
  }
  void reduce_scatter(size_t count) {
    const std::vector<T> in = inputs(count * static_cast<size_t>(context_.ranks));
    std::vector<T> out(count);
    NCCL_OK(ncclReduceScatter(in.data(), out.data(), count, type, op_, comm_, nullptr));
    expect_result(out, count * static_cast<size_t>(context_.rank), "ReduceScatter");
  }

 private:
  static constexpr ncclDataType_t type = datatype_of<T>();
  static constexpr size_t period = 997;
  using Bits = uint64_t;  // whose low ones are those of the result, whatever the type

  static T scalar(int rank) { return wide<T>(rank, 1'000'000, false); }
  T input(int rank, size_t index) const { return wide<T>(rank, index % period, op_ == ncclProd); }

  T reduced(size_t index) const {
    Bits sum = 0, product = 1;
    T least = input(0, index), most = least;
    for (int rank = 0; rank < context_.ranks; ++rank) {
      const T value = input(rank, index);
      sum += static_cast<Bits>(value) * (made_ ? static_cast<Bits>(scalar(rank)) : 1);
      product *= static_cast<Bits>(value);
      least = std::min(least, value);
      most = std::max(most, value);
    }
    if (op_ == ncclProd) return static_cast<T>(product);
    if (op_ == ncclMin) return least;
    if (op_ == ncclMax) return most;
    const T whole = static_cast<T>(sum);
    return op_ == ncclAvg ? static_cast<T>(whole / static_cast<T>(context_.ranks)) : whole;
  }

  std::vector<T> inputs(size_t count) const {
    std::vector<T> all(count);
    for (size_t i = 0; i < count; ++i) all[i] = i < period ? input(context_.rank, i) : all[i - period];
    return all;
  }

  void expect_result(const std::vector<T>& got, size_t first, const char* what) const {
    for (size_t i = 0; i < got.size(); ++i) {
      const T want = result_[(first + i) % period];
      if (got[i] == want) continue;
      ADD_FAILURE() << what << ", datatype " << type << " op " << op_ << ", element " << i << " of "
                    << got.size() << ": " << +got[i] << ", not " << +want;
      return;
    }
  }

  ncclRedOp_t op_;
  const ncclComm_t comm_;
  const RankContext& context_;
  const bool made_;
  std::vector<T> result_;
};

template <typename T>
void run_of_type(const RankContext& context, ncclComm_t comm) {
  constexpr size_t large = 300'001;  // more than passes at once
  for (int op = ncclSum; op <= ncclNumOps; ++op) {
    WideReduction<T> reduction(op, context, comm);
    for (const size_t count : {size_t{3}, size_t{1001}, large}) {
      reduction.all_reduce(count);
      reduction.reduce(count);
      reduction.reduce_scatter(count == large ? large / static_cast<size_t>(context.ranks) : count);
    }
  }
}

class WrappingReductions : public testing::TestWithParam<Job> {};

TEST_P(WrappingReductions, AreThoseModuloTwoToTheNumberOfBits) {
  run_ranks(GetParam(), [](const RankContext& context) {
    Comm comm(context);
    run_of_type<int8_t>(context, comm);
    run_of_type<uint8_t>(context, comm);
    run_of_type<int32_t>(context, comm);
    run_of_type<uint32_t>(context, comm);
    run_of_type<int64_t>(context, comm);
    run_of_type<uint64_t>(context, comm);
  });
}

INSTANTIATE_TEST_SUITE_P(Jobs, WrappingReductions,
                         testing::Values(Job{As::threads, 2}, Job{As::processes, 5},
                                         Job{As::processes, 8, 4}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace nccl_programs
