#include "api/collectives/reductions.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>

#include "api/handles/arguments.hpp"
#include "base/per_process.hpp"
#include "base/reused_numbers.hpp"

namespace epccl::api {
namespace {

constexpr std::array<const char*, epcclNumOps> names{"sum", "prod", "max", "min", "avg"};

// Datatypes and operations are cast.
constexpr bool is(device::Element element, epcclDataType_t datatype) {
  return static_cast<int>(element) == static_cast<int>(datatype);
}
constexpr bool is(device::ReduceOp ours, epcclRedOp_t op) {
  return static_cast<int>(ours) == static_cast<int>(op);
}
using device::Element;
using device::ReduceOp;
static_assert(is(Element::int8, epcclInt8) && is(Element::uint8, epcclUint8) &&
              is(Element::int32, epcclInt32) && is(Element::uint32, epcclUint32) &&
              is(Element::int64, epcclInt64) && is(Element::uint64, epcclUint64) &&
              is(Element::float16, epcclFloat16) && is(Element::float32, epcclFloat32) &&
              is(Element::float64, epcclFloat64) && is(Element::bfloat16, epcclBfloat16) &&
              is(Element::float8e4m3, epcclFloat8e4m3) && is(Element::float8e5m2, epcclFloat8e5m2) &&
              device::element_kinds == epcclNumTypes);
static_assert(is(ReduceOp::sum, epcclSum) && is(ReduceOp::prod, epcclProd) && is(ReduceOp::max, epcclMax) &&
              is(ReduceOp::min, epcclMin) && is(ReduceOp::avg, epcclAvg) && epcclNumOps == 5);

struct Made {
  epcclComm_t comm = nullptr;
  epcclDataType_t datatype = epcclFloat32;
  uint64_t scalar_bits = 0;
  const void* device_scalar = nullptr;
};

// Numbers from here on are the NCCL binding's, which stand for one of EPCCL's and one of NVIDIA's library.
constexpr int end_of_numbers = 1 << 30;

struct Table {
  std::mutex mutex;
  std::map<int, Made> made;
  ReusedNumbers numbers{epcclNumOps, end_of_numbers};
  size_t swept_at = 64;

  /// Now and then: drops those of communicators that are gone.
  void sweep() {
    if (made.size() < swept_at) return;
    std::erase_if(made, [](const auto& entry) { return !find_handle(entry.second.comm).ok(); });
    swept_at = std::max<size_t>(64, 2 * made.size());
  }
};

Table& table() {
  static PerProcess<Table> it;
  return *it;
}

Status unknown(int op) {
  return error(Code::invalid_argument, "op {} is none of 0..{}, and none that was made and not destroyed", op,
               epcclNumOps - 1);
}

}  // namespace

Result<Operation> find_operation(epcclRedOp_t op, epcclDataType_t datatype, epcclComm_t comm, int ranks) {
  EPCCL_TRY(datatype_bytes(datatype).status());
  Operation operation;
  operation.reduction.element = static_cast<Element>(datatype);
  operation.reduction.ranks = ranks;
  if (op >= 0 && op < epcclNumOps) {
    operation.reduction.op = static_cast<ReduceOp>(op);
    operation.name = names[static_cast<size_t>(op)];
    return operation;
  }
  const std::lock_guard lock(table().mutex);
  const auto found = table().made.find(op);
  if (found == table().made.end()) return unknown(op);
  const Made& made = found->second;
  if (made.comm != comm)
    return error(Code::invalid_argument, "op {} was made for another communicator", static_cast<int>(op));
  if (made.datatype != datatype)
    return error(Code::invalid_argument, "op {} was made for datatype {}, not for {}", static_cast<int>(op),
                 datatype_name(made.datatype), datatype_name(datatype));
  operation.reduction.op = ReduceOp::premul_sum;
  operation.reduction.scalar_bits = made.scalar_bits;
  operation.device_scalar = made.device_scalar;
  operation.name = "premul_sum";
  return operation;
}

Result<epcclRedOp_t> add_premul_sum(const void* scalar, epcclDataType_t datatype,
                                    epcclScalarResidence_t residence, epcclComm_t comm) {
  EPCCL_ASSIGN(const uint64_t bytes, datatype_bytes(datatype));
  if (scalar == nullptr) return error(Code::invalid_argument, "scalar is NULL");
  Made made{comm, datatype, 0, nullptr};
  if (residence == epcclScalarHostImmediate)
    std::memcpy(&made.scalar_bits, scalar, bytes);
  else if (residence == epcclScalarDevice)
    made.device_scalar = scalar;
  else
    return error(Code::invalid_argument, "residence {} is unknown", static_cast<int>(residence));
  const std::lock_guard lock(table().mutex);
  table().sweep();
  const auto number = table().numbers.take([](int each) { return table().made.contains(each); });
  if (!number)
    return error(Code::invalid_usage, "{} operations were made and not destroyed", table().made.size());
  table().made.emplace(*number, made);
  return static_cast<epcclRedOp_t>(*number);
}

Status remove_operation(epcclRedOp_t op, epcclComm_t comm) {
  if (op >= 0 && op < epcclNumOps)
    return error(Code::invalid_argument, "op {} ({}) is not one that was made", static_cast<int>(op),
                 names[static_cast<size_t>(op)]);
  const std::lock_guard lock(table().mutex);
  const auto found = table().made.find(op);
  if (found == table().made.end()) return unknown(op);
  if (found->second.comm != comm)
    return error(Code::invalid_argument, "op {} was made for another communicator", static_cast<int>(op));
  table().made.erase(found);
  return {};
}

}  // namespace epccl::api
