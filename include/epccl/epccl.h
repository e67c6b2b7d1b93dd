/* EPCCL: expert-parallel collective communication.
 *
 * NCCL's names, argument order, datatypes and semantics with the prefix `epccl`. A communicator belongs to one rank; its
 * calls are ordered as issued and every rank of it must issue the same collectives in the same order. Counts are in
 * elements of the datatype. Every function returns a code; epcclGetLastError() says what was wrong, with names and
 * numbers. The library never exits, and prints nothing unless EPCCL_DEBUG asks for it (docs/configuration.md).
 *
 * Streams: with the host device a NULL stream runs the call inline: it returns when the result is in place. A stream
 * made by epcclStreamCreate() is asynchronous: the call returns at once, work of one stream runs in order in the
 * background, and epcclStreamSynchronize() waits for it and returns the first error of the work since the last wait.
 * Events order streams among each other.
 * Buffers belong to the library until the work is complete.
 *
 * Threads: several communicators may be driven by several threads. Calls on one communicator must not overlap, except
 * epcclCommAbort() and epcclCommGetAsyncError(), which any thread may call at any time.
 */
#ifndef EPCCL_EPCCL_H_
#define EPCCL_EPCCL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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

typedef struct epcclComm* epcclComm_t;

/** NULL, or a stream of epcclStreamCreate(). (A cudaStream_t converts to this type: for the CUDA device to come.) */
typedef void* epcclStream_t;

/** An event of epcclEventCreate(). (A cudaEvent_t converts to this type, as streams do.) */
typedef void* epcclEvent_t;

#define EPCCL_UNIQUE_ID_BYTES 128
/** Address of a rendezvous, and the secret that admits to it. Send it to every rank by any means; keep it private. */
typedef struct { char internal[EPCCL_UNIQUE_ID_BYTES]; } epcclUniqueId;

/** Settings of one communicator. Set up with EPCCL_CONFIG_INITIALIZER, then change fields; versioned by size. */
typedef struct {
  size_t size;             /**< do not touch */
  unsigned int magic;      /**< do not touch */
  unsigned int version;    /**< do not touch */
  const char* algorithm;   /**< "flat", "two_stage" or "auto"; NULL: EPCCL_ALGO. Must be the same on every rank. */
  double timeout;          /**< seconds a rank waits for a silent peer; <= 0: EPCCL_TIMEOUT */
  const char* commName;    /**< for log lines; NULL: none */
} epcclConfig_t;

#define EPCCL_CONFIG_MAGIC 0xec1cafeu
#define EPCCL_CONFIG_INITIALIZER \
  { sizeof(epcclConfig_t), EPCCL_CONFIG_MAGIC, EPCCL_VERSION_CODE, NULL, 0.0, NULL }

/** Version of the library as EPCCL_VERSION_CODE. */
EPCCL_API epcclResult_t epcclGetVersion(int* version);

/** A sentence for a code. Never NULL; static. */
EPCCL_API const char* epcclGetErrorString(epcclResult_t result);

/** What went wrong in the calling thread's last failing call, or, where that thread has none, in `comm`'s background
 *  work (`comm` may be NULL). Never NULL; valid until the thread's next EPCCL call. */
EPCCL_API const char* epcclGetLastError(epcclComm_t comm);

/** Makes an id and opens the rendezvous it names in this process; call it on one rank (or in a process that lives as long
 *  as the communicator) and send the id to all. The address is EPCCL_COMM_ID's, or that of EPCCL_SOCKET_IFNAME, or of the
 *  first interface that is up and not loopback; the port is chosen by the system. */
EPCCL_API epcclResult_t epcclGetUniqueId(epcclUniqueId* uniqueId);

/** Joins a communicator of `nranks` ranks as `rank` (0 <= rank < nranks). Blocks until all have joined, at most the
 *  timeout. `*comm` is NULL on error. */
EPCCL_API epcclResult_t epcclCommInitRank(epcclComm_t* comm, int nranks, epcclUniqueId commId, int rank);

/** As epcclCommInitRank, with settings; `config` may be NULL. */
EPCCL_API epcclResult_t epcclCommInitRankConfig(epcclComm_t* comm, int nranks, epcclUniqueId commId, int rank,
                                                epcclConfig_t* config);

/** Joins the communicator of all processes that a launcher started: epccl-run, torchrun, Slurm, Open MPI, MPICH or PMI(x), whose
 *  environment tells rank and number of ranks; without a launcher this process is the only rank. Rank 0 makes the unique id and
 *  shares it within EPCCL_TIMEOUT (EPCCL_STORE, EPCCL_COMM_ID, or what the launcher offers: docs/configuration.md). `config` may
 *  be NULL. Collective over these processes: each makes as many calls of this function as every other. `*comm` is NULL on error. */
EPCCL_API epcclResult_t epcclCommInitLauncher(epcclComm_t* comm, epcclConfig_t* config);

/** Completes all work issued on `comm`; afterwards only count, rank, error queries, destroy and abort are allowed. */
EPCCL_API epcclResult_t epcclCommFinalize(epcclComm_t comm);

/** Finalizes if that has not been done, and frees. Returns within the timeout also when peers are gone. */
EPCCL_API epcclResult_t epcclCommDestroy(epcclComm_t comm);

/** Ends all work of `comm` with an error, here and on its other ranks, and frees it once no thread is inside a call on
 *  it. Any thread may call it while another one blocks in a collective; that call then returns epcclRemoteError. */
