/* EPCCL, measuring: where the time of a communicator's calls goes.
 *
 *   epcclCommMeasureCalls(comm, 1);
 *   (calls)
 *   epcclCallTimes_t times = EPCCL_CALL_TIMES_INITIALIZER;
 *   epcclCommGetCallTimes(comm, &times);      times.kernel / times.calls seconds a call
 *   epcclCommMeasureCalls(comm, 0);
 *
 * A call is what a communicator does in one turn: a collective, a dispatch or combine, an update, the sends and receives of a group.
 * It is measured from the moment at which its thread (the caller's, a stream's, or for GPU memory the library's) begins it, its
 * stream having come there, until nothing of it moves on this rank. Each moment of it counts once, as the first of these that is true:
 *
 *   kernel   a kernel of this rank runs on the GPU (host device with copy engines: a reduction by the worker)
 *   copy     a copy engine copies for this rank; on a GPU also what the driver copies otherwise
 *   signal   a queue of this rank, or the call's thread, waits for other ranks: for their signals, or for messages
 *   host     none of these: the thread prepares, submits, copies or adds up itself, or learns late that something is over
 *
 * On a GPU events of the driver tell, two for each operation of a queue, which cost it some time themselves: measured calls
 * are somewhat slower than others. Calls that are not measured have none. Ranks that share a GPU run their kernels in turns,
 * and a kernel that has begun but stands aside for another rank's counts as running.
 * Calls of graphs that are kernels and copies of the graph are not measured; those that the host makes are.
 */
#ifndef EPCCL_PROFILE_H_
#define EPCCL_PROFILE_H_

#include <epccl/epccl.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Calls of `comm` that begin from now on are measured (`on` is not 0), or no longer are. Of this rank alone, ranks may differ. Never
 *  blocks; any thread. A call that is in progress keeps what it began with. */
EPCCL_API epcclResult_t epcclCommMeasureCalls(epcclComm_t comm, int on);

/** Sums over this rank's calls, in seconds. Set up with EPCCL_CALL_TIMES_INITIALIZER; versioned by size. */
typedef struct {
  size_t size;          /**< do not touch */
  unsigned int magic;   /**< do not touch */
  unsigned int version; /**< do not touch */
  unsigned long long calls;
  double total;         /**< of all of them: the sum of the four below */
  double kernel, copy, signal, host;
} epcclCallTimes_t;
#define EPCCL_CALL_TIMES_MAGIC 0xca117135u
#define EPCCL_CALL_TIMES_INITIALIZER \
  { sizeof(epcclCallTimes_t), EPCCL_CALL_TIMES_MAGIC, EPCCL_VERSION_CODE, 0, 0.0, 0.0, 0.0, 0.0, 0.0 }

/** Sums over the measured calls that have ended well since this was called last. Waits until the calls of this communicator that
 *  were issued before are over. Not collective. epcclInvalidArgument: `times` is NULL or was not set up. Another
 *  error: a call could not be measured, which is all that was wrong with it. */
EPCCL_API epcclResult_t epcclCommGetCallTimes(epcclComm_t comm, epcclCallTimes_t* times);

#ifdef __cplusplus
}
#endif

#endif /* EPCCL_PROFILE_H_ */
