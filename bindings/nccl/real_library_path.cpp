#include "real_library_path.hpp"

#include <dlfcn.h>
#include <link.h>

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

// Python's packages bring NVIDIA's library, and frameworks among them name its folder in their own files: what such a program would
// have loaded is beside a package that it has loaded.
int add_beside_package(dl_phdr_info* info, size_t, void* paths) {
  const std::string_view loaded = info->dlpi_name != nullptr ? info->dlpi_name : "";
  for (const std::string_view folder : {"/site-packages/", "/dist-packages/"})
    if (const size_t at = loaded.find(folder); at != std::string_view::npos)
      static_cast<std::vector<std::string>*>(paths)->push_back(
          std::string(loaded.substr(0, at + folder.size())).append("nvidia/nccl/lib").append(file_name));
  return 0;
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

std::string library_of_setting(const std::string& value) {
  std::error_code ignored;
  return std::filesystem::is_directory(value, ignored) ? std::string(value).append(file_name) : value;
}

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
  dl_iterate_phdr(add_beside_package, &paths);
  add_linker_cache(paths);
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                             "/usr/lib", "/usr/local/lib", "/usr/local/cuda/lib64", "/usr/local/cuda/lib"})
    paths.push_back(std::string(folder).append(file_name));
  const std::string self = own_path();
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code ignored;
    const auto is_it = [&path](const std::string& other) { return same_file(path, other); };
    if (std::filesystem::is_regular_file(path, ignored) && !is_it(self) && std::ranges::none_of(files, is_it))
      files.push_back(path);
  }
  return files;
}

}  // namespace epccl::nccl
