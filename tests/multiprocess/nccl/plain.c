/* A C program as its author wrote it for NCCL: one rank that sends to itself. Prints which library it found. */
#include <nccl.h>
#include <stdio.h>

#define CHECK(call)                                                                           \
  do {                                                                                        \
    ncclResult_t result = (call);                                                             \
    if (result != ncclSuccess) {                                                              \
      fprintf(stderr, "%s: %s: %s\n", #call, ncclGetErrorString(result), ncclGetLastError(NULL)); \
      return 1;                                                                               \
    }                                                                                         \
  } while (0)

int main(void) {
  ncclUniqueId id;
  ncclComm_t comm;
  const int sent[4] = {1, 2, 3, 4};
  int received[4] = {0, 0, 0, 0}, version = 0, i;
  CHECK(ncclGetVersion(&version));
  if (version != NCCL_VERSION_CODE) return 1;
  CHECK(ncclGetUniqueId(&id));
  CHECK(ncclCommInitRank(&comm, 1, id, 0));
  CHECK(ncclGroupStart());
  CHECK(ncclSend(sent, 4, ncclInt, 0, comm, NULL));
  CHECK(ncclRecv(received, 4, ncclInt, 0, comm, NULL));
  CHECK(ncclGroupEnd());
  CHECK(ncclCommDestroy(comm));
  for (i = 0; i < 4; ++i)
    if (received[i] != sent[i]) return 1;
  printf("NCCL %d\n", version);
  return 0;
}
