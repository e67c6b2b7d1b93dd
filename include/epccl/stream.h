/* EPCCL, streams and events of host memory. Calls on CUDA memory take cudaStream_t in their place (epccl.h). */
#ifndef EPCCL_STREAM_H_
#define EPCCL_STREAM_H_

#include <epccl/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Host streams: ordered queues of background work, one thread each. */
EPCCL_API epcclResult_t epcclStreamCreate(epcclStream_t* stream);
/** Waits for all work of the stream; returns and forgets its first error. NULL: nothing to wait for. */
EPCCL_API epcclResult_t epcclStreamSynchronize(epcclStream_t stream);
/** epcclSuccess when all work is complete, well or with an error, epcclInProgress otherwise; a NULL stream is always complete. Never
 *  blocks. */
EPCCL_API epcclResult_t epcclStreamQuery(epcclStream_t stream);
/** 1: `stream` is one of epccl.h's, made by this process and not yet destroyed; 0: it is something else (NULL, a cudaStream_t). No error, and
 *  the last error stays. For who has streams of several libraries. */
EPCCL_API int epcclIsStream(epcclStream_t stream);
/** Waits for all work of the stream, and frees it. An error that epcclStreamSynchronize() has not returned is lost. NULL is an invalid
 *  argument; epcclInvalidUsage while a group that the calling thread has open holds calls on it. */
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
