/* What a C user of an installed EPCCL writes. */
#include <epccl/epccl.h>
#include <stdio.h>

#define CHECK(call)                                              \
  do {                                                           \
    if ((call) != epcclSuccess) {                                \
      fprintf(stderr, "%s: %s\n", #call, epcclGetLastError(NULL)); \
      return 1;                                                  \
    }                                                            \
  } while (0)

int main(void) {
  epcclUniqueId id;
  epcclComm_t comm;
  const int sent[4] = {1, 2, 3, 4};
  int received[4] = {0, 0, 0, 0}, version = 0, i = 0;
  CHECK(epcclGetVersion(&version));
  CHECK(epcclGetUniqueId(&id));
  CHECK(epcclCommInitRank(&comm, 1, id, 0));
  CHECK(epcclAlltoall(sent, received, 4, epcclInt32, comm, NULL));
  CHECK(epcclCommDestroy(comm));
  for (i = 0; i < 4; ++i)
    if (received[i] != sent[i]) return 1;
  printf("EPCCL %d\n", version);
  return 0;
}
