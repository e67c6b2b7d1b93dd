# A room is a static library that knows only the rooms it names.
#   epccl_room(NAME SOURCES a.cpp ... LINKS epccl_base ...)
add_library(epccl_flags INTERFACE)
target_compile_options(epccl_flags INTERFACE -Wall -Wextra -Wpedantic -Wnon-virtual-dtor
  # Of several files compiled as one, each may use for a local what is a name in another.
  $<$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>:-Wshadow>)
target_include_directories(epccl_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(epccl_flags INTERFACE _GNU_SOURCE EPCCL_VERSION_STRING="${PROJECT_VERSION}")
if(EPCCL_SANITIZE)
  # Two of UBSan's checks are a third of what a file takes to compile. Rooms that look at memory of others' layout keep them; elsewhere
  # AddressSanitizer still finds a null pointer.
  target_compile_options(epccl_flags INTERFACE -fsanitize=${EPCCL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    $<$<OR:$<STREQUAL:$<TARGET_PROPERTY:FOLDER>,around>,$<BOOL:$<TARGET_PROPERTY:EPCCL_TYPED_MEMORY>>>:-fno-sanitize=null,alignment>)
  target_link_options(epccl_flags INTERFACE -fsanitize=${EPCCL_SANITIZE})
endif()

function(epccl_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC epccl_flags ${ARG_LINKS})
endfunction()

# All memory that these look at has the type it was made with.
function(epccl_typed_memory)
  set_target_properties(${ARGN} PROPERTIES EPCCL_TYPED_MEMORY ON)
endfunction()

# Sanitized, what is optimised takes twice as long to compile: only rooms in which the tests compute for long are.
function(epccl_optimise_sanitized name)
  if(EPCCL_SANITIZE)
    target_compile_options(${name} PRIVATE -O1)
  endif()
endfunction()

# Of several files compiled as one gcc inlines less than of each alone, by which a small call took a tenth longer.
function(epccl_keep_inlining name)
  if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT EPCCL_SANITIZE)
    target_compile_options(${name} PRIVATE --param=inline-unit-growth=400 --param=large-unit-insns=200000)
  endif()
endfunction()

# The rooms that a small call passes are optimised across files where the library is linked: a tenth fewer instructions, for twenty seconds
# of each link. Tests and tools link the same archives without that: without -fno-lto gcc would do it for each of them.
#   epccl_optimise_across_files(LIBRARY ROOM...)
option(EPCCL_LTO "With gcc: optimise across files where libepccl is linked (release builds)" ON)
function(epccl_optimise_across_files library)
  get_property(several_configurations GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
  if(NOT EPCCL_LTO OR EPCCL_SANITIZE OR several_configurations OR NOT CMAKE_BUILD_TYPE STREQUAL "Release")
    return()
  endif()
  # Who asks for it himself has it everywhere, or nowhere.
  if(CMAKE_INTERPROCEDURAL_OPTIMIZATION OR CMAKE_INTERPROCEDURAL_OPTIMIZATION_RELEASE
     OR "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_RELEASE}" MATCHES "-f(no-)?lto")
    return()
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    include(CheckCXXCompilerFlag)
    check_cxx_compiler_flag(-flto=auto EPCCL_HAS_LTO)
  endif()
  if(EPCCL_HAS_LTO)
    foreach(room ${library} ${ARGN})
      target_compile_options(${room} PRIVATE -flto=auto -ffat-lto-objects)
    endforeach()
    target_link_options(epccl_flags INTERFACE $<IF:$<STREQUAL:$<TARGET_PROPERTY:NAME>,${library}>,-flto=auto,-fno-lto>)
  endif()
endfunction()

# Where several files are compiled as one (CMAKE_UNITY_BUILD), these are not: they define names that others of their program define too.
function(epccl_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
