#include "base/namespaces.hpp"

#include <sys/stat.h>

#include <string>

namespace epccl {

uint64_t own_namespace(const char* kind) {
  struct stat info {};
  return stat((std::string("/proc/self/ns/") + kind).c_str(), &info) == 0 ? info.st_ino : 0;
}

bool in_later_user_namespace() {
  constexpr uint64_t first = 0xEFFFFFFD;  // PROC_USER_INIT_INO: the same in all kernels
  const uint64_t own = own_namespace("user");
  return own != 0 && own != first;
}

}  // namespace epccl
