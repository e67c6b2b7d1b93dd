#include "reduction_ops.hpp"

#include <limits>
#include <mutex>

#include "base/per_process.hpp"
#include "base/reused_numbers.hpp"
#include "cuda_driver.hpp"
#include "entry_points.hpp"
#include "route.hpp"

namespace epccl::nccl {
namespace {

// Numbers of operations with a part in each library. They are unlike EPCCL's own, which are less, and come again as late as possible: one
// that was destroyed, or is another communicator's, is unknown to both libraries.
struct Numbers {
  std::mutex mutex;
  ReusedNumbers numbers{1 << 30, std::numeric_limits<int>::max()};
};

Numbers& numbers() {
  static PerProcess<Numbers> instance;
  return *instance;
}

/// One that is not the communicator's.
ncclRedOp_t new_number(const CudaSide& side) {
  const std::lock_guard lock(numbers().mutex);
  return static_cast<ncclRedOp_t>(
      numbers().numbers.take([&](int each) { return side.ops.contains(each); }).value());
}

std::optional<BothOps> find_op(ncclRedOp_t op, ncclComm_t comm) {
  if (op < ncclNumOps) return std::nullopt;
  const CudaSidePtr side = find_real_side(comm);
  if (side == nullptr) return std::nullopt;
  const std::lock_guard lock(side->mutex);
  const auto it = side->ops.find(op);
  return it == side->ops.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace

ncclRedOp_t real_op(ncclRedOp_t op, ncclComm_t comm) {
  const auto known = find_op(op, comm);
  return known && known->real ? *known->real : op;
}

epcclRedOp_t native_op(ncclRedOp_t op, ncclComm_t comm) {
  const auto known = find_op(op, comm);
  return known && known->native ? *known->native : static_cast<epcclRedOp_t>(op);
}

namespace {

// A number of its own stands for the two that the libraries give. EPCCL takes a scalar in GPU memory for sums of such memory only.
ncclResult_t create_both(CudaSide& side, ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                         ncclScalarResidence_t residence, ncclComm_t comm) {
  if (op == nullptr) return refuse({Code::invalid_argument, "ncclRedOpCreatePreMulSum: op is NULL"});
  BothOps made;
  ncclRedOp_t real{};
  const ncclResult_t result = call_real(
      side, "ncclRedOpCreatePreMulSum", side.library->RedOpCreatePreMulSum,
      [&](auto function, ncclComm_t its) { return function(&real, scalar, datatype, residence, its); });
  if (result != ncclSuccess) return result;
  made.real = real;
  epcclRedOp_t mine{};
  if (epcclRedOpCreatePreMulSum(&mine, scalar, native(datatype),
                                static_cast<epcclScalarResidence_t>(residence), native(comm)) == epcclSuccess)
    made.native = mine;
  const std::lock_guard lock(side.mutex);
  *op = new_number(side);
  side.ops[*op] = made;
  return ncclSuccess;
}

ncclResult_t destroy_both(CudaSide& side, ncclRedOp_t op, ncclComm_t comm) {
  const auto known = find_op(op, comm);
  if (!known)
    return refuse(error(Code::invalid_argument, "ncclRedOpDestroy: op {} is not one of this communicator's",
                        static_cast<int>(op)));
  const ncclResult_t result =
      call_real(side, "ncclRedOpDestroy", side.library->RedOpDestroy,
                [&](auto function, ncclComm_t its) { return function(*known->real, its); });
  if (result != ncclSuccess) return result;
  if (known->native) (void)epcclRedOpDestroy(*known->native, native(comm));
  const std::lock_guard lock(side.mutex);
  side.ops.erase(op);
  return ncclSuccess;
}

}  // namespace

ncclResult_t RedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                  ncclScalarResidence_t residence, ncclComm_t comm) {
  if (const CudaSidePtr side = find_real_side(comm); side != nullptr)
    return create_both(*side, op, scalar, datatype, residence, comm);
  return from_native(epcclRedOpCreatePreMulSum(reinterpret_cast<epcclRedOp_t*>(op), scalar, native(datatype),
                                               static_cast<epcclScalarResidence_t>(residence), native(comm)));
}

ncclResult_t RedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  if (const CudaSidePtr side = find_real_side(comm); side != nullptr) return destroy_both(*side, op, comm);
  return from_native(epcclRedOpDestroy(static_cast<epcclRedOp_t>(op), native(comm)));
}

}  // namespace epccl::nccl
