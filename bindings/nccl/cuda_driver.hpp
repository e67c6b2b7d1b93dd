// What this library asks of the CUDA driver, which it never links: whether there is a GPU, whose memory a pointer is, and which
// context is current.
#pragma once

#include <vector>

namespace epccl::nccl {

enum class Memory { ordinary, pinned, device };

/// Whether CUDA pointers can appear in this process at all: the driver is loaded, or there is a device and the driver can be
/// loaded. Starts nothing.
bool cuda_possible();

/// The same, looked for anew until it is so, and EPCCL_DEVICE does not forbid it.
bool cuda_wanted();

/// Whether a GPU can be used here and EPCCL_DEVICE does not forbid it. Initialises the driver.
bool gpu_present();

/// Whose memory it is. `ordinary`: CUDA does not know it. `context`: to ask with on a thread that has none, of which the driver tells
/// nothing; null: there is none. Where it is not told even so, `device`: ranks whose threads have one must not choose otherwise.
Memory memory_of(const void* pointer, void* context);

/// Whether the stream, a CUDA one or NULL, is being captured into a graph. (The NULL stream counts as captured while it cannot be used
/// for the sake of another's capture.)
bool is_captured(void* stream);

/// The calling thread's context (its device); null without a driver.
void* current_context();

/// The number of a context's device; 0 where there is none, or it is not known.
int device_of(void* context);

/// Makes a context current in the calling thread, for as long as it lives; null: none is. Afterwards those that were are again, also
/// under the current one, where a program has pushed several.
class WithContext {
 public:
  explicit WithContext(void* context);
  WithContext(const WithContext&) = delete;
  WithContext& operator=(const WithContext&) = delete;
  ~WithContext();

 private:
  void drop_all(std::vector<void*>* dropped);
  std::vector<void*> before_;  // the top first
};

}  // namespace epccl::nccl
