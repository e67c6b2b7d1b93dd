// UCX is opened by those that use it, and not by those that were told to use something else.
#include <gtest/gtest.h>
#include <link.h>

#include <string>
#include <string_view>

#include "ranks.hpp"

namespace epccl::tests {
namespace {

bool ucx_is_loaded() {
  return dl_iterate_phdr(
             [](dl_phdr_info* object, size_t, void*) {
               return std::string_view(object->dlpi_name).find("/libucp.so") != std::string_view::npos ? 1
                                                                                                       : 0;
             },
             nullptr) != 0;
}

void exchange(epcclComm_t comm) {
  int in[2] = {1, 2}, out[2] = {};
  EXPECT_EQ(epcclAlltoall(in, out, 1, epcclInt, comm, nullptr), epcclSuccess) << epcclGetLastError(comm);
}

TEST(Ucx, IsNotLoadedByRanksThatDoNotUseIt) {
  run_ranks({{1, 1}, {{"EPCCL_NET", "tcp"}}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    exchange(comm);
    EXPECT_FALSE(ucx_is_loaded());
  });
}

#ifdef EPCCL_WITH_UCX
TEST(Ucx, IsOpenedByRanksThatUseIt) {
  run_ranks({{1, 1}, {{"EPCCL_NET", "ucx"}}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    exchange(comm);
    EXPECT_TRUE(ucx_is_loaded());
  });
}

TEST(Ucx, ThatIsNotThereIsAnErrorThatNamesIt) {
  run_ranks({{1, 1}, {{"EPCCL_NET", "ucx"}, {"EPCCL_UCX_LIB", "/no/such/libucp.so"}}, {}},
            [](const RankContext& context) {
              epcclComm_t comm = nullptr;
              EXPECT_EQ(epcclCommInitRank(&comm, 2, context.id, context.rank), epcclSystemError);
              const std::string text = epcclGetLastError(nullptr);
              EXPECT_NE(text.find("opening UCX: /no/such/libucp.so"), std::string::npos) << text;
            });
}
#else
TEST(Ucx, IsOpenedByRanksThatUseIt) {
  GTEST_SKIP() << "this build has no UCX";
}
#endif

}  // namespace
}  // namespace epccl::tests
