// System calls that a filter (seccomp) may keep from this process. A container's, or a sandbox's, knows what its author has thought of; a
// wait that is refused ends at once, and looks like a rank that says nothing.
#pragma once

#include "base/status.hpp"

namespace epccl {

/// As system_error(), of a call that nothing else refuses with EPERM, EACCES or ENOSYS.
Status call_error(int errno_value, const char* call);

/// Whether this process may wait for descriptors and accept connections: some fractions of a microsecond, so that who opens a socket may ask.
Status check_allowed_calls();

}  // namespace epccl
