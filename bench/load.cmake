# belay-bench, the load generator. Drivers of other systems come with the library
# belay_bench_peers (bench/peers.cmake), which has those whose packages were found and defines
# BELAY_BENCH_ETCD and so on for its users.
include(${CMAKE_CURRENT_SOURCE_DIR}/load/module.cmake)
add_executable(belay-bench load/main.c load/targets.c load/report.c load/target_belay.c load/dpdk.c
  core_socket.c)
target_compile_definitions(belay-bench PRIVATE
  BELAY_SCENARIOS_SOURCE="${PROJECT_SOURCE_DIR}/bench/scenarios"
  BELAY_SCENARIOS_INSTALLED="${CMAKE_INSTALL_FULL_DATADIR}/belay/scenarios")
target_link_libraries(belay-bench PRIVATE belay_load belay_core belay_client_dpdk_static jansson
  belay_flags
  $<$<TARGET_EXISTS:belay_bench_peers>:belay_bench_peers>)
target_link_options(belay-bench PRIVATE ${belay_across_link})
install(TARGETS belay-bench)
install(DIRECTORY scenarios/ DESTINATION ${CMAKE_INSTALL_DATADIR}/belay/scenarios
  FILES_MATCHING PATTERN "*.scenario")
