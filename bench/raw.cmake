# Raw limits: what the machine gives without Belay, for ratios. Run by script/bench or by hand.
include(FindPkgConfig)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)

belay_module(belay_bench_raw SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/raw/raw.c LIBS PkgConfig::jansson)

function(belay_raw_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  list(TRANSFORM ARG_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/raw/)
  add_executable(raw_${name} ${ARG_SOURCES})
  target_link_libraries(raw_${name} PRIVATE belay_bench_raw ${ARG_LIBS} belay_flags)
  target_link_options(raw_${name} PRIVATE ${belay_across_link})
  set_target_properties(raw_${name} PROPERTIES OUTPUT_NAME ${name}
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/raw)
endfunction()

belay_raw_bench(bare_chain SOURCES bare_chain.c bare_node.c bare_store.c loopback.c
  LIBS belay_hw belay_wire)
belay_raw_bench(udp_echo SOURCES udp_echo.c echo.c loopback.c LIBS belay_hw belay_wire)
belay_raw_bench(dpdk_echo SOURCES dpdk_echo.c echo.c loopback.c virtual.c
  LIBS belay_dpdk belay_wire)
belay_raw_bench(lean_locks SOURCES lean_locks.c lean.c lean_answers.c lean_null.c echo.c loopback.c
  virtual.c ../load/histogram.c LIBS belay_dpdk belay_dataplane)
belay_raw_bench(disk_rates SOURCES disk_rates.c LIBS belay_hw)

# Compared to what others have made, where it is installed: libck-dev.
pkg_check_modules(bench_ck IMPORTED_TARGET ck)
belay_raw_bench(tables SOURCES tables.c tables_index.c LIBS belay_machine belay_hw)
if(bench_ck_FOUND)
  target_sources(raw_tables PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/raw/tables_ck_ht.c)
  target_compile_definitions(raw_tables PRIVATE BELAY_BENCH_CK)
  target_link_libraries(raw_tables PRIVATE PkgConfig::bench_ck)
endif()
# An object of its own: DPDK's flags (its configuration header, its -march) are for this file
# alone, and its headers do not pass our warnings.
add_library(raw_rte_hash OBJECT ${CMAKE_CURRENT_SOURCE_DIR}/raw/tables_rte_hash.c)
target_include_directories(raw_rte_hash SYSTEM PRIVATE ${dpdk_INCLUDE_DIRS})
target_compile_options(raw_rte_hash PRIVATE ${dpdk_CFLAGS_OTHER} -Wno-pedantic)
target_link_libraries(raw_rte_hash PRIVATE belay_flags belay_wire)
target_link_libraries(raw_tables PRIVATE raw_rte_hash rte_eal rte_hash)
