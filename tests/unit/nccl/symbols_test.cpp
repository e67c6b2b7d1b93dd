// The symbols of libepccl-nccl, and what NVIDIA's library says without a GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>

#include "nccl/abi.hpp"

namespace {

using Symbols = std::map<std::string, char>;  // name -> nm's letter

Symbols symbols_of(const std::string& library) {
  const std::string command = "nm -D --defined-only '" + library + "'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  Symbols symbols;
  std::array<char, 4096> line{};
  while (pipe != nullptr && fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    std::istringstream fields(line.data());
    std::string address, letter, name;
    if (fields >> address >> letter >> name) symbols[name] = letter[0];
  }
  return symbols;
}

/// Those that the table of entry points names, as NCCL exports them.
Symbols tabled_symbols() {
  Symbols symbols{{"ncclResetDebugInitInternal", 'T'}};
  for (const char* name : {
#define ROW(result, name, parameters, arguments) #name,
#include "nccl/entry_points.inc"
#undef ROW
       }) {
    symbols[std::string("nccl") + name] = 'W';
    symbols[std::string("pnccl") + name] = 'T';
  }
  return symbols;
}

/// Those of newer versions, which are not in the table: takes them out.
size_t erase_newer(Symbols& symbols) {
  size_t erased = 0;
  for (const char* name : {
#define NAME(name) #name,
#define GROUP_NAME(name) #name,
#include "nccl/newer_names.inc"
#undef NAME
#undef GROUP_NAME
           "ParamDumpAll",
       })
    for (const char* prefix : {"nccl", "pnccl"}) erased += symbols.erase(std::string(prefix) + name);
  return erased;
}

TEST(NcclSymbols, EveryEntryPointIsExportedWeakAndStrong) {
  Symbols exported = symbols_of(EPCCL_NCCL_SHIM);
  if (exported.empty()) GTEST_SKIP() << "nm (binutils) is not installed";
  EXPECT_EQ(exported.erase("epccl_nccl_shim"), 1U);
  EXPECT_EQ(erase_newer(exported), 60U);
  EXPECT_EQ(exported, tabled_symbols());
}

// As frameworks do it that are told a path (VLLM_NCCL_SO_PATH): everything is found by dlsym.
TEST(NcclSymbols, AreFoundInALibraryThatIsOpenedByItsPath) {
  void* const library = dlopen(EPCCL_NCCL_SHIM, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const auto& [name, letter] : tabled_symbols())
    EXPECT_NE(dlsym(library, name.c_str()), nullptr) << name;
  const auto get_id = reinterpret_cast<ncclResult_t (*)(ncclUniqueId*)>(dlsym(library, "ncclGetUniqueId"));
  const auto init = reinterpret_cast<ncclResult_t (*)(ncclComm_t*, int, ncclUniqueId, int)>(
      dlsym(library, "ncclCommInitRank"));
  const auto count = reinterpret_cast<ncclResult_t (*)(ncclComm_t, int*)>(dlsym(library, "ncclCommCount"));
  const auto destroy = reinterpret_cast<ncclResult_t (*)(ncclComm_t)>(dlsym(library, "ncclCommDestroy"));
  const auto text = reinterpret_cast<const char* (*)(ncclComm_t)>(dlsym(library, "ncclGetLastError"));
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  int ranks = 0;
  ASSERT_EQ(get_id(&id), ncclSuccess) << text(nullptr);
  ASSERT_EQ(init(&comm, 1, id, 0), ncclSuccess) << text(nullptr);
  EXPECT_EQ(count(comm, &ranks), ncclSuccess);
  EXPECT_EQ(ranks, 1);
  EXPECT_EQ(destroy(comm), ncclSuccess);
}

TEST(NcclSymbols, ThoseOfNewerVersionsRefuse) {
  void* const library = dlopen(EPCCL_NCCL_SHIM, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto resume = reinterpret_cast<ncclResult_t (*)(ncclComm_t)>(dlsym(library, "ncclCommResume"));
  const auto text = reinterpret_cast<const char* (*)(ncclComm_t)>(dlsym(library, "ncclGetLastError"));
  ASSERT_NE(resume, nullptr);
  EXPECT_EQ(resume(nullptr), ncclInvalidUsage);
  EXPECT_STREQ(text(nullptr), "ncclCommResume is newer than NCCL 2.28.9, whose interface this library has");
  const auto get = reinterpret_cast<ncclResult_t (*)(void*, int64_t*)>(dlsym(library, "ncclParamGetI64"));
  ASSERT_NE(get, nullptr);
  int64_t value = 0;
  EXPECT_EQ(get(nullptr, &value), ncclInvalidUsage);
}

TEST(NcclSymbols, OfNewerVersionsOnlyWhatAGroupMayHoldSpoilsIt) {
  void* const library = dlopen(EPCCL_NCCL_SHIM, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  using Function = ncclResult_t (*)();
  const auto function = [&](const char* name) { return reinterpret_cast<Function>(dlsym(library, name)); };
  const auto start = function("ncclGroupStart"), end = function("ncclGroupEnd");
  const auto dump = reinterpret_cast<void (*)()>(dlsym(library, "ncclParamDumpAll"));
  ASSERT_NE(dump, nullptr);
  ASSERT_EQ(start(), ncclSuccess);
  dump();
  EXPECT_EQ(function("ncclParamGetI64")(), ncclInvalidUsage);
  EXPECT_EQ(function("ncclCommQueryProperties")(), ncclInvalidUsage);
  EXPECT_EQ(end(), ncclSuccess);
  ASSERT_EQ(start(), ncclSuccess);
  EXPECT_EQ(function("ncclPutSignal")(), ncclInvalidUsage);
  EXPECT_EQ(end(), ncclInvalidUsage);
}

#ifdef NVIDIA_NCCL_LIBRARY

/// A function of NVIDIA's library and the same of ours. Both are opened for themselves: nothing is shared.
class Both : public testing::Test {
 protected:
  void SetUp() override {
    theirs_ = dlopen(NVIDIA_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (theirs_ == nullptr) GTEST_SKIP() << dlerror();
    int (*version)(int*) = nullptr;
    int number = 0;
    find(theirs_, "ncclGetVersion", version);
    version(&number);
    if (number != nccl_version)
      GTEST_SKIP() << "the installed NCCL is " << number << ", not " << nccl_version;
    ours_ = dlopen(EPCCL_NCCL_SHIM, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(ours_, nullptr) << dlerror();
  }

  template <typename Function>
  void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    ASSERT_NE(function, nullptr) << name;
  }

  void* theirs_ = nullptr;
  void* ours_ = nullptr;
};

TEST_F(Both, HaveTheSameSymbols) {
  Symbols theirs = symbols_of(NVIDIA_NCCL_LIBRARY), ours = symbols_of(EPCCL_NCCL_SHIM);
  if (theirs.empty()) GTEST_SKIP() << "nm (binutils) is not installed";
  ours.erase("epccl_nccl_shim");
  erase_newer(ours);
  EXPECT_EQ(ours, theirs);
}

TEST_F(Both, HaveTheSameErrorStrings) {
  const char* (*a)(int) = nullptr;
  const char* (*b)(int) = nullptr;
  find(ours_, "ncclGetErrorString", a);
  find(theirs_, "ncclGetErrorString", b);
  for (int code = -1; code <= 9; ++code) EXPECT_STREQ(a(code), b(code)) << code;
}

using Requirements = ncclDevResourceRequirements_t;

/// Numbers of the requirement, and where in the handle its results go.
std::string described(const Requirements& requirement, const void* handle) {
  const auto at = [handle](const void* pointer) {
    return pointer == nullptr ? -1 : static_cast<const char*>(pointer) - static_cast<const char*>(handle);
  };
  std::ostringstream out;
  out << requirement.bufferSize << " bytes, align " << requirement.bufferAlign << ", buffer to "
      << at(requirement.outBufferHandle) << ", " << requirement.ginSignalCount << " signals to "
      << at(requirement.outGinSignalStart) << ", " << requirement.ginCounterCount << " counters to "
      << at(requirement.outGinCounterStart) << ", next " << (requirement.next == nullptr);
  return out.str();
}

TEST_F(Both, ComputeTheSameDeviceRequirements) {
  std::mt19937 random(7);
  const auto pick = [&random](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
  int (*slots[2])(int, int) = {};
  int (*lla2a[2])(int, int, ncclLLA2AHandle_t*, Requirements*) = {};
  int (*lsa[2])(ncclTeam_t, int, ncclLsaBarrierHandle_t*, Requirements*) = {};
  int (*gin[2])(void*, ncclTeam_t, int, ncclGinBarrierHandle_t*, Requirements*) = {};
  for (int i = 0; i < 2; ++i) {
    void* library = i == 0 ? ours_ : theirs_;
    find(library, "ncclLLA2ACalcSlots", slots[i]);
    find(library, "ncclLLA2ACreateRequirement", lla2a[i]);
    find(library, "ncclLsaBarrierCreateRequirement", lsa[i]);
    find(library, "ncclGinBarrierCreateRequirement", gin[i]);
  }
  for (int round = 0; round < 200; ++round) {
    const int a = pick(1000), b = pick(300);
    const ncclTeam_t team{1 + pick(100), pick(10), 1 + pick(8)};
    EXPECT_EQ(slots[0](a, b), slots[1](a, b)) << a << ' ' << b;
    std::string seen[2];
    for (int i = 0; i < 2; ++i) {
      Requirements requirement{};
      ncclLLA2AHandle_t handle{};
      ncclLsaBarrierHandle_t lsa_handle{};
      ncclGinBarrierHandle_t gin_handle{};
      EXPECT_EQ(lla2a[i](a, b, &handle, &requirement), 0);
      seen[i] = std::to_string(handle.nSlots) + ": " + described(requirement, &handle);
      EXPECT_EQ(lsa[i](team, a, &lsa_handle, &requirement), 0);
      seen[i] += "; " + std::to_string(lsa_handle.nBarriers) + ": " + described(requirement, &lsa_handle);
      EXPECT_EQ(gin[i](nullptr, team, a, &gin_handle, &requirement), 0);
      seen[i] += "; " + described(requirement, &gin_handle);
    }
    EXPECT_EQ(seen[0], seen[1]);
  }
}

#endif

}  // namespace
