/* EPCCL: expert-parallel collective communication.
 *
 * NCCL's names, argument order, datatypes and semantics with the prefix `epccl`. A communicator belongs to one rank; its
 * calls are ordered as issued and every rank of it must issue the same collectives in the same order. Counts are in
 * elements of the datatype. Every function returns a code; epcclGetLastError() says what was wrong, with names and
 * numbers. The library never exits, and prints nothing unless EPCCL_DEBUG asks for it (docs/configuration.md).
 *
 * Errors that any function may return, and that are not said again below: epcclInvalidArgument, before anything begins, where a
 * communicator, event, group or handle is NULL, was destroyed or was never one, where a host stream was destroyed or never was one,
 * where a pointer for a result is NULL, a datatype, operation or flag is unknown, a rank is not in 0..nranks-1, a buffer is NULL
 * with bytes to move, or counts make a buffer of any rank longer than the address space (2^47 bytes).
 * epcclInvalidUsage for what moves data or waits for other ranks on a communicator that was finalized, or was revoked (then, of a call
 * on a created stream, the stream tells), and, on all ranks, for collectives on one that has made 2^38 calls.
 * epcclRemoteError where another rank failed or kept this one waiting longer than the timeout; the communicator has failed then, and
 * is to be destroyed, aborted or shrunk.
 *
 * Streams: with the host device a NULL stream runs the call inline: it returns when the result is in place. A stream
 * made by epcclStreamCreate() is asynchronous: the call returns at once, work of one stream runs in order in the
 * background, and epcclStreamSynchronize() waits for it and returns the first error of the work since the last wait.
 * Events order streams among each other.
 * Buffers belong to the library until the work is complete.
 *
 * CUDA memory: all buffers of a call may lie in the memory of one GPU, which a communicator keeps to; the stream is then a
 * cudaStream_t of that GPU (NULL: its NULL stream), in whose order the call runs. It returns at once; but a communicator's first 1000
 * calls (EPCCL_CUDA_FIRST_CALLS), and all on the NULL stream, when all ranks have called (of one node, outside of groups), or when they
 * are over, or after 10 s: docs/cuda-streams.md. A failure shows in epcclCommGetAsyncError(). Copy engines move the data inside a
 * node; between nodes it goes directly where the network reaches GPU memory (GPUDirect), else in pieces through pinned host memory.
 * With EPCCL_COPY_ENGINE=never compute cores move the data of collectives where they can; elsewhere it passes pinned host memory.
 * docs/cuda.md.
 *   Collectives: all ranks pass CUDA memory, or none. Host buffers, pinned ones too, need a host stream.
 *   Sends and receives: the two ends may differ, and pinned host memory may be sent and received in the order of a cudaStream_t, too.
 *   Inside a node the receiver's copy engines copy from GPU memory to GPU memory. By way of pinned host memory go messages of up to
 *   4 KiB, those whose other end is host memory, those of memory that peers cannot map, and all with EPCCL_COPY_ENGINE=never.
 *
 * CUDA graphs: a call on CUDA memory may be issued to a stream that is being captured (in any mode); it becomes part of the graph,
 * and runs with every launch, with the sizes and counts of the capture. All ranks capture the same calls in the same order;
 * collectives may block until all ranks are in them (in a group: epcclGroupEnd() does). Launches are collectives: all ranks run the
 * same graphs of a communicator in the same order, one after the other on each rank, and calls that are not captured may come
 * between, on the same stream or ordered by events. Buffers, and scalars of reductions in them, must stay until the graph is
 * destroyed, and graphs are destroyed before their communicator. After a failure of the communicator, which
 * epcclCommGetAsyncError() tells, launches end, but what they wrote is undefined. A call that cannot be captured is refused with
 * epcclInvalidUsage, and the capture goes on. docs/cuda.md.
 *
 * Threads: several communicators may be driven by several threads, and several by one (in groups: see epcclGroupStart). Calls
 * on one communicator must not overlap, except those of functions that say "any thread": these may be called at any time.
 */
#ifndef EPCCL_EPCCL_H_
#define EPCCL_EPCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include <epccl/stream.h>
#include <epccl/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EPCCL_UNIQUE_ID_BYTES 128
/** Address of a rendezvous, and the secret that admits to it. Send it to every rank by any means; keep it private. */
typedef struct { char internal[EPCCL_UNIQUE_ID_BYTES]; } epcclUniqueId;

/** "Not set": the default applies. */
#define EPCCL_CONFIG_UNDEF_INT INT_MIN

/** Settings of one communicator. Set up with EPCCL_CONFIG_INITIALIZER, then change fields; versioned by size: what a program
 *  built against an older header does not have takes its default, what a newer one has beyond this is not read. */
