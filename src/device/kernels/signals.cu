// Posts and waits as kernels: of a graph's run, and of calls.
#include "device/kernels/body/signals.hpp"
#include "device/kernels/body/words.hpp"
#include "device/kernels/entry.cuh"
#include "device/kernels/kernel_list.hpp"

namespace epccl::device::kernels {

#define EPCCL_SIGNALS(name, body) EPCCL_WAITING_KERNEL(name, SignalParameters, body)
EPCCL_SIGNALS_KERNELS(EPCCL_SIGNALS)
#define EPCCL_HOST_CALL(name, body) EPCCL_WAITING_KERNEL(name, HostCallParameters, body)
EPCCL_HOST_CALL_KERNELS(EPCCL_HOST_CALL)
#define EPCCL_WORDS(name, body) EPCCL_WAITING_KERNEL(name, WordParameters, body)
EPCCL_WORDS_KERNELS(EPCCL_WORDS)

}  // namespace epccl::device::kernels
