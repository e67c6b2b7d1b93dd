// Namespaces of the kernel, as containers have them.
#pragma once

#include <cstdint>

namespace epccl {

/// Equal for two processes of one machine that are in the same one of that kind ("pid", "net", "user"); 0: not known, for want of /proc.
uint64_t own_namespace(const char* kind);

/// In a user namespace that is not the machine's first.
bool in_later_user_namespace();

}  // namespace epccl
