# The client's tests. client_fake is a cluster in virtual time.
add_library(client_fake STATIC ${PROJECT_SOURCE_DIR}/tests/unit/client_fake.c)
target_link_libraries(client_fake PUBLIC belay_core)
target_include_directories(client_fake PUBLIC ${PROJECT_SOURCE_DIR}/tests/unit)

belay_unit_test(test_client_timers belay_core)
belay_unit_test(test_client_core client_fake belay_client_static)
belay_unit_test(test_client_waits client_fake)
belay_unit_test(test_client_leases client_fake)
belay_unit_test(test_client_chaos client_fake)
