/* EPCCL, expert parallelism: dispatch and combine of tokens for Mixture-of-Experts layers.
 *
 * The terms are the field's (NCCL EP's header is the model): a *group* knows the experts; a *handle* knows one routing
 * (top-k table); *dispatch* brings every token to the ranks that own its experts; *combine* brings the results back and adds
 * them up.
 *
 *   epcclEpCreateGroup   once                      num_experts, limits
 *   epcclEpCreateHandle  once a layer              the layout of the output
 *   epcclEpUpdateHandle  once a step               topk_idx -> who sends what where; counters
 *   epcclEpDispatch      tokens [T,H]              -> rows, by expert or by source
 *   (experts)
 *   epcclEpCombine       rows                      -> tokens [T,H]
 *
 * A handle may be used for any number of dispatches and combines. The backward pass uses it too: the gradient of a dispatch
 * is a combine, the gradient of a combine is a dispatch (`weighted` in one is `weighted` in the other).
 *
 * Layouts of what a rank receives (N rows). Its experts are counted in ascending order of id: local ids 0, 1, ...
 *   EPCCL_EP_LAYOUT_FLAT          one row for each token with an expert here; by source rank, then token
 *   EPCCL_EP_LAYOUT_RANK_MAJOR    as FLAT, but the rows of source s begin at s * max_send_tokens_per_rank: N is fixed, and
 *                                 rows without a token keep what they held (but topk_weights 0 and topk_idx -1)
 *   EPCCL_EP_LAYOUT_EXPERT_MAJOR  one row for each (token, expert); by expert, then source rank, then token; each expert's
 *                                 rows begin at a multiple of the alignment, rows in between are zero, or anything with
 *                                 epcclEpHandleConfig_t.undefined_padding
 *
 * Static mode (epcclEpHandleConfig_t.static_topk) is for small T and low latency, and for work that is recorded once and
 * replayed: every size follows from max_send_tokens_per_rank, K and max_tokens_per_expert. An update is one small exchange of
 * the tables themselves; plans are made at the first dispatch and combine and serve every later routing; N is fixed, so nobody
 * has to look at a count before going on. Layouts: RANK_MAJOR, or EXPERT_MAJOR with max_tokens_per_expert, where every expert
 * has that many rows, and what is beyond is dropped and reported as always. The results are those of a handle that is not
 * static, with pad_to_capacity.
 *
 * Combine adds in float32, in an order that depends on the routing alone (`round`: to the datatype and back):
 *   of a rank:   the token's rows there (EXPERT_MAJOR: in the order of its top-k, each times its weight if weighted), then round
 *   of a node:   its ranks' sums, in ascending order of rank, then round
 *   the result:  the nodes' sums, in order of node (by its lowest rank), then round
 * Every strategy gives the same bits, in every run.
 *
 * Calls are collective: every rank of the communicator makes the same ones in the same order, with the same optional
 * tensors present (a rank with T = 0 passes tensors of size 0). They are not allowed between epcclGroupStart() and
 * epcclGroupEnd(). Streams, buffers and threads are as in epccl.h. What is wrong with a routing (an expert that does not
 * exist, too many tokens, ranks that disagree on K or on the layout) is an error on every rank, by name, and the
 * communicator stays usable. (Handles of which static_topk differs break it, by name: their tables have no common size. So do
 * ranks of one node that update different handles; where whole nodes do, it is an error on every rank as above.) What is wrong
 * with the tensors of a dispatch or combine in themselves is an invalid argument on that rank, before anything begins: one that
 * is required is missing, or has no data; a datatype or a number of dimensions that it may not have; tokens in and out of unequal
 * length, or of datatypes that do not go together; scales that are missing or not wanted; weights that the output or a `weighted`
 * dispatch wants and the input has not; `weighted` with another layout than EXPERT_MAJOR, of a dispatch also with float8; memory
 * of several kinds. The communicator stays usable, and the other ranks wait until this one makes the call as it should be. What
 * does not fit the routing or the group breaks the communicator, since the other ranks may already be waiting: they get an error
 * that names the rank and the values. That is the number of rows or columns, max_token_bytes, a `weighted` combine after a dispatch
 * without weights, and a weight that is NaN, where the host sees it. So do ranks that make different calls: of another handle, H or
 * datatype, or `weighted` on some of them only (docs/expert-parallel.md says how that is found between nodes).
 *
 * Memory of a GPU: all tensors of a dispatch or combine, on all ranks, and `stream` is a cudaStream_t of that GPU (cast), in
 * whose order they are used; no call waits. Those of an update may lie on the GPU or on the host, each as it likes (host
 * tensors of results are written when the stream has passed the call; counts on the host are what a program reads to go on).
 * What is wrong with a table is found when the stream has come to the update: epcclEpComplete() returns it. In static mode kernels
 * make the layout on the GPU, and the host does not see the table; then the stream of an update is the GPU's on all ranks or on
 * none. A call with a NULL stream and no data (T = 0) runs where the handle's last call with data ran: GPU or host. (Updates
 * go by the last update, dispatches and combines by the last of those.) Before the first one with data, pass the GPU's stream; for host
 * memory in a program that has a GPU, as the tensors' data any pointer to host memory that is not NULL. Kernels
 * move and add up rows, also where there are several nodes (docs/cuda.md says where they cannot, and pinned host memory stages whole
 * calls).
 *
 * CUDA graphs: while the stream is captured, updates, dispatches and combines of static mode become part of the graph; all their
 * tensors are the GPU's, on all ranks. Such a call may block until all ranks are in it. A dispatch or combine of a graph has the
 * routing of the last update that the stream has run, captured or not. An entry that names no expert counts as unused in a replay;
 * epcclEpComplete() returns the first on every rank, when the stream is through. Over several nodes a thread of the library makes the
 * calls at each replay. Other calls are refused (invalid usage), and the capture goes on. docs/cuda.md.
 */
