// A test double of the CUDA driver, libcuda.so.1: memory is the host's, streams are threads, processes share memory as with a
// GPU. It is strict: what the driver's documentation forbids fails here, with the code it names; GPU memory cannot be touched
// by the host (its addresses are reserved, the bytes lie elsewhere); it is not zero when it is given out, nor is pinned memory; freed memory stays dead; copies
// of a list run in a random order. No code of CUDA runs.
//
// Environment, read once: FAKE_CUDA_DEVICES (1), FAKE_CUDA_VERSION (13000), FAKE_CUDA_OPEN=1 (the host may touch GPU memory:
// for kernels that run on the host), FAKE_CUDA_CHANNELS=n (streams of one priority share n hardware queues, in the order in which they
// were made; each does what it was given one after the other, so a stream that waits holds back all that came behind it.
// Otherwise each stream has one of its own), FAKE_CUDA_CONTEXT_LOCK=1 (calls that may wait for the GPU do, and no other call gets in
// meanwhile: context_lock.hpp), CUDA_MODULE_LOADING=EAGER (with that: kernels are loaded with their module, not when first used).
#pragma once

#include <cstddef>

extern "C" {
/// "memory": bytes a GPU has. "pinned_memory": bytes of the host that can be (0: any). "vmm", "memops": 0 takes the feature away. "reuse": 1 gives freed addresses out again.
/// "dma_buf", "gpu_direct", "rdma_flush": 0 takes it away. "rdma_order": as the attribute has it. "managed": 1 calls all GPU memory so.
/// "copy_pause": microseconds before each copy. "dma_buf_error": what asking for a descriptor returns.
/// "batch_error": what lists of copies return. "captured_lists": 0: none can be captured, whatever the version is. "copy_error": a CUresult that the next copy ends with when it runs.
/// "refused_copy", "refused_wait": n: the n-th cuMemcpyAsync or cuStreamWaitValue64 from now on is refused, and nothing queued.
/// "alone_allocations": 1: with FAKE_CUDA_CONTEXT_LOCK, to allocate and to register memory waits for the GPU, as to free does.
/// "strict_lists": 1: lists of copies take addresses of GPU and pinned memory only, not pageable memory, nor the host's address of
/// registered memory.
/// "peer_access": 0: GPUs of this process do not reach each other. "image_error": what loading kernels returns; "function_error": what loading one of a module that
/// was loaded returns.
/// "mapped_rdma": 0: such memory is not for network cards; "rdma_create_error": what making it with that flag returns.
/// "attributes_load": 0: to ask about a kernel does not load it; cuFuncLoad and its first launch do.
/// "create_error", "map_error": what making memory that can be shared by descriptor returns, and mapping it.
/// "export_error": what sharing memory with other processes returns; "ipc_export_error", "descriptor_export_error": by CUDA IPC, by
/// descriptor. "export_waits": 1: such calls do not return until it is 0. "import_error": what mapping the memory
/// of another process returns; "descriptor_import_error": by descriptor. "mps": 1: the GPU serves several processes at once.
/// "long_kernels_end": 1: it has a limit for how long a kernel runs.
/// "highest_priority": of streams (-5; the lowest is 0).
/// Of a program that does not know of the double, FAKE_CUDA_IMPORT_ERROR (and so on) in its environment sets the same; it is read when the driver first
/// looks for the setting.
void fake_cuda_set(const char* what, long value);
/// "memory" and "pinned" (bytes), "allocations", "streams", "events", "imports", "registered", "graphs" (executables too): how many
/// live now.
long fake_cuda_live(const char* what);
/// How often a function was called: "cuMemcpyAsync". "copies to the host", "bytes to the host", "copies from the host", "bytes from the
/// host": what was copied between a GPU's memory and other. "copies inside", "bytes inside": between GPU memory. "copies beside
/// compute", "bytes beside compute": of lists, with the hint to leave compute cores alone. "kernels begun": on a stream. "loads by launches": of kernels that nobody had loaded before. "bytes of kernels": read
/// and written by sums and copies of kernels, each byte once, where their code is there (kernels_of_double.cpp). "flushes to all devices": of what cards
/// have written. "most blocks of epccl_copies": that a launch of this kernel had. "alone": with FAKE_CUDA_CONTEXT_LOCK, that have come to wait for the GPU, and keep all others out.
long fake_cuda_calls(const char* function);
void fake_cuda_count(const char* what, long more);
void fake_cuda_forget_calls();
/// Code of a kernel: called in the stream's thread with the parameter's bytes. Every name is found in any module; a kernel without
/// code cannot be launched.
void fake_cuda_kernel(const char* name, size_t parameter_bytes,
                      void (*run)(const void* parameter, unsigned blocks, unsigned threads));
/// Where a kernel finds the bytes of an address of the GPU: that of registered memory is another one than the host's. Ends the program where
/// there is nothing, or nothing any more.
void* fake_cuda_bytes(const void* address, size_t bytes);
}
