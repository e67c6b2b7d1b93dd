/* EPCCL, stragglers: which ranks keep the others waiting.
 *
 *   epcclCommMeasureCalls(comm, 1);                               every rank (profile.h)
 *   (steps of the program)
 *   epcclStragglers_t found = EPCCL_STRAGGLERS_INITIALIZER;
 *   epcclCommFindStragglers(comm, &found, ranks);                 every rank; all learn the same
 *   if (found.late > 0) ...                                       ranks[r].lateBy says why
 *
 * A call in which every rank waits for all (all-to-all, allgather, reductions to all, an update of a handle; on one node dispatch and combine)
 * ends for nobody before the last rank has come. So who comes last waits least, and no clock has to be compared: a rank is late by as much as
 * the median rank waited longer. Where a rank's time goes between two ends of such calls tells why:
 *
 *   between   outside of the communicator's calls: the program computes, loads data, waits for something else
 *   own       in calls, not waiting: it copies, adds up, sends
 *   waited    in calls, for other ranks
 *
 * The sum is about the same for all ranks. With EPCCL_STRAGGLERS=1000 and EPCCL_DEBUG=WARN the ranks of every communicator do the same by
 * themselves after each 1000 calls, in the turn of the last (an error of theirs is that call's), and rank 0 says who was late: of any
 * program, one of NCCL's too. docs/stragglers.md says what is found, and what is not.
 */
#ifndef EPCCL_STRAGGLERS_H_
#define EPCCL_STRAGGLERS_H_

#include <epccl/profile.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef EPCCL_ENUM {
  epcclNotLate = 0,          /**< or less than threshold * seconds */
  epcclLateBetweenCalls = 1, /**< it takes longer than the median rank until it calls */
  epcclLateInCalls = 2,      /**< it has more of its own to do in calls than the median rank, or takes longer for it */
  epcclLateOtherwise = 3     /**< neither explains half of it: it waits for something else, say a rank in calls with a root */
} epcclLateness_t;

/** What is known of one rank. Seconds, summed up over the calls that were compared. Programs have arrays of it: it stays as it is. */
typedef struct {
  double late;                  /**< how much less it waited than the median rank, call by call; below 0: it came early */
  double between, own, waited;  /**< where its time went */
  unsigned long long lastCalls; /**< so many times it waited least of all ranks */
  epcclLateness_t lateBy;       /**< whether, and why */
} epcclRankTimes_t;

/** What is known of all. Set up with EPCCL_STRAGGLERS_INITIALIZER; versioned by size. */
typedef struct {
  size_t size;              /**< do not touch */
  unsigned int magic;       /**< do not touch */
  unsigned int version;     /**< do not touch */
  double threshold;         /**< in: who is late by so much of the time, 0 to 1, is a straggler */
  unsigned long long calls; /**< that were compared: the last 1024, fewer where there are more than 85 ranks (2 MiB of records in all, and 32
                             *   calls at least) */
  double seconds;           /**< that they took, and what lies between them */
  double lost;              /**< so much shorter it had been if who was last in each call had come with the median rank */
  int late;                 /**< stragglers */
} epcclStragglers_t;
#define EPCCL_STRAGGLERS_MAGIC 0x57a66135u
#define EPCCL_STRAGGLERS_INITIALIZER \
  { sizeof(epcclStragglers_t), EPCCL_STRAGGLERS_MAGIC, EPCCL_VERSION_CODE, 0.05, 0, 0.0, 0.0, 0 }

/** Compares the measured calls behind the last comparison, also one that EPCCL_STRAGGLERS asked for; behind the first that is measured, where
 *  there was none. `ranks`: as many as the communicator has, or NULL. Both are the same on all ranks. Collective, as epcclAllGather, outside of
 *  groups (a thread that drives several ranks needs others for it); it takes its turn behind the communicator's calls that were issued
 *  before, returns when it is over, and is no call to be compared itself. Any thread.
 *  Not compared, since not all ranks wait for all: sends and receives, calls with a root or of 0 bytes, dispatch and combine between nodes,
 *  replays of graphs. What ranks wait in them counts as waited; a replay that a graph makes by itself, as between.
 *  epcclInvalidUsage, on all ranks: one of them does not measure its calls. On this rank alone, for whose call the others wait then:
 *  epcclInvalidArgument: `found` is NULL or was not set up, or a threshold that is not from 0 to 1; epcclInvalidUsage: a group is open. */
EPCCL_API epcclResult_t epcclCommFindStragglers(epcclComm_t comm, epcclStragglers_t* found, epcclRankTimes_t* ranks);

#ifdef __cplusplus
}
#endif

#endif /* EPCCL_STRAGGLERS_H_ */
