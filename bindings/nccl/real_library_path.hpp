// Where the system keeps libnccl.so.2.
#pragma once

#include <string>
#include <vector>

namespace epccl::nccl {

/// Existing files called libnccl.so.2 that are not this library, each once: of LD_LIBRARY_PATH, of the Python packages beside those
/// that the process has loaded libraries of, of the linker's cache, of CUDA's usual folders.
std::vector<std::string> candidates_for_real_nccl();

/// What EPCCL_NCCL_LIB means: a file, or the libnccl.so.2 of a folder.
std::string library_of_setting(const std::string& value);

/// Whether both paths name one file (links followed).
bool same_file(const std::string& a, const std::string& b);

/// This library's own file.
std::string own_path();

}  // namespace epccl::nccl
