# A room is a static library that knows only the rooms it names.
#   epccl_room(NAME SOURCES a.cpp ... LINKS epccl_base ...)
add_library(epccl_flags INTERFACE)
target_compile_options(epccl_flags INTERFACE -Wall -Wextra -Wpedantic -Wnon-virtual-dtor -Werror
  # Of several files compiled as one, each may use for a local what is a name in another.
  $<$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>:-Wshadow>)
target_include_directories(epccl_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_compile_definitions(epccl_flags INTERFACE _GNU_SOURCE EPCCL_VERSION_STRING="${PROJECT_VERSION}")
if(EPCCL_SANITIZE)
  target_compile_options(epccl_flags INTERFACE -fsanitize=${EPCCL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(epccl_flags INTERFACE -fsanitize=${EPCCL_SANITIZE})
endif()

function(epccl_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC epccl_flags ${ARG_LINKS})
endfunction()

# Tests and programs, and everything under sanitizers, are compiled several files as one (CMAKE_UNITY_BUILD), which takes half as long.
# These define names that others of their program define too.
function(epccl_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
