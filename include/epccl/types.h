/* EPCCL, what all of its headers speak of: the version, result codes, datatypes, operations, handles. */
#ifndef EPCCL_TYPES_H_
#define EPCCL_TYPES_H_

#define EPCCL_MAJOR 0
#define EPCCL_MINOR 1
#define EPCCL_PATCH 0
#define EPCCL_VERSION_CODE (EPCCL_MAJOR * 10000 + EPCCL_MINOR * 100 + EPCCL_PATCH)

#if defined(__GNUC__)
#define EPCCL_API __attribute__((visibility("default")))
#else
#define EPCCL_API
#endif

/* C callers may pass any int: in C++ too, every int is then a value, known or refused. */
#ifdef __cplusplus
#define EPCCL_ENUM enum : int
#else
#define EPCCL_ENUM enum
#endif

/** Result codes; the numbers are NCCL's. */
typedef EPCCL_ENUM {
  epcclSuccess = 0,
  epcclUnhandledDeviceError = 1, /**< a device (CUDA) call failed */
  epcclSystemError = 2,          /**< a system call or the network failed on this rank */
  epcclInternalError = 3,        /**< a defect of the library */
  epcclInvalidArgument = 4,      /**< an argument is wrong by itself */
  epcclInvalidUsage = 5,         /**< the call is wrong here: ranks disagree, finalized communicator, ... */
  epcclRemoteError = 6,          /**< another rank failed, died or stayed silent for EPCCL_TIMEOUT */
  epcclInProgress = 7,
  epcclNumResults = 8
} epcclResult_t;

/** Why something failed, where a program may go on by it: texts are for people. epcclGetLastErrorReason() */
typedef EPCCL_ENUM {
  epcclReasonNone = 0,          /**< no more than the result code says */
  epcclReasonTimeout = 1,       /**< a rank, this or another, has waited for a silent one for as long as it was to */
  epcclReasonUnreachable = 2    /**< a rank's machine does not answer any more */
} epcclReason_t;

/** Datatypes; the numbers are NCCL's. */
typedef EPCCL_ENUM {
  epcclInt8 = 0, epcclChar = 0,
  epcclUint8 = 1,
  epcclInt32 = 2, epcclInt = 2,
  epcclUint32 = 3,
  epcclInt64 = 4,
  epcclUint64 = 5,
  epcclFloat16 = 6, epcclHalf = 6,
  epcclFloat32 = 7, epcclFloat = 7,
  epcclFloat64 = 8, epcclDouble = 8,
  epcclBfloat16 = 9,
  epcclFloat8e4m3 = 10,
  epcclFloat8e5m2 = 11,
  epcclNumTypes = 12
} epcclDataType_t;

/** Reduction operations; the numbers are NCCL's. Further ones are made by epcclRedOpCreatePreMulSum(). Integers wrap; the
 *  average of integers is their sum, divided towards zero. float16, bfloat16 and float8 are added up in float32 and rounded where
 *  a rank passes its result on. max and min prefer numbers to NaNs. */
typedef EPCCL_ENUM {
  epcclSum = 0,
  epcclProd = 1,
  epcclMax = 2,
  epcclMin = 3,
  epcclAvg = 4,
  epcclNumOps = 5,
  epcclMaxRedOp = 0x7fffffff
} epcclRedOp_t;

/** Where the scalar of a pre-multiplied sum lies: on the device, read when the collective runs, or in host memory, read at once. */
typedef EPCCL_ENUM { epcclScalarDevice = 0, epcclScalarHostImmediate = 1 } epcclScalarResidence_t;

typedef struct epcclComm* epcclComm_t;

/** NULL, or a stream of epcclStreamCreate(); with CUDA memory a cudaStream_t, which converts to this type. */
typedef void* epcclStream_t;

/** An event of epcclEventCreate(). (A cudaEvent_t converts to this type, as streams do.) */
typedef void* epcclEvent_t;

#endif