EPCCL_API epcclResult_t epcclCommAbort(epcclComm_t comm);

/** The first error of `comm`'s background or remote work; epcclSuccess while there is none. Never blocks. */
EPCCL_API epcclResult_t epcclCommGetAsyncError(epcclComm_t comm, epcclResult_t* asyncError);

EPCCL_API epcclResult_t epcclCommCount(epcclComm_t comm, int* count);
EPCCL_API epcclResult_t epcclCommUserRank(epcclComm_t comm, int* rank);

/** Memory that every rank of a node can map: transfers inside the node become one copy. Page aligned. Ordinary memory
 *  works too, a little slower. Not tied to a communicator. */
EPCCL_API epcclResult_t epcclMemAlloc(void** ptr, size_t size);
/** Frees memory of epcclMemAlloc; no work may be using it. NULL is allowed. */
EPCCL_API epcclResult_t epcclMemFree(void* ptr);

/** Announces a buffer that will be used often. Memory of epcclMemAlloc is mapped by peers at first use in any case; other
 *  memory gains nothing on the host device. `*handle` goes to epcclCommDeregister. */
EPCCL_API epcclResult_t epcclCommRegister(epcclComm_t comm, void* buff, size_t size, void** handle);
EPCCL_API epcclResult_t epcclCommDeregister(epcclComm_t comm, void* handle);

/** Opens a group: sends and receives up to the matching epcclGroupEnd() are started together, and cannot deadlock
 *  whatever their order. Groups nest. Per thread. */
EPCCL_API epcclResult_t epcclGroupStart(void);
/** Closes a group; the outermost one runs it. Returns the first error of the group's calls. */
EPCCL_API epcclResult_t epcclGroupEnd(void);

/** Sends `count` elements to `peer`, matched in order with its epcclRecv of the same count and datatype. `peer` may be
 *  this rank, inside a group. */
EPCCL_API epcclResult_t epcclSend(const void* sendbuff, size_t count, epcclDataType_t datatype, int peer, epcclComm_t comm,
                                  epcclStream_t stream);
EPCCL_API epcclResult_t epcclRecv(void* recvbuff, size_t count, epcclDataType_t datatype, int peer, epcclComm_t comm,
                                  epcclStream_t stream);

/** Every rank sends `count` elements to every rank: block d of `sendbuff` goes to rank d, block s of `recvbuff` comes
 *  from rank s. Both buffers hold nranks * count elements. They must not overlap. */
EPCCL_API epcclResult_t epcclAlltoall(const void* sendbuff, void* recvbuff, size_t count, epcclDataType_t datatype,
                                      epcclComm_t comm, epcclStream_t stream);

/** As epcclAlltoall with counts and displacements of each block, in elements: arrays of nranks entries, read before the
 *  call returns. sendcounts[d] here must equal recvcounts[this rank] on rank d. Blocks of `recvbuff` must not overlap
 *  each other. */
EPCCL_API epcclResult_t epcclAlltoallv(const void* sendbuff, const size_t sendcounts[], const size_t sdispls[],
                                       void* recvbuff, const size_t recvcounts[], const size_t rdispls[],
                                       epcclDataType_t datatype, epcclComm_t comm, epcclStream_t stream);

/** Host streams: ordered queues of background work, one thread each. */
EPCCL_API epcclResult_t epcclStreamCreate(epcclStream_t* stream);
/** Waits for all work of the stream; returns and forgets its first error. NULL: nothing to wait for. */
EPCCL_API epcclResult_t epcclStreamSynchronize(epcclStream_t stream);
/** epcclSuccess when all work is complete, epcclInProgress otherwise. */
EPCCL_API epcclResult_t epcclStreamQuery(epcclStream_t stream);
EPCCL_API epcclResult_t epcclStreamDestroy(epcclStream_t stream);

/* Events, as CUDA's: an event marks a place in a stream, for other streams and for threads to wait for. Any thread may use
 * them. An event is complete when the work that was in the stream at its last record is over, well or with an error: errors
 * stay with the stream (epcclStreamSynchronize), so that nothing waits for what cannot come. One that was never recorded is
 * complete. Calls of a group that is still open are not in their streams yet. */

/** Makes an event. `*event` is NULL on error. */
EPCCL_API epcclResult_t epcclEventCreate(epcclEvent_t* event);
/** Marks the end of the work that `stream` has now, in place of any earlier mark; who waits for an earlier one goes on waiting
 *  for that. NULL stream: its work is over, and so the event is complete. */
EPCCL_API epcclResult_t epcclEventRecord(epcclEvent_t event, epcclStream_t stream);
/** epcclSuccess when the event is complete, epcclInProgress otherwise. Never blocks. */
EPCCL_API epcclResult_t epcclEventQuery(epcclEvent_t event);
/** Waits until the event, as it was recorded last before this call, is complete. */
EPCCL_API epcclResult_t epcclEventSynchronize(epcclEvent_t event);
/** What is given to `stream` from now on waits until the event, as it was recorded last before this call, is complete. Returns
 *  at once; with a NULL stream, whose calls run inline, when the event is complete. */
EPCCL_API epcclResult_t epcclStreamWaitEvent(epcclStream_t stream, epcclEvent_t event);
/** Forgets the event, at once; whoever waits for it is served. */
EPCCL_API epcclResult_t epcclEventDestroy(epcclEvent_t event);

#ifdef __cplusplus
}
#endif
#endif