#ifndef EPCCL_EP_H_
#define EPCCL_EP_H_

#include <epccl/epccl.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EPCCL_EP_MAGIC 0xec1e9u
#define EPCCL_EP_API_VERSION 1

/** Largest K of a top-k table. */
#define EPCCL_EP_MAX_TOPK 64

typedef struct epcclEpGroup* epcclEpGroup_t;
typedef struct epcclEpHandle* epcclEpHandle_t;

/** How tokens cross the network. */
typedef EPCCL_ENUM {
  EPCCL_EP_STRATEGY_AUTO = 0,   /**< by a cost model, from the actual counts, alike on every rank. Static mode: once, for tokens that go to
                                     all experts alike, perhaps GATHER; where routing keeps tokens on few nodes set DEDUP */
  EPCCL_EP_STRATEGY_FLAT = 1,   /**< one copy for each destination rank, straight there */
  EPCCL_EP_STRATEGY_GATHER = 2, /**< every token to every node, along the rail; sizes depend on T alone */
  EPCCL_EP_STRATEGY_DEDUP = 3   /**< one copy for each destination node, along the rail, then inside the node */
} epcclEpStrategy_t;

typedef EPCCL_ENUM {
  EPCCL_EP_LAYOUT_UNSET = 0,
  EPCCL_EP_LAYOUT_EXPERT_MAJOR = 1,
  EPCCL_EP_LAYOUT_RANK_MAJOR = 2,
  EPCCL_EP_LAYOUT_FLAT = 3
} epcclEpLayout_t;

/** A dense, row-major tensor in the caller's memory. Set up with EPCCL_EP_TENSOR_INIT. */
typedef struct {
  size_t size;             /**< do not touch */
  unsigned int magic;      /**< do not touch */
  unsigned int ndim;       /**< 1 or 2, as each tensor says */
  epcclDataType_t datatype;
  void* data;              /**< may be NULL where a dimension is 0 */
  const size_t* sizes;     /**< ndim entries, outermost first; read before the call returns */
} epcclEpTensor_t;
#define EPCCL_EP_TENSOR_INIT { sizeof(epcclEpTensor_t), EPCCL_EP_MAGIC, 0, epcclFloat32, NULL, NULL }

