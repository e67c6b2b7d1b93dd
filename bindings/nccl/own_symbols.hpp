// Which symbols the real NCCL finds: its calls to nccl* must find itself, not this library, which may be in front of it.
#pragma once

#include "base/status.hpp"

namespace epccl::nccl {

/// Whether the process's malloc is that of the C library. Otherwise (jemalloc, say) a library that is opened with RTLD_DEEPBIND has
/// the C library's free for what strdup or operator new got from the process's malloc.
bool malloc_is_libc_s();

/// Binds what an opened library calls or points to under names in nccl* and pnccl* to its own functions of these names, whatever was
/// found before it. Of one that others have opened with RTLD_LAZY no thread may be in such a call for the first time. Error: what cannot be
/// changed.
Status bind_to_itself(void* library);

}  // namespace epccl::nccl
