# NVIDIA's NCCL, for tests only: stock programs are compiled with its header, and its symbols and sizes are compared with ours.
#   NVIDIA_NCCL_HEADER   nccl.h of the version whose ABI bindings/nccl has, which compiles (it includes CUDA's headers)
#   NVIDIA_NCCL_LIBRARY  libnccl.so.2
set(EPCCL_NCCL_ABI 22809)
find_path(NVIDIA_NCCL_INCLUDE nccl.h HINTS ENV NCCL_HOME ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES include)
find_library(NVIDIA_NCCL_LIBRARY NAMES libnccl.so.2 nccl HINTS ENV NCCL_HOME ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES lib lib64)
if(NVIDIA_NCCL_INCLUDE)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_INCLUDES ${NVIDIA_NCCL_INCLUDE})
  check_cxx_source_compiles("#include <nccl.h>
static_assert(NCCL_VERSION_CODE == ${EPCCL_NCCL_ABI}, \"\");
int main() { return 0; }" NVIDIA_NCCL_HEADER)
  unset(CMAKE_REQUIRED_INCLUDES)
endif()
if(NVIDIA_NCCL_HEADER)
  epccl_part("nccl.h" ON "${NVIDIA_NCCL_INCLUDE}: programs made for NCCL are tested with libepccl-nccl")
else()
  epccl_part("nccl.h" OFF "of version ${EPCCL_NCCL_ABI}, with CUDA's headers: no tests of programs made for NCCL")
endif()