/** What a group is made for. Must be the same on every rank. */
typedef struct {
  size_t size;                           /**< do not touch */
  unsigned int magic;                    /**< do not touch */
  unsigned int version;                  /**< do not touch */
  unsigned int num_experts;              /**< over all ranks */
  const int* expert_to_rank;             /**< num_experts ranks; NULL: contiguous blocks, as equal as possible */
  unsigned int max_send_tokens_per_rank; /**< most tokens (T) of one rank in one call */
  size_t max_token_bytes;                /**< most bytes of one token, at most 2^30; FP8: with its scales. On
                                          *   several nodes tokens pass scratch: up to 1 MiB with the default
                                          *   EPCCL_SCRATCH_SIZE of 8 MiB, and as many times more as that is
                                          *   larger; what does not fit is an error of making or updating the
                                          *   handle */
  epcclEpStrategy_t strategy;            /**< AUTO: EPCCL_EP_STRATEGY, or else the cost model */
  unsigned int timeout_ms;               /**< how long a call of this group's handles waits for a silent rank before it fails,
                                              naming it, and with it the communicator; 0: the communicator's timeout */
} epcclEpGroupConfig_t;
#define EPCCL_EP_GROUP_CONFIG_INIT \
  { sizeof(epcclEpGroupConfig_t), EPCCL_EP_MAGIC, EPCCL_EP_API_VERSION, 0, NULL, 0, 0, EPCCL_EP_STRATEGY_AUTO, 0 }

/** Options of a handle. Must be the same on every rank. Alignment, capacity and padding are for EXPERT_MAJOR. */
typedef struct {
  size_t size;                                     /**< do not touch */
  unsigned int magic;                              /**< do not touch */
  unsigned int version;                            /**< do not touch */
  unsigned int dispatch_output_per_expert_alignment; /**< rows; 0 or 1: none */
  unsigned int max_tokens_per_expert; /**< capacity; 0: none. Beyond it entries are dropped: the first to go are those of
                                           the highest source rank, and there of the last token */
  unsigned int pad_to_capacity;       /**< not 0: every expert has max_tokens_per_expert rows (before alignment) */
  unsigned int static_topk;           /**< not 0: static mode, for tables with this K */
  unsigned int undefined_padding;     /**< not 0: after a dispatch, tokens and scales of rows that only pad are anything (NaN
                                           included), which spares their clearing: for who looks at the counters. 0: zeros */
} epcclEpHandleConfig_t;
#define EPCCL_EP_HANDLE_CONFIG_INIT \
  { sizeof(epcclEpHandleConfig_t), EPCCL_EP_MAGIC, EPCCL_EP_API_VERSION, 0, 0, 0, 0, 0 }

/** Where a handle's counters go; every field may be NULL. int32 or int64, written when the update is complete. */
typedef struct {
  size_t size;                        /**< do not touch */
  unsigned int magic;                 /**< do not touch */
  epcclEpTensor_t* expert_counters;   /**< [local experts]: entries for each expert; with a capacity, those kept */
  epcclEpTensor_t* expert_offsets;    /**< [local experts]: EXPERT_MAJOR, its first row */
  epcclEpTensor_t* src_rank_counters; /**< [ranks]: tokens from each source rank with an expert here */
  epcclEpTensor_t* recv_total_counter; /**< [1]: N, padding included */
  epcclEpTensor_t* dropped_counters;  /**< [local experts]: entries beyond the capacity */
  epcclEpTensor_t* dropped;           /**< uint8 [T,K], at the source: 1 where the entry was dropped */
} epcclEpLayoutInfo_t;
#define EPCCL_EP_LAYOUT_INFO_INIT { sizeof(epcclEpLayoutInfo_t), EPCCL_EP_MAGIC, NULL, NULL, NULL, NULL, NULL, NULL }

