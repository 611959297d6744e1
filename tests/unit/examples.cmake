# The guide's programs are built like any other, so that they cannot rot.
if(TARGET belay_client)
  foreach(example lock many fenced_write)
    add_executable(example_${example} ${PROJECT_SOURCE_DIR}/docs/examples/${example}.c)
    target_link_libraries(example_${example} PRIVATE belay_client belay_flags)
  endforeach()
  add_executable(example_dpdk_client ${PROJECT_SOURCE_DIR}/docs/examples/dpdk_client.c)
  target_link_libraries(example_dpdk_client PRIVATE belay_client_dpdk belay_client belay_flags)
  # Needs no cluster: it runs, too, in a fresh directory.
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/example_store)
  add_test(NAME example.clean COMMAND ${CMAKE_COMMAND} -E rm -rf example_store)
  add_test(NAME example.fenced_write COMMAND example_fenced_write example_store)
  set_tests_properties(example.clean PROPERTIES LABELS unit FIXTURES_SETUP example_store
    WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  set_tests_properties(example.fenced_write PROPERTIES LABELS unit TIMEOUT 60
    FIXTURES_REQUIRED example_store WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
endif()
