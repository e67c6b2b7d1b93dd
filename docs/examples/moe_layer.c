/* An MoE layer's exchange: 4 ranks, 8 experts, top-2. Expert e multiplies by e + 1. */
#define _GNU_SOURCE
#include <epccl/ep.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, EXPERTS = 8, TOKENS = 6, TOPK = 2, HIDDEN = 16 };

#define CHECK(call)                                                        \
  do {                                                                     \
    if ((call) != epcclSuccess) {                                          \
      fprintf(stderr, "%s: %s\n", #call, epcclGetLastError(NULL));         \
      exit(1);                                                             \
    }                                                                      \
  } while (0)

static epcclEpTensor_t tensor(epcclDataType_t type, unsigned ndim, void* data, const size_t* sizes) {
  epcclEpTensor_t made = EPCCL_EP_TENSOR_INIT;
  made.datatype = type;
  made.ndim = ndim;
  made.data = data;
  made.sizes = sizes;
  return made;
}

static int layer(int rank, epcclUniqueId id) {
  epcclComm_t comm;
  CHECK(epcclCommInitRank(&comm, RANKS, id, rank));

  /* Once: who owns which expert (here 0 and 1 on rank 0, ...), and how large things may become. */
  epcclEpGroupConfig_t group_config = EPCCL_EP_GROUP_CONFIG_INIT;
  epcclEpGroup_t group;
  group_config.num_experts = EXPERTS;
  group_config.max_send_tokens_per_rank = TOKENS;
  group_config.max_token_bytes = HIDDEN * sizeof(float);
  CHECK(epcclEpCreateGroup(&group, comm, &group_config));

  /* The router's answer for this rank's tokens: two experts each, and their weights. */
  int64_t topk_idx[TOKENS][TOPK];
  float topk_weights[TOKENS][TOPK], x[TOKENS][HIDDEN], y[TOKENS][HIDDEN];
  for (int t = 0; t < TOKENS; ++t) {
    topk_idx[t][0] = (rank + t) % EXPERTS;
    topk_idx[t][1] = (rank + 3 * t + 4) % EXPERTS;
    topk_weights[t][0] = 0.75f;
    topk_weights[t][1] = 0.25f;
    for (int h = 0; h < HIDDEN; ++h) x[t][h] = (float)(100 * rank + 10 * t + h);
  }

  /* Every step: the routing. It says how many rows will come, expert by expert. */
  const size_t table[] = {TOKENS, TOPK}, local[] = {EXPERTS / RANKS}, one[] = {1};
  int32_t counts[EXPERTS / RANKS], offsets[EXPERTS / RANKS], rows = 0;
  epcclEpTensor_t idx = tensor(epcclInt64, 2, topk_idx, table);
  epcclEpTensor_t counts_out = tensor(epcclInt32, 1, counts, local), offsets_out = tensor(epcclInt32, 1, offsets, local);
  epcclEpTensor_t rows_out = tensor(epcclInt32, 1, &rows, one);
  epcclEpLayoutInfo_t info = EPCCL_EP_LAYOUT_INFO_INIT;
  epcclEpHandle_t handle;
  info.expert_counters = &counts_out;
  info.expert_offsets = &offsets_out;
  info.recv_total_counter = &rows_out;
  CHECK(epcclEpCreateHandle(&handle, group, EPCCL_EP_LAYOUT_EXPERT_MAJOR, &idx, &info, NULL, NULL));

  /* Memory of epcclMemAlloc the node's other ranks can map; any other works, with one more copy. */
  float* received;
  const size_t tokens_size[] = {TOKENS, HIDDEN}, rows_size[] = {(size_t)rows, HIDDEN};
  CHECK(epcclMemAlloc((void**)&received, ((size_t)rows + 1) * HIDDEN * sizeof(float)));
  epcclEpTensor_t tokens = tensor(epcclFloat32, 2, x, tokens_size), weights = tensor(epcclFloat32, 2, topk_weights, table);
  epcclEpTensor_t expert_rows = tensor(epcclFloat32, 2, received, rows_size);
  epcclEpDispatchInputs_t send = EPCCL_EP_DISPATCH_INPUTS_INIT;
  epcclEpDispatchOutputs_t recv = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
  send.tokens = &tokens;
  send.topk_weights = &weights;
  recv.tokens = &expert_rows;
  CHECK(epcclEpDispatch(handle, &send, &recv, NULL, NULL));

  /* The experts: each has its rows in one piece. */
  for (int e = 0; e < EXPERTS / RANKS; ++e)
    for (int row = offsets[e]; row < offsets[e] + counts[e]; ++row)
      for (int h = 0; h < HIDDEN; ++h) received[row * HIDDEN + h] *= (float)(rank * (EXPERTS / RANKS) + e + 1);

  /* Back to the tokens' ranks, weighted and added up. */
  epcclEpTensor_t combined = tensor(epcclFloat32, 2, y, tokens_size);
  epcclEpCombineInputs_t give = EPCCL_EP_COMBINE_INPUTS_INIT;
  epcclEpCombineOutputs_t take = EPCCL_EP_COMBINE_OUTPUTS_INIT;
  epcclEpCombineConfig_t how = EPCCL_EP_COMBINE_CONFIG_INIT;
  give.tokens = &expert_rows;
  take.tokens = &combined;
  how.weighted = 1;
  CHECK(epcclEpCombine(handle, &give, &take, &how, NULL));

  int wrong = 0;
  for (int t = 0; t < TOKENS; ++t)
    for (int h = 0; h < HIDDEN; ++h) {
      const float factor = 0.75f * (float)(topk_idx[t][0] + 1) + 0.25f * (float)(topk_idx[t][1] + 1);
      wrong += y[t][h] != factor * x[t][h];
    }
  printf("rank %d: %d rows for experts %d and %d, %d wrong\n", rank, rows, 2 * rank, 2 * rank + 1, wrong);

  CHECK(epcclEpHandleDestroy(handle));
  CHECK(epcclEpGroupDestroy(group));
  CHECK(epcclMemFree(received));
  CHECK(epcclCommDestroy(comm));
  return wrong == 0 ? 0 : 1;
}

/* Stands in for your launcher: starts the ranks, and hands rank 0's id to all. */
int main(void) {
  int channel[2], failed = 0;
  if (pipe(channel) != 0) return 1;
  for (int rank = 0; rank < RANKS; ++rank) {
    if (fork() != 0) continue;
    epcclUniqueId id;
    if (rank == 0) {
      CHECK(epcclGetUniqueId(&id));
      for (int peer = 1; peer < RANKS; ++peer)
        if (write(channel[1], &id, sizeof id) != sizeof id) return 1;
    } else if (read(channel[0], &id, sizeof id) != sizeof id) {
      return 1;
    }
    return layer(rank, id);
  }
  for (int rank = 0; rank < RANKS; ++rank) {
    int status = 0;
    wait(&status);
    failed |= status;
  }
  return failed == 0 ? 0 : 1;
}