typedef struct {
  size_t size;                   /**< do not touch */
  unsigned int magic;            /**< do not touch */
  epcclEpTensor_t* tokens;       /**< [T,H], required: float32, bfloat16, float16 or float8e4m3 */
  epcclEpTensor_t* topk_weights; /**< [T,K] float32, optional */
  epcclEpTensor_t* scales;       /**< [T,ceil(H/128)] float32: with float8e4m3 tokens */
} epcclEpDispatchInputs_t;
#define EPCCL_EP_DISPATCH_INPUTS_INIT { sizeof(epcclEpDispatchInputs_t), EPCCL_EP_MAGIC, NULL, NULL, NULL }

typedef struct {
  size_t size;                   /**< do not touch */
  unsigned int magic;            /**< do not touch */
  epcclEpTensor_t* tokens;       /**< [N,H] or more rows, required. float8e4m3 where the input is not: quantised on the way
                                      out, so that the network carries the quantised tokens */
  epcclEpTensor_t* topk_weights; /**< float32, optional. FLAT, RANK_MAJOR: [N,K], 0 where the expert is elsewhere.
                                      EXPERT_MAJOR: [N], 0 in rows that only pad */
  epcclEpTensor_t* topk_idx;     /**< int32 or int64 [N,K], optional: local expert ids, -1 where the expert is elsewhere */
  epcclEpTensor_t* scales;       /**< [N,ceil(H/128)] float32, required with float8e4m3 (element = value * scale of its 128
                                      elements), refused without. Scales are the block's largest finite magnitude / 448, at
                                      least 2^-126, 1 for a block without finite magnitudes above 0; rows as they lie here:
                                      no powers of two, no other order. NaN stays NaN; an infinity becomes +-448 times the
                                      scale */
} epcclEpDispatchOutputs_t;
#define EPCCL_EP_DISPATCH_OUTPUTS_INIT { sizeof(epcclEpDispatchOutputs_t), EPCCL_EP_MAGIC, NULL, NULL, NULL, NULL }

typedef struct {
  size_t size;            /**< do not touch */
  unsigned int magic;     /**< do not touch */
  unsigned int send_only; /**< not 0: return once started (epcclEpComplete). Host memory: NULL stream only. Memory of a GPU: what
                               the stream is given next does not wait for the call */
  unsigned int weighted;  /**< not 0, EXPERT_MAJOR: each row is multiplied with its weight (the gradient of a weighted combine) */
} epcclEpDispatchConfig_t;
#define EPCCL_EP_DISPATCH_CONFIG_INIT { sizeof(epcclEpDispatchConfig_t), EPCCL_EP_MAGIC, 0, 0 }

typedef struct {
  size_t size;                   /**< do not touch */
  unsigned int magic;            /**< do not touch */
  epcclEpTensor_t* tokens;       /**< [N,H], required: float32, bfloat16 or float16 */
  epcclEpTensor_t* topk_weights; /**< float32, as dispatch gave them, optional: gradients of the weights, to go home */
} epcclEpCombineInputs_t;
#define EPCCL_EP_COMBINE_INPUTS_INIT { sizeof(epcclEpCombineInputs_t), EPCCL_EP_MAGIC, NULL, NULL }

typedef struct {
  size_t size;                   /**< do not touch */
  unsigned int magic;            /**< do not touch */
  epcclEpTensor_t* tokens;       /**< [T,H], required, in the order of topk_idx; zero for a token without experts */
  epcclEpTensor_t* topk_weights; /**< [T,K] float32, with the input's */
} epcclEpCombineOutputs_t;
#define EPCCL_EP_COMBINE_OUTPUTS_INIT { sizeof(epcclEpCombineOutputs_t), EPCCL_EP_MAGIC, NULL, NULL }

typedef struct {
  size_t size;            /**< do not touch */
  unsigned int magic;     /**< do not touch */
  unsigned int send_only; /**< as in epcclEpDispatchConfig_t */
  unsigned int weighted;  /**< not 0, EXPERT_MAJOR: each row counts with the weight that the handle's last dispatch brought */
} epcclEpCombineConfig_t;
#define EPCCL_EP_COMBINE_CONFIG_INIT { sizeof(epcclEpCombineConfig_t), EPCCL_EP_MAGIC, 0, 0 }

