#include "real_library_path.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

namespace epccl::nccl {
namespace {

constexpr std::string_view file_name = "/libnccl.so.2";

void add_library_path(std::vector<std::string>& paths) {
  const char* value = std::getenv("LD_LIBRARY_PATH");
  if (value == nullptr) return;
  std::string list = value;
  std::ranges::replace(list, ';', ':');
  std::istringstream folders(list);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty()) paths.push_back(folder.append(file_name));
}

// The linker's cache is binary, but the paths in it are plain strings that end in a zero byte.
void add_linker_cache(std::vector<std::string>& paths) {
  std::ifstream file("/etc/ld.so.cache", std::ios::binary);
  const std::string cache{std::istreambuf_iterator<char>(file), {}};
  const std::string wanted = std::string(file_name) + '\0';
  for (size_t at = cache.find(wanted); at != std::string::npos; at = cache.find(wanted, at + 1)) {
    const size_t before = cache.rfind('\0', at);
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    paths.push_back(cache.substr(begin, at - begin).append(file_name));
  }
}

}  // namespace

bool same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return std::filesystem::equivalent(a, b, ignored);
}

std::string own_path() {
  static const char here = 0;
  Dl_info info{};
  return dladdr(&here, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

std::vector<std::string> candidates_for_real_nccl() {
  std::vector<std::string> paths;
  add_library_path(paths);
  add_linker_cache(paths);
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                             "/usr/lib", "/usr/local/lib", "/usr/local/cuda/lib64", "/usr/local/cuda/lib"})
    paths.push_back(std::string(folder).append(file_name));
  const std::string self = own_path();
  std::erase_if(paths, [&self](const std::string& path) {
    std::error_code ignored;
    return !std::filesystem::exists(path, ignored) || same_file(path, self);
  });
  return paths;
}

}  // namespace epccl::nccl
