#if defined(__x86_64__)
#include "device/host/simd/index_list_loops.hpp"

namespace epccl::device {

const IndexListKernels avx2_index_lists = {number_from_one_with<int64_t, uint64_t>,
                                           number_from_one_with<int32_t, uint32_t>,
                                           split_runs_plain,
                                           indices_plain,
                                           ascend_below_plain,
                                           words_fit_plain};

}  // namespace epccl::device
#endif
