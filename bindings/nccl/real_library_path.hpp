// Where the system keeps libnccl.so.2.
#pragma once

#include <string>
#include <vector>

namespace epccl::nccl {

/// Existing files called libnccl.so.2 that are not this library, in the order in which the dynamic linker would look, then
/// CUDA's usual folders.
std::vector<std::string> candidates_for_real_nccl();

/// Whether both paths name one file (links followed).
bool same_file(const std::string& a, const std::string& b);

/// This library's own file.
std::string own_path();

}  // namespace epccl::nccl
