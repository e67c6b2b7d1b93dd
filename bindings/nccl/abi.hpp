// The types of NCCL 2.28.9's binary interface, declared here so that the library builds where NCCL's headers are absent.
// tests/unit/nccl compares every size, offset and value with nccl.h where that is installed.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

struct ncclComm;
using ncclComm_t = ncclComm*;
struct ncclWindow_vidmem;
using ncclWindow_t = ncclWindow_vidmem*;
struct CUstream_st;
using cudaStream_t = CUstream_st*;

struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclNumResults = 8,
};

// A program may pass any int: in C++ too, every int is then a value, known or refused.
enum ncclRedOp_t : int { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4, ncclNumOps = 5 };

enum ncclDataType_t : int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12,
};

enum ncclScalarResidence_t : int { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 };

inline constexpr int nccl_version = 22809;
inline constexpr int nccl_undefined_int = INT_MIN;
inline constexpr float nccl_undefined_float = -1.0F;
inline constexpr unsigned nccl_config_magic = 0xcafebeef;
inline constexpr unsigned nccl_sim_info_magic = 0x74685283;

struct ncclConfig_t {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;        // 2.14
  int cgaClusterSize;  // 2.17, as the next three
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;    // 2.18
  int trafficClass;  // 2.26
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;  // 2.27, as the one before
  int nvlsCTAs;
  int nChannelsPerNetPeer;  // 2.28, as the next
  int nvlinkCentricSched;
};

struct ncclSimInfo_t {
  size_t size;
  unsigned magic;
  unsigned version;
  float estimatedTime;
};

// NCCL's interface for device code (nccl_device.h): what of it host code sees.

struct ncclTeam_t {
  int nRanks, rank, stride;
};

using ncclDevResourceHandle_t = uint32_t;
using ncclGinSignal_t = uint32_t;
using ncclGinCounter_t = uint32_t;

struct ncclDevResourceRequirements_t {
  ncclDevResourceRequirements_t* next;
  size_t bufferSize, bufferAlign;
  ncclDevResourceHandle_t* outBufferHandle;
  int ginSignalCount;
  int ginCounterCount;
  ncclGinSignal_t* outGinSignalStart;
  ncclGinCounter_t* outGinCounterStart;
};

struct ncclLsaBarrierHandle_t {
  ncclDevResourceHandle_t bufHandle;
  int nBarriers;
};

struct ncclGinBarrierHandle_t {
  ncclGinSignal_t signal0;
  ncclDevResourceHandle_t bufHandle;
};

struct ncclLLA2AHandle_t {
  ncclDevResourceHandle_t bufHandle;
  uint32_t nSlots;
};

// Only ever passed on.
struct ncclDevCommRequirements_t;
struct ncclDevComm_t;
