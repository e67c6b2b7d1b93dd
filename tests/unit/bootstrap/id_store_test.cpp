// The id through a directory of a network file system, by a double of one: each thread is a machine that remembers which names a
// directory has and has not, until it asks the server anew (statx with AT_STATX_FORCE_SYNC), as NFS does for half a minute.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdarg>
#include <filesystem>
#include <map>

#include "ranks.hpp"
#include "runtime/bootstrap/id_exchange.hpp"

namespace {

thread_local bool remembers = false;
thread_local std::map<std::string, bool> remembered;  // names, and whether they are there

template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// What a look-up of the name says, asking only where nothing is remembered.
bool is_there(int directory, const char* name) {
  const auto found = remembered.find(name);
  if (found != remembered.end()) return found->second;
  return remembered[name] = real<int(int, const char*, int, int)>("faccessat")(directory, name, F_OK, 0) == 0;
}

int no_such_file() {
  errno = ENOENT;
  return -1;
}

}  // namespace

extern "C" {

int openat(int directory, const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const unsigned mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned) : 0;
  va_end(rest);
  if (remembers && (flags & O_CREAT) == 0 && !is_there(directory, name)) return no_such_file();
  return real<int(int, const char*, int, ...)>("openat")(directory, name, flags, mode);
}

int faccessat(int directory, const char* name, int mode, int flags) noexcept {
  if (remembers) return is_there(directory, name) ? 0 : no_such_file();
  return real<int(int, const char*, int, int)>("faccessat")(directory, name, mode, flags);
}

int renameat(int from, const char* name, int to, const char* new_name) noexcept {
  remembered.erase(new_name);
  return real<int(int, const char*, int, const char*)>("renameat")(from, name, to, new_name);
}

int unlinkat(int directory, const char* name, int flags) noexcept {
  remembered.erase(name);
  return real<int(int, const char*, int)>("unlinkat")(directory, name, flags);
}

int statx(int directory, const char* name, int flags, unsigned mask, struct statx* about) noexcept {
  if ((flags & AT_STATX_FORCE_SYNC) != 0) remembered.clear();
  return real<int(int, const char*, int, unsigned, struct statx*)>("statx")(directory, name, flags, mask,
                                                                            about);
}

}  // extern "C"

namespace epccl::test {
namespace {

using namespace runtime;

TEST(IdStore, WorksThroughADirectoryOfWhichMachinesRememberWhatItHas) {
  std::string directory = testing::TempDir() + "storeXXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const IdStore store{directory, false};
  UniqueId id;
  id.bytes.fill(std::byte{7});
  on_ranks(4, [&](int rank) {
    remembers = true;
    if (rank == 0) {
      const Status given = store.give(id, 4, 0, patience);
      EXPECT_TRUE(given.ok()) << given.message();
      return;
    }
    const auto taken = store.take(rank, 0, patience);
    ASSERT_TRUE(taken.ok()) << taken.status().message();
    EXPECT_EQ(taken->bytes, id.bytes);
  });
  EXPECT_TRUE(std::filesystem::is_empty(directory)) << "nothing stays behind";
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace epccl::test
