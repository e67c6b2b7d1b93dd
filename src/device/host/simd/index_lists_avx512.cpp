#if defined(__x86_64__)
#include "device/host/simd/index_list_avx512.hpp"

namespace epccl::device {

const IndexListKernels avx512_index_lists = {number_from_one_with<int64_t, uint64_t>,
                                             number_from_one_with<int32_t, uint32_t>,
                                             split_runs_avx512,
                                             indices_avx512,
                                             ascend_below_plain,
                                             words_fit_plain};

}  // namespace epccl::device
#endif