typedef struct {
  size_t size;             /**< do not touch */
  unsigned int magic;      /**< do not touch */
  unsigned int version;    /**< do not touch */
  const char* algorithm;   /**< "flat", "two_stage" or "auto"; NULL: EPCCL_ALGO. Must be the same on every rank. */
  double timeout;          /**< seconds a rank waits for a silent peer; <= 0: EPCCL_TIMEOUT */
  const char* commName;    /**< for log lines; NULL: none */
  int blocking;            /**< 1 (default), or 0: see "Nonblocking communicators" below */
  int splitShare;          /**< 0 or 1. May epcclCommSplit share resources with the parent? A hint: on host memory nothing is
                                shared in either case, each communicator has a segment and connections of its own. */
  int shrinkShare;         /**< 0 or 1. As splitShare, for epcclCommShrink. */
  const char* netName;     /**< "tcp", "ucx", "verbs", "none", "auto" or "measured"; NULL: EPCCL_NET. Must be the same on every rank. */
  int maxCTAs;             /**< blocks that a reduction beside copy engines, and a copy by compute cores, uses at most, > 0;
                                undefined: EPCCL_MAX_CTAS */
  int CTAPolicy;           /**< EPCCL_CTA_POLICY_DEFAULT, _EFFICIENCY (as the default) or _ZERO: copies cost no compute core, they
                                are left to copy engines ("always"). Must be the same on every rank. */
  const char* copyEngine;  /**< "auto", "always" or "never"; NULL: CTAPolicy where that is _ZERO, else EPCCL_COPY_ENGINE. Must be
                                the same on every rank. */
  int firstCalls;          /**< 0 or 1. Do threads wait for the first calls on GPU memory (EPCCL_CUDA_FIRST_CALLS of them), so that no
                                stream waits for a thread while programs load their kernels? Undefined: as `blocking`. */
  int reserved;            /**< leave it undefined */
} epcclConfig_t;

#define EPCCL_CTA_POLICY_DEFAULT 0x00
#define EPCCL_CTA_POLICY_EFFICIENCY 0x01
#define EPCCL_CTA_POLICY_ZERO 0x02

#define EPCCL_CONFIG_MAGIC 0xec1cafeu
#define EPCCL_CONFIG_INITIALIZER                                                                     \
  { sizeof(epcclConfig_t), EPCCL_CONFIG_MAGIC, EPCCL_VERSION_CODE, NULL, 0.0, NULL,                  \
    EPCCL_CONFIG_UNDEF_INT, EPCCL_CONFIG_UNDEF_INT, EPCCL_CONFIG_UNDEF_INT, NULL,                     \
    EPCCL_CONFIG_UNDEF_INT, EPCCL_CONFIG_UNDEF_INT, NULL, EPCCL_CONFIG_UNDEF_INT,                     \
    EPCCL_CONFIG_UNDEF_INT }

/** Version of the library as EPCCL_VERSION_CODE. */
EPCCL_API epcclResult_t epcclGetVersion(int* version);

/** Has EPCCL_DEBUG, EPCCL_DEBUG_SUBSYS and EPCCL_DEBUG_FILE read from the environment again, here: for programs that change them
 *  while they run. Other settings stay as they were read. Any thread, at any time that nobody changes the environment.
 *  epcclSystemError: there is no memory for that; then the next line that is logged reads them. */
EPCCL_API epcclResult_t epcclResetDebugInit(void);

/** A sentence for a code. Never NULL; static. */
EPCCL_API const char* epcclGetErrorString(epcclResult_t result);

/** What went wrong in the calling thread's last failing call, or, where that thread has none, in `comm`'s background
 *  work (`comm` may be NULL). Never NULL; valid until the thread's next EPCCL call. Any thread. */
EPCCL_API const char* epcclGetLastError(epcclComm_t comm);

/** The reason of the failure whose text epcclGetLastError(comm) gives, of this rank or as another one told it. epcclReasonNone also:
 *  there is no failure. A later version may give others. Cannot fail. Any thread. */
EPCCL_API epcclReason_t epcclGetLastErrorReason(epcclComm_t comm);

/** Makes an id and opens the rendezvous it names in this process; call it on one rank (or in a process that lives as long
 *  as the communicator) and send the id to all. The address is EPCCL_COMM_ID's in rank 0's process; elsewhere, or without that
 *  setting, that of EPCCL_SOCKET_IFNAME, or of the interface that others can best reach. The port is EPCCL_COMM_ID's if the address is,
 *  it names one and no earlier id of this process uses it; otherwise the system chooses. epcclInvalidArgument or epcclSystemError: that
 *  address is none, or cannot be bound. epcclInvalidUsage: EPCCL_SOCKET_IFNAME (or, where that is unset, NCCL_SOCKET_IFNAME) names no
 *  interface that is up. Local; not part of a group. An id that nobody joins costs a thread and three descriptors
 *  until the process ends. */
