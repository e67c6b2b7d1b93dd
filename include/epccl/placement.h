/* EPCCL, expert parallelism: which rank holds which experts, where some have more to do than others.
 *
 * A *slot* is room for the weights of one expert; every rank has slots_per_rank of them, and slot s of rank r is number
 * r * slots_per_rank + s. A *placement* is an array of num_ranks * slots_per_rank ints: the expert in each slot, or -1. There
 * may be more slots than experts: then those that have much to do have several copies, each of which takes its share. (The
 * field calls experts "logical", and slots "physical" experts.)
 *
 *   epcclEpPlaceExperts     load of each expert, a placement   -> a better one
 *   epcclEpMigrateExperts   both                               the weights are where the new one says
 *   epcclEpPickSlots        topk_idx of experts                -> topk_idx of slots
 *
 * An EP group (ep.h) knows slots only: num_experts = num_ranks * slots_per_rank, expert_to_rank = NULL. It stays the same
 * whatever slots hold, as do its handles: another placement takes new weights and other tables, not another group.
 *
 *   size_t slots = ranks * slots_per_rank;
 *   epcclEpPlaceExperts(&config, load, placement, better, NULL);                        every rank, with the same arguments
 *   epcclEpMigrateExperts(comm, slots_per_rank, placement, better, weights, bytes, 3, scratch, scratch_bytes, stream);
 *   memcpy(placement, better, slots * sizeof(int));
 *   ...
 *   epcclEpPickSlots(&config, placement, rank, EPCCL_EP_SLOTS_EVEN, &topk_idx, &slot_idx);   each step, from the router's table
 *   epcclEpUpdateHandle(handle, &slot_idx, NULL, stream);
 *
 * docs/expert-placement.md says how placements are found, and what they gain.
 */
#ifndef EPCCL_PLACEMENT_H_
#define EPCCL_PLACEMENT_H_

#include <epccl/ep.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What is placed. Ranks need not be those of a communicator. */
typedef struct {
  size_t size;                    /**< do not touch */
  unsigned int magic;             /**< do not touch */
  unsigned int version;           /**< do not touch */
  unsigned int num_experts;
  unsigned int num_ranks;
  unsigned int slots_per_rank;    /**< num_ranks * slots_per_rank is at least num_experts, and at most 2^14; ranks times experts at most 2^26 */
  const int* rank_to_node;        /**< num_ranks numbers, equal where ranks are on one node; NULL: all are. What counts is which are
                                   *   equal. Used by num_expert_groups and EPCCL_EP_SLOTS_NEAR */
  unsigned int num_expert_groups; /**< for routers that choose among groups of experts (DeepSeek-V3: 8) so that a token goes to few nodes: copies of the
                                   *   experts of one group are on one node. Groups are of neighbours, all of one size, at most 256. 0 or 1, or on one node: anywhere */
  unsigned int max_moves;         /**< most copies that ranks get and did not have. Those that have to be made come on top: of experts that
                                   *   are nowhere, or not on their group's node */
  double tolerance;               /**< nothing changes where the fullest rank has at most 1 + tolerance times the mean, each expert is somewhere
                                   *   and each group on one node */
} epcclEpPlacementConfig_t;
#define EPCCL_EP_PLACEMENT_CONFIG_INIT \
  { sizeof(epcclEpPlacementConfig_t), EPCCL_EP_MAGIC, EPCCL_EP_API_VERSION, 0, 0, 0, NULL, 0, 0xffffffffu, 0.02 }

/** What a placement amounts to, where copies of an expert share its load equally. */
typedef struct {
  size_t size;        /**< do not touch */
  unsigned int magic; /**< do not touch */
  double balance_before; /**< load of the fullest rank over the mean, 1 at best; 0: no `before`, or no load */
  double balance_after;
  unsigned int moves;         /**< slots whose expert was not on their rank before */
  unsigned int moves_network; /**< of these, those whose expert was not on their node: copies that cross the network are fewer, one for
                               *   each node and expert */
} epcclEpPlacementInfo_t;
#define EPCCL_EP_PLACEMENT_INFO_INIT { sizeof(epcclEpPlacementInfo_t), EPCCL_EP_MAGIC, 0.0, 0.0, 0, 0 }

/** Finds a placement for loads as they are. `load`: of each expert, in any unit (tokens of the last minutes, say). `before`: the
 *  placement now, also one of which slots have been lost (-1); NULL: there is none. `after` (which may be `before`) gets one that has every expert, on no
 *  rank twice, so that **slots may be empty** (-1). `before` stays as it is where it is good enough. Else it goes from there in steps, each of
 *  which takes most from the fullest rank for what it moves: what need not move stays, in its slot. Where that ends far from what a placement
 *  from nothing has, and max_moves allows, it is such a one.
 *  `info` may be NULL. Local, any thread, and the same everywhere for the same arguments. epcclInvalidArgument: a number that cannot be,
 *  a load that is negative or not finite, groups for which the nodes have no room. */
EPCCL_API epcclResult_t epcclEpPlaceExperts(const epcclEpPlacementConfig_t* config, const double* load, const int* before, int* after,
                                            epcclEpPlacementInfo_t* info);

typedef EPCCL_ENUM {
  EPCCL_EP_SLOTS_EVEN = 0, /**< all copies of an expert in turn: what placements are made for */
  EPCCL_EP_SLOTS_NEAR = 1  /**< those on the own rank, else those on the own node, else all, in turn: fewer bytes, and ranks whose
                                neighbours have copies of their own have less to do */
} epcclEpSlotChoice_t;

/** Which copies the tokens of `rank` go to. `topk_idx` [T,K]: experts, or -1 for unused, which stays; `slot_idx` [T,K]: gets slots, and
 *  may be the same memory. Both int32 or both int64, in host memory. The turns begin anew with each call, at copies that differ from rank to rank. Local, any thread.
 *  epcclInvalidArgument: an expert that does not exist, or is in no slot (what has been written of slot_idx is undefined). */
EPCCL_API epcclResult_t epcclEpPickSlots(const epcclEpPlacementConfig_t* config, const int* placement, int rank,
                                         epcclEpSlotChoice_t choice, const epcclEpTensor_t* topk_idx, const epcclEpTensor_t* slot_idx);

/** Brings weights to where `after` has their experts. `weights`: `num_weights` tensors of this rank, each with slots_per_rank experts of
 *  `bytes_per_expert[i]` bytes one after the other. A slot whose expert stays is not touched; one whose expert no rank had stays as it is (to
 *  be loaded from elsewhere), as does one that is to hold none. Of each expert one copy goes to each node that has none, by the links of several ranks;
 *  inside nodes it is handed on.
 *  `scratch`: memory of the same kind as the weights, which it must not overlap, `scratch_bytes` long: at least 3 * 64 bytes for each slot of this
 *  rank that gets an expert (0: none does). Tensors pass it in pieces of a third of that: 1 MiB a slot lets them be large.
 *  Collective, with the same placements and sizes on every rank, which is checked: the call waits for all ranks. Then it is as epcclSend
 *  on `stream`. Not in a group, nor while the stream is captured. epcclInvalidArgument, on all ranks: they differ, or the arguments of
 *  one cannot be. After another error slots that were to change are undefined. */
EPCCL_API epcclResult_t epcclEpMigrateExperts(epcclComm_t comm, unsigned int slots_per_rank, const int* before, const int* after,
                                              void* const* weights, const size_t* bytes_per_expert, unsigned int num_weights,
                                              void* scratch, size_t scratch_bytes, epcclStream_t stream);

#ifdef __cplusplus
}
#endif

#endif  // EPCCL_PLACEMENT_H_
