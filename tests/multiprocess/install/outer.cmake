# A project that has EPCCL as a part. -DEPCCL_TREE=FOLDER
cmake_minimum_required(VERSION 3.25)
project(outer C CXX)
add_subdirectory(${EPCCL_TREE} epccl)
add_executable(consumer consumer.c)
target_link_libraries(consumer PRIVATE epccl::epccl)
file(GENERATE OUTPUT headers CONTENT "$<TARGET_PROPERTY:epccl::epccl,INTERFACE_INCLUDE_DIRECTORIES>")