EPCCL_API epcclResult_t epcclGetUniqueId(epcclUniqueId* uniqueId);

/** Joins a communicator of `nranks` ranks as `rank` (0 <= rank < nranks). Blocks until all have joined, at most the
 *  timeout. `*comm` is NULL on error. It is written before the call blocks, so that another thread can abort.
 *  epcclInvalidArgument also: a setting of the environment or of a file is not allowed, whether this communicator needs it or not.
 *  epcclSystemError also: the file that EPCCL_CONF_FILE names cannot be read.
 *  epcclInvalidUsage: ranks' settings differ where they must not, or two processes came as one rank. epcclRemoteError: not all ranks
 *  came within the timeout; the text says which did not.
 *
 *  Ranks may be processes, and threads of one process. One thread may be several ranks: then epcclCommInitRank (and split,
 *  shrink, finalize, and every collective) of all of them goes into one group, whose end runs them side by side. */
EPCCL_API epcclResult_t epcclCommInitRank(epcclComm_t* comm, int nranks, epcclUniqueId commId, int rank);

/** As epcclCommInitRank, with settings; `config` may be NULL. */
EPCCL_API epcclResult_t epcclCommInitRankConfig(epcclComm_t* comm, int nranks, epcclUniqueId commId, int rank,
                                                epcclConfig_t* config);

/** Joins the communicator of all processes that a launcher started: epccl-run, torchrun, Slurm, Open MPI, MPICH or PMI(x), whose
 *  environment tells rank and number of ranks; without a launcher this process is the only rank. Rank 0 makes the unique id and
 *  shares it within EPCCL_TIMEOUT: by EPCCL_STORE, EPCCL_COMM_ID, MASTER_ADDR and MASTER_PORT (those of several nodes need one of these,
 *  best the last: README.md), or what the launcher offers (docs/configuration.md). `config` may be NULL. Collective over these processes:
 *  each makes as many calls of this function as every other. `*comm` is NULL on error. epcclInvalidUsage also: the launcher's variables
 *  contradict each other, or nothing says where ranks can meet; the text tells what to set. */
EPCCL_API epcclResult_t epcclCommInitLauncher(epcclComm_t* comm, epcclConfig_t* config);

/** As epcclCommInitRankConfig with `nId` ids (1 <= nId <= nranks), the same ones in the same order on every rank. All ranks meet at the
 *  first; a process that made another one closes it. `config` may be NULL. epcclInvalidArgument: an entry is not a valid id, or occurs
 *  twice; the text names it. epcclInvalidUsage, on all ranks: a rank was given other ids. */
EPCCL_API epcclResult_t epcclCommInitRankScalable(epcclComm_t* newcomm, int nranks, int myrank, int nId,
                                                  epcclUniqueId* commIds, epcclConfig_t* config);

/** Makes a communicator whose `ndev` ranks are all in this process, and stores them in `comms` (ndev entries) in rank order;
 *  all are NULL on error. `devlist` (ndev device numbers, or NULL: 0, 1, ...) is what epcclCommDevice tells; a number may
 *  occur twice. epcclInvalidArgument: `ndev` is less than 1, or a number is negative. */
EPCCL_API epcclResult_t epcclCommInitAll(epcclComm_t* comms, int ndev, const int* devlist);

/* Nonblocking communicators (config.blocking = 0). What waits for other ranks to be made or ended (init, split, shrink, finalize)
 * returns epcclInProgress at once and goes on in the background. epcclCommGetAsyncError() then tells epcclInProgress until it
 * is done, and epcclSuccess or the error from then on. Until then other calls on the communicator return epcclInvalidArgument,
 * except epcclCommAbort, which ends it. During a split or shrink that holds for the parent, whose setting decides, as well as
 * for the new communicator.
 * Collectives, sends and receives are as on a blocking communicator, but for the first calls on GPU memory, if `firstCalls` does not say
 * otherwise: with a stream they return at once, with the NULL stream they return epcclSuccess when the result is in place (there is nothing else
 * to wait on), never epcclInProgress. A program that polls epcclCommGetAsyncError() after each call is right with both. */

/** Completes all work issued on `comm`, and leaves it: that this process then ends, however it does, is no failure to the other
 *  ranks. Afterwards only what asks (count, rank, device, errors, statistics, times), frees (operations, registrations, EP handles and
 *  groups), destroy and abort are allowed; a second finalize is epcclInvalidArgument. epcclInvalidUsage: the calling thread's open
 *  group has calls on it. Collective. */
EPCCL_API epcclResult_t epcclCommFinalize(epcclComm_t comm);

