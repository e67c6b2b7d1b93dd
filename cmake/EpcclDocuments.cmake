# Installs the documents, as they lie in the tree, so that links from page to page hold. Those to headers then lead to where these are
# installed, and those to sources are plain text (installed_links.cmake).
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/bindings/python/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/bindings/python)
install(CODE "
  set(EPCCL_DOCUMENTS \"${CMAKE_INSTALL_DOCDIR}\")
  set(EPCCL_HEADERS \"${CMAKE_INSTALL_INCLUDEDIR}\")")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/installed_links.cmake)