/** What this rank hands on in one dispatch (a combine takes the same ways back), by where it goes. */
typedef struct {
  size_t size;        /**< do not touch */
  unsigned int magic; /**< do not touch */
  epcclEpStrategy_t strategy;      /**< in use */
  uint64_t tokens_local;           /**< rows to its own output */
  uint64_t tokens_node;            /**< rows to other ranks of its node, its own and those it relays */
  uint64_t tokens_network;         /**< rows to other nodes */
  uint64_t dispatch_bytes_local, dispatch_bytes_node, dispatch_bytes_network; /**< of the last dispatch since the update; 0 before one */
  uint64_t combine_bytes_network;  /**< of the last combine, sent by this rank */
} epcclEpStats_t;
#define EPCCL_EP_STATS_INIT { sizeof(epcclEpStats_t), EPCCL_EP_MAGIC, EPCCL_EP_STRATEGY_AUTO, 0, 0, 0, 0, 0, 0, 0 }

/** Makes a group on `comm`, which must outlive it. Collective, blocking. `*group` is NULL on error. epcclInvalidArgument: `config` is
 *  NULL, was not set up, or has a value that cannot be. epcclInvalidUsage, on all ranks: they differ in it. */
EPCCL_API epcclResult_t epcclEpCreateGroup(epcclEpGroup_t* group, epcclComm_t comm, const epcclEpGroupConfig_t* config);

/** Frees a group; its handles must be destroyed first (invalid usage otherwise). Local. */
EPCCL_API epcclResult_t epcclEpGroupDestroy(epcclEpGroup_t group);

/** Makes a handle and, unless `topk_idx` is NULL, updates it: then it is collective, as epcclEpUpdateHandle(), else local. `config`
 *  may be NULL. `*handle` is NULL on error. epcclInvalidArgument: `layout` is unknown, or an option does not go with it or with
 *  another. */
EPCCL_API epcclResult_t epcclEpCreateHandle(epcclEpHandle_t* handle, epcclEpGroup_t group, epcclEpLayout_t layout,
                                            const epcclEpTensor_t* topk_idx, const epcclEpLayoutInfo_t* layout_info,
                                            const epcclEpHandleConfig_t* config, epcclStream_t stream);

/** Gives the handle a new routing: topk_idx [T,K], int32 or int64, expert ids or -1 for unused; it is read before the call
 *  returns, on a GPU in the stream's order. An expert may occur more than once in a token's list. The ranks exchange what they need for any number of
 *  dispatches and combines. `layout_info` may be NULL. In a graph the table is read, and the counters are written, whenever it
 *  runs. */
EPCCL_API epcclResult_t epcclEpUpdateHandle(epcclEpHandle_t handle, const epcclEpTensor_t* topk_idx,
                                            const epcclEpLayoutInfo_t* layout_info, epcclStream_t stream);

/** Frees a handle; calls on host memory that were started with send_only are waited for. (Such calls on a GPU's memory are not, and no
 *  stream waits for them: epcclEpComplete() first.) Calls that are still in a stream end as they would have: their buffers are the
 *  caller's when the stream is past them, not when this returns. Local. */
EPCCL_API epcclResult_t epcclEpHandleDestroy(epcclEpHandle_t handle);

/** Brings every token to the ranks that own its experts. `config` may be NULL. What is written must overlap no other tensor of the
 *  call (epcclInvalidArgument, found on this rank alone). */
EPCCL_API epcclResult_t epcclEpDispatch(epcclEpHandle_t handle, const epcclEpDispatchInputs_t* inputs,
                                        const epcclEpDispatchOutputs_t* outputs, const epcclEpDispatchConfig_t* config,
                                        epcclStream_t stream);

/** Brings the rows of a dispatch back to the tokens' ranks and adds them up. `config` may be NULL. Tensors are apart as in a
 *  dispatch. */
EPCCL_API epcclResult_t epcclEpCombine(epcclEpHandle_t handle, const epcclEpCombineInputs_t* inputs,
                                       const epcclEpCombineOutputs_t* outputs, const epcclEpCombineConfig_t* config,
                                       epcclStream_t stream);