/** Finalizes if that has not been done, and frees. Returns within the timeout also when peers are gone. A nonblocking
 *  communicator with something in progress is refused: poll, or abort. Not collective; ranks that wait in a collective that this
 *  rank has not called get epcclInvalidUsage within a second, those that wait for its message within some. */
EPCCL_API epcclResult_t epcclCommDestroy(epcclComm_t comm);

/** Ends all work of `comm` with an error, here and on its other ranks, and frees it once no thread is inside a call on
 *  it. Any thread may call it, also while another one blocks in a collective, a split, a shrink or a finalize, or still makes `comm`;
 *  that call then returns epcclRemoteError. Other ranks' calls fail, too. Not through a group. */
EPCCL_API epcclResult_t epcclCommAbort(epcclComm_t comm);

/** What is left of a communicator whose work was ended. */
typedef struct epcclRemains* epcclRemains_t;
/** As epcclCommAbort(), but the memory of `comm` stays until epcclRemainsFree(*remains). A driver frees a GPU's only when all that
 *  runs there is through: what may be stuck, another library's calls that stand beside those of `comm`, say, is to be ended
 *  before. `*remains` is NULL on error. */
EPCCL_API epcclResult_t epcclCommAbortBeside(epcclComm_t comm, epcclRemains_t* remains);
/** Once. NULL: nothing is done. Any thread. */
EPCCL_API epcclResult_t epcclRemainsFree(epcclRemains_t remains);

/** As epcclCommAbort it ends all work of `comm` with an error, here and on its other ranks, but `comm` stays: once it is quiet
 *  (at the return, or, of a nonblocking communicator, when epcclCommGetAsyncError no longer says epcclInProgress) it can be
 *  split, shrunk, destroyed or aborted; what moves data returns epcclInvalidUsage, finalize and another revoke (which a finalized
 *  communicator refuses, too) epcclInvalidArgument. Every rank that goes on to split or shrink must call it, once. `revokeFlags`:
 *  EPCCL_REVOKE_DEFAULT. epcclInvalidUsage inside a group. Any thread. */
EPCCL_API epcclResult_t epcclCommRevoke(epcclComm_t comm, int revokeFlags);
#define EPCCL_REVOKE_DEFAULT 0x00

/** Makes new communicators out of the ranks of `comm`, all of which call it: those with the same `color` (>= 0) form one, ordered
 *  by `key`, then by old rank. EPCCL_SPLIT_NOCOLOR: in none, `*newcomm` is NULL. `config` NULL: the parent's. It comes after the
 *  work issued on `comm` before. epcclInvalidArgument: `color` is negative and not EPCCL_SPLIT_NOCOLOR. An error leaves
 *  `*newcomm` NULL, and `comm` as it was, unless the ranks could not even tell each other their colours. */
EPCCL_API epcclResult_t epcclCommSplit(epcclComm_t comm, int color, int key, epcclComm_t* newcomm, epcclConfig_t* config);
#define EPCCL_SPLIT_NOCOLOR (-1)

/** Makes a communicator of the ranks of `comm` that are not in `excludeRanksList` (`excludeRanksCount` >= 1 entries, the same
 *  ranks on all who call, in any order, and one may occur twice), in their old order. Exactly those ranks call it; the others may be dead, also
 *  the one whose process made the id.
 *  `config` NULL: the parent's. `*newcomm` is NULL on error; it may be tried again, with another list, say: epcclCommGetLostRanks() tells
 *  what is known. epcclRemoteError within some seconds: a rank that is to come has died, and the process that made the id lives, or they
 *  are on this rank's node (whose processes can be seen: not with EPCCL_CMA=0), or it is the first of those that are to come.
 *  Elsewhere nobody notices: it takes the timeout then, and the text names who is missing, with their ranks in `comm`, too.
 *  epcclInvalidArgument: the list is NULL or empty, has what is no rank of `comm`, or has this rank.
 *  epcclInvalidUsage, on all ranks that wait for them: two ranks keep each other and exclude different ranks, or several
 *  wait for each other in a circle, each for one whose list excludes it.
 *  EPCCL_SHRINK_DEFAULT: comes after the work issued on `comm` before; refused where that failed. The parent stays usable.
 *  EPCCL_SHRINK_ABORT: first ends all work of `comm` with an error, here and on its other ranks; afterwards it can be shrunk
 *  again, destroyed or aborted. */
EPCCL_API epcclResult_t epcclCommShrink(epcclComm_t comm, int* excludeRanksList, int excludeRanksCount, epcclComm_t* newcomm,
                                        epcclConfig_t* config, int shrinkFlags);
#define EPCCL_SHRINK_DEFAULT 0x00
#define EPCCL_SHRINK_ABORT 0x01

