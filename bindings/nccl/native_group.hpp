// EPCCL's calls on several communicators of this thread, in one group: their other ranks may be this thread's too.
#pragma once

#include <cstddef>

#include "convert.hpp"

namespace epccl::nccl {

/// call(0), ..., call(count - 1). What they fail with the group's end tells.
template <typename Call>
Status in_one_native_group(size_t count, Call call) {
  EPCCL_TRY(status_of(epcclGroupStart()));
  for (size_t i = 0; i < count; ++i) call(i);
  return status_of(epcclGroupEnd());
}

}  // namespace epccl::nccl
