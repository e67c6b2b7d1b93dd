#include "reduction_ops.hpp"

#include "cuda_driver.hpp"
#include "entry_points.hpp"
#include "not_yet.hpp"
#include "route.hpp"

namespace epccl::nccl {
namespace {

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

ncclResult_t RedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                  ncclScalarResidence_t residence, ncclComm_t comm) {
  const CudaSidePtr side = find_real_side(comm);
  if (side == nullptr) return not_yet("ncclRedOpCreatePreMulSum");
  if (op == nullptr) return refuse({Code::invalid_argument, "ncclRedOpCreatePreMulSum: op is NULL"});
  ncclRedOp_t real{};
  const ncclResult_t result = call_real(
      *side, "ncclRedOpCreatePreMulSum", side->library->RedOpCreatePreMulSum,
      [&](auto function, ncclComm_t its) { return function(&real, scalar, datatype, residence, its); });
  if (result != ncclSuccess) return result;
  const std::lock_guard lock(side->mutex);
  *op = static_cast<ncclRedOp_t>(side->next_op++);
  side->ops[*op] = {real, std::nullopt};
  return ncclSuccess;
}

ncclResult_t RedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const CudaSidePtr side = find_real_side(comm);
  if (side == nullptr) return not_yet("ncclRedOpDestroy");
  const auto known = find_op(op, comm);
  if (!known)
    return refuse(error(Code::invalid_argument, "ncclRedOpDestroy: op {} is not one of this communicator's",
                        static_cast<int>(op)));
  {
    const std::lock_guard lock(side->mutex);
    side->ops.erase(op);
  }
  return call_real(*side, "ncclRedOpDestroy", side->library->RedOpDestroy,
                   [&](auto function, ncclComm_t its) { return function(known->real.value_or(op), its); });
}

}  // namespace epccl::nccl