/** As epcclCommShrink(). With EPCCL_SHRINK_ABORT `beside` (may be NULL) is called with `comm` when the work of that has been ended, and
 *  before anything is made, on a thread of the library or the caller's: where another library's work beside it is to be ended, too.
 *  (To make and free memory of a GPU may wait for all that runs there.) It must not open groups. */
EPCCL_API epcclResult_t epcclCommShrinkBeside(epcclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                                              epcclComm_t* newcomm, epcclConfig_t* config, int shrinkFlags,
                                              void (*beside)(epcclComm_t comm));

/** The ranks of `comm`, in ascending order, of which this rank knows that they take no part in anything any more: their process has died or
 *  ended (or its machine does not answer any more), or they have left (finalized, destroyed, aborted). Never this rank, nor one that was
 *  silent until a timeout: it may live, and the timeout's text names whom it was for. Who decides to go on without such a rank ends its
 *  process, and this has it then. What a text says of a death, this says, too: ask it when a call has failed. It asks the process
 *  that made the id (of a split or shrink, the new communicator's rank 0), which hears of every death, half a second at most; looks at the
 *  processes of this rank's node, where these can be seen (not with EPCCL_CMA=0); and tells what was heard before, also in a shrink that
 *  failed: there a rank counts as dead whose machine refuses connections to where the others were to meet (as a firewall may, too). Where
 *  the process of the id is dead, nobody else tells of deaths on other nodes. So ranks may know different ones for a moment:
 *  epcclCommShrink() fails where they do, to be tried again with what this tells then (docs/recovery.md). Who was once told stays so.
 *  `*count`: how many there are; the first `capacity` of them are written to `ranks` (NULL is allowed where `capacity` is 0). Local; any
 *  thread; also of a communicator that has failed or was revoked or finalized. epcclInvalidArgument: `count` is NULL, `capacity` is
 *  negative, or `ranks` is NULL. */
EPCCL_API epcclResult_t epcclCommGetLostRanks(epcclComm_t comm, int* ranks, int capacity, int* count);

/** epcclInProgress while something is under way on a nonblocking communicator, or `comm` is still being made; then the first error of
 *  `comm`'s background or remote work (epcclGetLastError(comm) has its text), epcclSuccess while there is none. Never blocks; any
 *  thread. */
EPCCL_API epcclResult_t epcclCommGetAsyncError(epcclComm_t comm, epcclResult_t* asyncError);

/** epcclSuccess when no call on `comm` is under way, epcclInProgress otherwise: calls in other threads, in streams and in the
 *  background count, and started ones (ep.h), but not those of a group that is still open. Never blocks; any thread. */
EPCCL_API epcclResult_t epcclCommQuery(epcclComm_t comm);

/** Calls on `comm` that begin from now on wait `seconds` for a silent rank (infinity: as long as it takes; a dead rank ends them all
 *  the same), instead of config.timeout; <= 0 restores config.timeout. For this rank alone: ranks may differ. Never blocks; any
 *  thread; a call that is in progress keeps what it began with. Communicators that are made of `comm` later without a
 *  config have it, too; to make them takes no shorter waits than that, unless it is infinity. Ending `comm` is not affected, nor are
 *  replays of graphs whose kernels make the call: those keep config.timeout. epcclInvalidArgument: `seconds` is not a number. */
EPCCL_API epcclResult_t epcclCommSetTimeout(epcclComm_t comm, double seconds);

/** Number of ranks. As the two below it is local, never blocks, any thread may ask, and of a communicator that was finalized, or has
 *  failed since it was made, too. */
EPCCL_API epcclResult_t epcclCommCount(epcclComm_t comm, int* count);
/** This rank: 0 <= rank < number of ranks. */
EPCCL_API epcclResult_t epcclCommUserRank(epcclComm_t comm, int* rank);
/** The device number given to epcclCommInitAll; 0 for other communicators; of a split or shrink, the parent's. The host device
 *  makes nothing of it. */
EPCCL_API epcclResult_t epcclCommDevice(epcclComm_t comm, int* device);

/** In the place of a GPU's number: the one whose context is the calling thread's (the first, where there is none); none. */
#define EPCCL_CURRENT_GPU (-1)
#define EPCCL_NO_GPU (-2)

/** Memory that every rank of a node can map: transfers inside the node become one copy. Page aligned. Ordinary memory
 *  works too, a little slower. Not tied to a communicator. With EPCCL_DEVICE=cuda it is memory of the calling thread's current
 *  GPU (the first, where there is none). Local. `*ptr` is NULL on error, and where `size` is 0, which is none. epcclSystemError or
 *  epcclUnhandledDeviceError: there is no such memory left. */
