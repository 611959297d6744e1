# The client's tests. client_fake is a cluster in virtual time.
add_library(client_fake STATIC ${PROJECT_SOURCE_DIR}/tests/unit/client_fake.c
  ${PROJECT_SOURCE_DIR}/tests/unit/client_fake_service.c)
target_link_libraries(client_fake PUBLIC belay_core)
target_include_directories(client_fake PUBLIC ${PROJECT_SOURCE_DIR}/tests/unit)

belay_unit_test(test_client_timers belay_core)
belay_unit_test(test_client_core client_fake belay_client_static)
belay_unit_test(test_client_waits client_fake)
belay_unit_test(test_client_leases client_fake)
belay_unit_test(test_client_chaos client_fake)
belay_unit_test(test_fence belay_client_static)
belay_unit_test(test_store belay_client_static)
find_package(Threads REQUIRED)
belay_plain_test(test_client_driver belay_client_static client_fake Threads::Threads)
belay_plain_test(test_client_polled belay_client_static client_fake Threads::Threads)
belay_plain_test(test_client_dpdk belay_client_dpdk_static belay_client_static client_fake)

# Sanitizers' runtimes put symbols of their own into the library.
if(NOT BELAY_SANITIZE)
  add_test(NAME client.exported_symbols COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM}
    -DLIBRARY=$<TARGET_FILE:belay_client> -DHEADER=${PROJECT_SOURCE_DIR}/include/belay/belay.h
    -P ${PROJECT_SOURCE_DIR}/client/exported_symbols.cmake)
  add_test(NAME client.exported_symbols_dpdk COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM}
    -DLIBRARY=$<TARGET_FILE:belay_client_dpdk> -DLEAST=5
    -DHEADER=${PROJECT_SOURCE_DIR}/include/belay/dpdk.h
    -P ${PROJECT_SOURCE_DIR}/client/exported_symbols.cmake)
  set_tests_properties(client.exported_symbols client.exported_symbols_dpdk PROPERTIES LABELS unit)
endif()
