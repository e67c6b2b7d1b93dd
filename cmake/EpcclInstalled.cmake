# Where things are installed, and how one finds another there.
include(GNUInstallDirs)

# Sets `result` to the way from one folder of an installation to another, which `here` begins: relative, so that DESTDIR and
# `cmake --install --prefix DIR` need no new configure. Where either is absolute (CMAKE_INSTALL_LIBDIR=/usr/lib64) it is the other's whole path.
#   epccl_installed_way(result HERE FROM TO)
function(epccl_installed_way result here from to)
  if(IS_ABSOLUTE "${to}" OR IS_ABSOLUTE "${from}")
    cmake_path(ABSOLUTE_PATH to BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}" NORMALIZE OUTPUT_VARIABLE way)
  else()
    file(RELATIVE_PATH way "/prefix/${from}" "/prefix/${to}")
    set(way "${here}/${way}")
  endif()
  string(REGEX REPLACE "/$" "" way "${way}")
  set(${result} "${way}" PARENT_SCOPE)
endfunction()