EPCCL_API epcclResult_t epcclMemAlloc(void** ptr, size_t size);
/** The same, whatever EPCCL_DEVICE is, of a GPU of this process (CUDA_VISIBLE_DEVICES counts) or EPCCL_CURRENT_GPU, or of the host
 *  (EPCCL_NO_GPU). epcclMemFree() frees it. epcclInvalidArgument: `device` is less than EPCCL_NO_GPU. epcclUnhandledDeviceError: there is no
 *  such GPU, also because this build has no CUDA. */
EPCCL_API epcclResult_t epcclMemAllocOn(void** ptr, size_t size, int device);
/** Frees memory of epcclMemAlloc or epcclMemAllocOn; no work may be using it. NULL is allowed. epcclInvalidArgument: `ptr` is not what they
 *  gave, or is freed already. */
EPCCL_API epcclResult_t epcclMemFree(void* ptr);

/** Announces a buffer that will be used often. Memory of epcclMemAlloc is mapped by peers at first use in any case; other
 *  memory gains nothing on the host device. `*handle` goes to epcclCommDeregister, and is NULL on error. Local. A buffer may be
 *  registered more than once; each registration has a handle of its own. Any thread, as with the four below. */
EPCCL_API epcclResult_t epcclCommRegister(epcclComm_t comm, void* buff, size_t size, void** handle);
/** Ends a registration of epcclCommRegister(); the buffer stays. Not collective. epcclInvalidArgument: `handle` is none of `comm`'s,
 *  or was ended. */
EPCCL_API epcclResult_t epcclCommDeregister(epcclComm_t comm, void* handle);
/** 1: `handle` is a registration or a window of `comm` that has not been ended; 0: it is something else, another library's, say. No error, and
 *  the last error stays. */
EPCCL_API int epcclIsRegistration(epcclComm_t comm, const void* handle);

/** A window of epcclCommWindowRegister(). */
typedef struct epcclWindow* epcclWindow_t;
#define EPCCL_WIN_DEFAULT 0x00
#define EPCCL_WIN_COLL_SYMMETRIC 0x01
/** As epcclCommRegister, for NCCL's windows: on the host device the two are the same. Every rank calls it with a buffer of its
 *  own; it does not wait for them. `winFlags`: EPCCL_WIN_DEFAULT or EPCCL_WIN_COLL_SYMMETRIC, which asks for the same offsets on
 *  all ranks and changes nothing here. */
EPCCL_API epcclResult_t epcclCommWindowRegister(epcclComm_t comm, void* buff, size_t size, epcclWindow_t* win, int winFlags);
/** Ends a window; the buffer stays. Not collective. epcclInvalidArgument as of epcclCommDeregister(). */
EPCCL_API epcclResult_t epcclCommWindowDeregister(epcclComm_t comm, epcclWindow_t win);

/** Who moves the data of the collectives that are issued on `comm` from now on: copy engines ("always"), compute cores ("never"),
 *  or as the library sees fit ("auto"); NULL: as the communicator was made. Every rank says the same before the same call. An
 *  engine needs memory that peers can map (epcclMemAlloc); other memory goes through the library's own, which an INFO line says.
 *  docs/copy-engines.md tells which calls can. */
EPCCL_API epcclResult_t epcclCommSetCopyEngine(epcclComm_t comm, const char* copyEngine);

/** Finds out whether copy engines can make this communicator's collectives on GPU memory: each rank has a GPU that this library can
 *  use, each maps memory of the GPUs of its node, EPCCL_COPY_ENGINE is not `never` and, on several nodes, the network reads and writes
 *  GPU memory where it lies (elsewhere messages between nodes pass host memory: that works, but is not what is asked). Collective: every
 *  rank calls it, in the order of the communicator's calls, and all get the same answer; in a group it is there when the group
 *  ends. `device`: the rank's GPU, or one of the two values above. `usable` gets 1 or 0; `why`, of `whySize` bytes (0: none), gets "",
 *  or the rank that cannot and its reason. epcclInvalidArgument: `usable` is NULL, or `why` with a size, or `device` is less than
 *  EPCCL_NO_GPU. */
EPCCL_API epcclResult_t epcclCommCheckCopyEngines(epcclComm_t comm, int device, int* usable, char* why, size_t whySize);

/** What this rank has exchanged with other nodes since the communicator was made. Set up with EPCCL_STATISTICS_INITIALIZER;
 *  versioned by size. The lower half counts work requests of RDMA devices, and is zero where the network is another. */
