// AllReduce, Reduce and ReduceScatter of every datatype with every operation, in place and not, against a sum in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "numbers.hpp"
#include "ranks.hpp"

namespace nccl_programs {
namespace {

constexpr double poison = 1;  // every datatype has it
constexpr double scalar_of_rank(int rank) {
  return rank % 2 == 0 ? 2 : 1;
}

/// One reduction: an operation (ncclNumOps: a pre-multiplied sum) on a datatype.
struct Case {
  ncclDataType_t type;
  ncclRedOp_t op;
  std::string text() const { return "datatype " + std::to_string(type) + " op " + std::to_string(op); }
};

constexpr size_t period = 1000;  // of what follows, in elements

/// Small enough for every partial result to be exact in every datatype, except averages. (wrapping_reductions_test.cpp has others.)
double input(const Case& each, int rank, size_t index) {
  const int i = static_cast<int>(index % period);
  switch (each.op) {
    case ncclProd:
      return (rank + i) % 4 == 0 ? 2 : 1;
    case ncclMax:
    case ncclMin:
      return (rank * 3 + i) % 7 - (is_signed(each.type) ? 3 : 0);
    case ncclAvg:
      return is_integer(each.type) ? (rank * 5 + i) % 7 : (rank + i) % 2;
    default:
      return (rank + i) % 4 == 0;
  }
}

double expected(const Case& each, int ranks, size_t index) {
  double result = input(each, 0, index) * (each.op == ncclNumOps ? scalar_of_rank(0) : 1);
  for (int rank = 1; rank < ranks; ++rank) {
    const double value = input(each, rank, index);
    if (each.op == ncclProd)
      result *= value;
    else if (each.op == ncclMax)
      result = std::max(result, value);
    else if (each.op == ncclMin)
      result = std::min(result, value);
    else
      result += value * (each.op == ncclNumOps ? scalar_of_rank(rank) : 1);
  }
  if (each.op != ncclAvg) return result;
  return is_integer(each.type) ? std::trunc(result / ranks) : result / ranks;
}

void expect_result(const Case& each, const Numbers& got, size_t at, size_t count, size_t first, int ranks,
                   const char* what) {
  const double allowed = each.op == ncclAvg && !is_integer(each.type) ? 2 * rounding(each.type) : 0;
  std::vector<double> wanted;
  for (size_t i = 0; i < std::min(count, period); ++i) wanted.push_back(expected(each, ranks, first + i));
  for (size_t i = 0; i < count; ++i) {
    const double want = wanted[i % period];
    if (std::abs(got.get(at + i) - want) <= allowed * std::abs(want)) continue;
    ADD_FAILURE() << what << ", " << each.text() << ", element " << i << ": " << got.get(at + i) << ", not "
                  << want;
    return;
  }
}

Numbers inputs(const Case& each, int rank, size_t count) {
  Numbers numbers(each.type, count);
  for (size_t i = 0; i < count; ++i) numbers.set(i, input(each, rank, i));
  return numbers;
}

Numbers poisoned(ncclDataType_t type, size_t count) {
  Numbers numbers(type, count);
  for (size_t i = 0; i < count; ++i) numbers.set(i, poison);
  return numbers;
}

/// The operation's handle for the length of a scope.
class Operation {
 public:
  Operation(const Case& each, int rank, ncclComm_t comm)
      : op_(each.op), comm_(comm), made_(each.op == ncclNumOps) {
    if (!made_) return;
    Numbers scalar(each.type, 1);
    scalar.set(0, scalar_of_rank(rank));
    NCCL_OK(ncclRedOpCreatePreMulSum(&op_, scalar.at(0), each.type, ncclScalarHostImmediate, comm));
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() {
    if (made_) NCCL_OK(ncclRedOpDestroy(op_, comm_));
  }
  operator ncclRedOp_t() const { return op_; }  // NOLINT: reads like the handle it is

 private:
  ncclRedOp_t op_;
  ncclComm_t comm_;
  bool made_;
};

void all_reduce(const Case& each, const RankContext& context, ncclComm_t comm, size_t count) {
  const Operation op(each, context.rank, comm);
  Numbers in = inputs(each, context.rank, count), out = poisoned(each.type, count);
  NCCL_OK(ncclAllReduce(in.at(0), out.at(0), count, each.type, op, comm, nullptr));
  expect_result(each, out, 0, count, 0, context.ranks, "AllReduce");
  NCCL_OK(ncclAllReduce(in.at(0), in.at(0), count, each.type, op, comm, nullptr));
  expect_result(each, in, 0, count, 0, context.ranks, "AllReduce in place");
}

void reduce(const Case& each, const RankContext& context, ncclComm_t comm, size_t count) {
  const Operation op(each, context.rank, comm);
  const int root = context.ranks - 1;
  const bool is_root = context.rank == root;
  Numbers in = inputs(each, context.rank, count), out = poisoned(each.type, count);
  NCCL_OK(ncclReduce(in.at(0), is_root ? out.at(0) : nullptr, count, each.type, op, root, comm, nullptr));
  if (is_root) expect_result(each, out, 0, count, 0, context.ranks, "Reduce");
  const auto before = in.bytes();
  NCCL_OK(ncclReduce(in.at(0), in.at(0), count, each.type, op, root, comm, nullptr));
  if (is_root)
    expect_result(each, in, 0, count, 0, context.ranks, "Reduce in place");
  else
    EXPECT_EQ(in.bytes(), before) << "a rank that is not the root keeps its input";
}

void reduce_scatter(const Case& each, const RankContext& context, ncclComm_t comm, size_t count) {
  const Operation op(each, context.rank, comm);
  const size_t first = count * static_cast<size_t>(context.rank);
  Numbers in = inputs(each, context.rank, count * static_cast<size_t>(context.ranks)),
          out = poisoned(each.type, count);
  NCCL_OK(ncclReduceScatter(in.at(0), out.at(0), count, each.type, op, comm, nullptr));
  expect_result(each, out, 0, count, first, context.ranks, "ReduceScatter");
  NCCL_OK(ncclReduceScatter(in.at(0), in.at(first), count, each.type, op, comm, nullptr));
  expect_result(each, in, first, count, first, context.ranks, "ReduceScatter in place");
}

class Reductions : public testing::TestWithParam<Job> {};

/// `large`: elements, more than pass at once.
void run_all(const Job& job, void (*reduction)(const Case&, const RankContext&, ncclComm_t, size_t),
             size_t large = 300'001) {
  run_ranks(job, [reduction, large](const RankContext& context) {
    Comm comm(context);
    for (const ncclDataType_t type : all_types)
      for (int op = ncclSum; op <= ncclNumOps; ++op)
        for (const size_t count : {size_t{1}, size_t{301}})
          reduction({type, static_cast<ncclRedOp_t>(op)}, context, comm, count);
    // Of each datatype with one of the operations.
    for (const ncclDataType_t type : all_types)
      reduction({type, static_cast<ncclRedOp_t>(type % (ncclNumOps + 1))}, context, comm, large);
    reduction({ncclFloat32, ncclSum}, context, comm, 100'003);
    reduction({ncclBfloat16, ncclAvg}, context, comm, 50'001);
    reduction({ncclInt64, ncclMax}, context, comm, 0);
  });
}

TEST_P(Reductions, AllReduce) {
  run_all(GetParam(), all_reduce);
}
TEST_P(Reductions, Reduce) {
  run_all(GetParam(), reduce);
}
TEST_P(Reductions, ReduceScatter) {
  run_all(GetParam(), reduce_scatter, 300'001 / static_cast<size_t>(GetParam().ranks));
}

INSTANTIATE_TEST_SUITE_P(Jobs, Reductions,
                         testing::Values(Job{As::threads, 2}, Job{As::processes, 5}, Job{As::processes, 8, 4},
                                         Job{As::threads, 16}),
                         testing::PrintToStringParamName());

TEST(Reduction, WrongOnesAreNamed) {
  ncclComm_t comm = nullptr;
  const int device = 0;
  NCCL_OK(ncclCommInitAll(&comm, 1, &device));
  float in = 1, out = 0;
  NCCL_FAILS(ncclAllReduce(&in, &out, 1, ncclFloat32, static_cast<ncclRedOp_t>(77), comm, nullptr),
             ncclInvalidArgument, "op 77");
  NCCL_FAILS(ncclReduce(&in, &out, 1, ncclFloat32, ncclSum, 4, comm, nullptr), ncclInvalidArgument, "root 4");
  ncclRedOp_t op{};
  NCCL_FAILS(ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat32, ncclScalarHostImmediate, comm),
             ncclInvalidArgument, "scalar is NULL");
  NCCL_OK(ncclRedOpCreatePreMulSum(&op, &in, ncclFloat32, ncclScalarDevice, comm));
  in = 3;  // read when the collective runs
  NCCL_OK(ncclAllReduce(&in, &out, 1, ncclFloat32, op, comm, nullptr));
  EXPECT_EQ(out, 9);
  NCCL_FAILS(ncclAllReduce(&in, &out, 1, ncclFloat64, op, comm, nullptr), ncclInvalidArgument,
             "was made for datatype");
  NCCL_OK(ncclRedOpDestroy(op, comm));
  EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclInvalidArgument);
  NCCL_OK(ncclCommDestroy(comm));
}

}  // namespace
}  // namespace nccl_programs