/* Started calls: dispatches and combines with send_only or on a created stream. They move on by themselves, those of one
 * communicator one after the other in the order in which they were made, and each in two stages:
 *   stage 1, the network: what this rank sends to and receives from other nodes. What has to come first is part of this stage:
 *            packing a dispatch's tokens; adding up what the node has for a combine, when its other ranks are there.
 *   stage 2, inside the node: handing a dispatch's rows to the ranks of the node, this one included; adding up a combine's
 *            tokens. It begins with the first rows that are there, under stage 1. (What is larger than EPCCL_SCRATCH_SIZE
 *            passes through it in turns: then stage 1 has to wait for stage 2 of what came before.)
 * Past stage 1 this rank has nothing left to do on the network, and its part of the call needs memory and a core, but no link:
 * the moment to start what needs the link (of another communicator: calls of the same one wait for the end of stage 2). All
 * buffers belong to the library until the call is over. On one node, and where a rank has nothing to send or receive, stage 1
 * is over once the call begins.
 * epcclEpGetProgress(), epcclEpCompleteStage(), epcclEpComplete() and epcclEpStreamWaitStage() are for any thread, at any time, also
 * after the communicator was finalized, aborted or destroyed: calls that an abort ends still have their buffers until they are over. */

/** How far the handle's started calls are, on this rank. */
typedef struct {
  size_t size;        /**< do not touch */
  unsigned int magic; /**< do not touch */
  uint64_t calls_started;     /**< since the handle was made */
  uint64_t calls_past_stage1; /**< of these; those that are over, well or with an error, included */
  uint64_t calls_over;        /**< of these */
  /* Of the call that runs, that is the first that is not over; 0 while there is none or it waits for its turn. */
  uint64_t stage1_bytes_done, stage1_bytes; /**< of messages, sent and received */
  uint64_t stage2_bytes_done, stage2_bytes; /**< of rows that this rank writes: its own output's, and
                                                  others', also those that they turn out to fetch */
} epcclEpProgress_t;
#define EPCCL_EP_PROGRESS_INIT { sizeof(epcclEpProgress_t), EPCCL_EP_MAGIC, 0, 0, 0, 0, 0, 0, 0 }

/** Never blocks. Whether a call failed is not told here. epcclInvalidArgument: `progress` was not set up. */
EPCCL_API epcclResult_t epcclEpGetProgress(epcclEpHandle_t handle, epcclEpProgress_t* progress);

/** Waits until all calls that were started on the handle before are past `stage` (1 or 2: over), or have failed. Returns the first
 *  error of the handle's started calls; stage 2 also forgets it. (A stream returns the errors of its calls as well.)
 *  epcclInvalidArgument: `stage` is neither 1 nor 2. */
EPCCL_API epcclResult_t epcclEpCompleteStage(epcclEpHandle_t handle, int stage);

/** epcclEpCompleteStage(handle, 2): all calls are over, and all buffers are the caller's again. Also returns, once, the first error
 *  found by a graph replay: an invalid table entry, or a replay without a routing. Does not wait for replays. */
EPCCL_API epcclResult_t epcclEpComplete(epcclEpHandle_t handle);

/** What is given to `stream` from now on waits until all calls that were started on the handle before are past `stage`, well or
 *  with an error; an event recorded next tells when. Returns at once; with a NULL stream when they are. `stream` may be a
 *  GPU's, whose memory the handle's calls are on; among a communicator's first calls on GPU memory (EPCCL_CUDA_FIRST_CALLS) this returns
 *  when they are, too, or after 10 s. epcclInvalidArgument: `stage` is neither 1 nor 2. epcclInvalidUsage: the stream is
 *  being captured. */
EPCCL_API epcclResult_t epcclEpStreamWaitStage(epcclStream_t stream, epcclEpHandle_t handle, int stage);

/** Counts of the handle's routing and last calls. No call may be in progress. Local. epcclInvalidArgument: `stats` was not set up.
 *  Where the last update failed, its error. */
EPCCL_API epcclResult_t epcclEpGetStats(epcclEpHandle_t handle, epcclEpStats_t* stats);

#ifdef __cplusplus
}
#endif
#endif