typedef struct {
  size_t size;                            /**< do not touch */
  unsigned int magic;                     /**< do not touch */
  unsigned int version;                   /**< do not touch */
  unsigned long long connections;         /**< with ranks of other nodes */
  unsigned long long messagesSent, bytesSent, messagesReceived, bytesReceived; /**< to and from ranks of other nodes, whichever
                                           *   way they went (docs/groups.md: which messages neighbours carry) */
  unsigned long long sendRequests;        /**< posted: small messages, and notes about larger ones */
  unsigned long long writeRequests;       /**< posted: data into a peer's memory, of which the peer is not told */
  unsigned long long signalRequests;      /**< posted: data into a peer's memory, of which the peer is told */
  unsigned long long completionsRequested; /**< of all those, how many report their completion */
  unsigned long long sendCompletions;     /**< reports read */
  unsigned long long receiveCompletions;  /**< small messages, notes and signals that came */
  unsigned long long registrations;       /**< of memory, with the devices */
  unsigned long long railsLost;           /**< connections over an RDMA port that failed */
  unsigned long long requestsMoved;       /**< requests of such connections that went over another port */
  unsigned long long messagesCarried;     /**< of messagesSent, those that a rank of this node carried along a rail */
} epcclStatistics_t;
#define EPCCL_STATISTICS_MAGIC 0x57a7150cu
#define EPCCL_STATISTICS_INITIALIZER \
  { sizeof(epcclStatistics_t), EPCCL_STATISTICS_MAGIC, EPCCL_VERSION_CODE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/** Fills in `statistics`. Waits until the calls of this communicator that were issued before are over. Not collective.
 *  epcclInvalidArgument: `statistics` is NULL or was not set up. */
EPCCL_API epcclResult_t epcclCommGetStatistics(epcclComm_t comm, epcclStatistics_t* statistics);

/** Opens a group: sends and receives up to the matching epcclGroupEnd() are started together, and cannot deadlock
 *  whatever their order. So are calls of several communicators: one thread may drive many ranks. Groups nest. Per thread.
 *  A call in a group is issued by the group's end, and not before. A thread that ends with its group open has dropped the group's
 *  calls: a WARN counts them, and a communicator that was to be made there has failed (epcclInvalidUsage). epcclCommDestroy() of a
 *  communicator with calls in the open group is epcclInvalidUsage and changes nothing. epcclCommAbort() removes the communicator's calls
 *  from the group; epcclGroupEnd() then returns epcclInvalidUsage and runs nothing. */
EPCCL_API epcclResult_t epcclGroupStart(void);
/** Closes a group; the outermost one runs it: first what makes or ends communicators, then sends and receives, then collectives
 *  in order. Returns the first error of the group's calls; where one of them was refused, nothing is run. Of blocking communicators
 *  that are joined in one group, the first that fails ends the waiting of those that not all ranks have come to, as in NCCL.
 *  epcclInProgress: of nonblocking communicators something goes on in the background. epcclInvalidUsage: there is no group to end. */
EPCCL_API epcclResult_t epcclGroupEnd(void);

/** As epcclGroupEnd(). `beside` (may be NULL) is called with `argument` when the group's calls on streams are under way, and before
 *  streams of GPUs wait for them: what it gives these streams runs beside the group, as if it were part of it. For another library's
 *  group, say. It is called by the outermost end alone, and not where nothing is run, since a call was refused. It must not open groups. */
EPCCL_API epcclResult_t epcclGroupEndBeside(void (*beside)(void* argument), void* argument);

/** What epcclGroupSimulateEnd() finds out. Set up with EPCCL_SIM_INFO_INITIALIZER; versioned by size. */
typedef struct {
  size_t size;             /**< do not touch */
  unsigned int magic;      /**< do not touch */
  unsigned int version;    /**< do not touch */
  float estimatedTime;     /**< microseconds */
} epcclSimInfo_t;
#define EPCCL_SIM_INFO_MAGIC 0xec151afeu
#define EPCCL_SIM_INFO_INITIALIZER { sizeof(epcclSimInfo_t), EPCCL_SIM_INFO_MAGIC, EPCCL_VERSION_CODE, -1.0f }
/** Closes a group as epcclGroupEnd() and, where it is the outermost, forgets its calls instead of running them: it stores the time
 *  that the cost model expects of them, calls of one communicator one after another, those of several side by side. Counts for
 *  collectives, sends and receives. epcclInvalidUsage, and the group is forgotten, where it has other calls. epcclInvalidArgument: `simInfo` is NULL or was not set
 *  up; then the group is as open as it was. */
EPCCL_API epcclResult_t epcclGroupSimulateEnd(epcclSimInfo_t* simInfo);

/** Sends `count` elements to `peer`, matched in order with its epcclRecv of the same count and datatype. `peer` may be
 *  this rank, inside a group (else epcclInvalidUsage). */
EPCCL_API epcclResult_t epcclSend(const void* sendbuff, size_t count, epcclDataType_t datatype, int peer, epcclComm_t comm,
                                  epcclStream_t stream);
/** Receives `count` elements from `peer`, matched in order with its epcclSend of the same count and datatype. `peer` may be this rank,
 *  inside a group. */
EPCCL_API epcclResult_t epcclRecv(void* recvbuff, size_t count, epcclDataType_t datatype, int peer, epcclComm_t comm,
                                  epcclStream_t stream);

/** Every rank sends `count` elements to every rank: block d of `sendbuff` goes to rank d, block s of `recvbuff` comes
 *  from rank s. Both buffers hold nranks * count elements. If they overlap, or are one, the input is copied
 *  first. */
EPCCL_API epcclResult_t epcclAlltoall(const void* sendbuff, void* recvbuff, size_t count, epcclDataType_t datatype,
                                      epcclComm_t comm, epcclStream_t stream);

/** As epcclAlltoall with counts and displacements of each block, in elements: arrays of nranks entries, read before the call returns.
 *  sendcounts[d] here must equal recvcounts[this rank] on rank d. Blocks of `recvbuff` must not overlap each other. */
EPCCL_API epcclResult_t epcclAlltoallv(const void* sendbuff, const size_t sendcounts[], const size_t sdispls[],
                                       void* recvbuff, const size_t recvcounts[], const size_t rdispls[],
                                       epcclDataType_t datatype, epcclComm_t comm, epcclStream_t stream);

/* Collectives below: every rank calls the same with the same count, datatype, operation and root. All ranks that get a result
 * get the same bits. A call in place is one whose buffers lie as said; where they overlap otherwise, the input is copied first. */

/** recvbuff = the reduction of all ranks' sendbuff, on every rank. `count` elements each. In place: sendbuff == recvbuff. */
EPCCL_API epcclResult_t epcclAllReduce(const void* sendbuff, void* recvbuff, size_t count, epcclDataType_t datatype,
                                       epcclRedOp_t op, epcclComm_t comm, epcclStream_t stream);
/** The same on rank `root` only; recvbuff of the others is not used. In place: sendbuff == recvbuff at the root. */
EPCCL_API epcclResult_t epcclReduce(const void* sendbuff, void* recvbuff, size_t count, epcclDataType_t datatype,
                                    epcclRedOp_t op, int root, epcclComm_t comm, epcclStream_t stream);
/** Block r (`recvcount` elements) of the reduction goes to rank r; sendbuff holds nranks blocks. In place:
 *  recvbuff == sendbuff + rank * recvcount. */
EPCCL_API epcclResult_t epcclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                           epcclDataType_t datatype, epcclRedOp_t op, epcclComm_t comm,
                                           epcclStream_t stream);
/** Every rank's `sendcount` elements go to block r of every rank's recvbuff, which holds nranks blocks. In place:
 *  sendbuff == recvbuff + rank * sendcount. */
EPCCL_API epcclResult_t epcclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, epcclDataType_t datatype,
                                       epcclComm_t comm, epcclStream_t stream);
/** The root's `count` elements go to everybody's recvbuff; sendbuff of the others is not used. In place: sendbuff == recvbuff at
 *  the root. */
EPCCL_API epcclResult_t epcclBroadcast(const void* sendbuff, void* recvbuff, size_t count, epcclDataType_t datatype,
                                       int root, epcclComm_t comm, epcclStream_t stream);
/** Every rank's `count` elements go to block r of the root's recvbuff; recvbuff of the others is not used. In place: sendbuff ==
 *  recvbuff + root * count at the root. */
EPCCL_API epcclResult_t epcclGather(const void* sendbuff, void* recvbuff, size_t count, epcclDataType_t datatype,
                                    int root, epcclComm_t comm, epcclStream_t stream);
/** Block r of the root's sendbuff (`count` elements) goes to rank r; sendbuff of the others is not used. In place: recvbuff ==
 *  sendbuff + root * count at the root. */
EPCCL_API epcclResult_t epcclScatter(const void* sendbuff, void* recvbuff, size_t count, epcclDataType_t datatype,
                                     int root, epcclComm_t comm, epcclStream_t stream);

/** Makes an operation that multiplies this rank's input by a scalar of type `datatype`, then adds. Ranks may have different
 *  scalars. For collectives of `comm` and `datatype` only (epcclInvalidArgument otherwise). Device scalars must stay until these are
 *  complete. Local; any thread. epcclInvalidArgument: `scalar` is NULL, or `residence` unknown. */
EPCCL_API epcclResult_t epcclRedOpCreatePreMulSum(epcclRedOp_t* op, void* scalar, epcclDataType_t datatype,
                                                  epcclScalarResidence_t residence, epcclComm_t comm);
/** Forgets the operation; collectives that were called with it still run. Any thread. epcclInvalidArgument: `op` is one of those that
 *  are always there, or was made for another communicator. */
EPCCL_API epcclResult_t epcclRedOpDestroy(epcclRedOp_t op, epcclComm_t comm);

#ifdef __cplusplus
}
#endif
#endif
