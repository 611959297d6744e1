# System tests: real processes. Serial, because they measure time and fill two cores.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
find_package(Threads REQUIRED)

set(capacity "")
if(BELAY_BENCH)
  set(capacity ";BELAY_CAPACITY=$<TARGET_FILE:bench_capacity>\
;BELAY_BENCH_PROGRAM=$<TARGET_FILE:belay-bench>;BELAY_LEAN_LOCKS=$<TARGET_FILE:raw_lean_locks>")
endif()

# belay_system_test(name timeout_s): tests/system/test_<name>.py.
function(belay_system_test name timeout_s)
  add_test(NAME system.${name}
    COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/system/test_${name}.py)
  set_tests_properties(system.${name} PROPERTIES LABELS system RUN_SERIAL TRUE TIMEOUT ${timeout_s}
    ENVIRONMENT "BELAYD=$<TARGET_FILE:belayd>;BELAY=$<TARGET_FILE:belay>;\
BELAY_LOAD=$<TARGET_FILE:system_load>;BELAY_MASS=$<TARGET_FILE:system_mass>;\
BELAY_HISTORY=$<TARGET_FILE:system_history>;BELAY_REPLAY=$<TARGET_FILE:system_replay>;\
BELAY_ASKER=$<TARGET_FILE:system_asker>;\
BELAY_ALLOCATIONS_LIBRARY=$<TARGET_FILE:system_allocations>;\
BELAY_LINCHECK=$<TARGET_FILE:belay-lincheck>${capacity}")
endfunction()

if(TARGET belayd AND TARGET belay)
  add_executable(system_load ${PROJECT_SOURCE_DIR}/tests/system/load.c)
  target_link_libraries(system_load PRIVATE belay_client belay_flags Threads::Threads)
  add_executable(system_history ${PROJECT_SOURCE_DIR}/tests/system/history.c)
  target_link_libraries(system_history PRIVATE belay_client belay_flags Threads::Threads)
  add_executable(system_replay ${PROJECT_SOURCE_DIR}/tests/system/replay.c)
  target_link_libraries(system_replay PRIVATE belay_dpdk belay_flags)
  add_executable(system_asker ${PROJECT_SOURCE_DIR}/tests/system/asker.c
    ${PROJECT_SOURCE_DIR}/bench/core_socket.c)
  target_link_libraries(system_asker PRIVATE belay_core belay_client_dpdk_static belay_flags)
  add_library(system_allocations MODULE ${PROJECT_SOURCE_DIR}/tests/system/allocations.c)
  target_link_libraries(system_allocations PRIVATE ${CMAKE_DL_LIBS})
  add_executable(system_mass ${PROJECT_SOURCE_DIR}/tests/system/mass.c)
  target_link_libraries(system_mass PRIVATE belay_wire belay_flags)

  add_test(NAME rules.service_unit
    COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/service_check.py
      $<TARGET_FILE:belayd> $<TARGET_FILE_DIR:belayd>/belayd.service)
  set_tests_properties(rules.service_unit PROPERTIES LABELS unit)

  belay_system_test(single 60)
  if(TARGET belay_client_dpdk)
    belay_system_test(dpdk_client 120)
    set_property(TEST system.dpdk_client APPEND PROPERTY
      ENVIRONMENT "BELAY_DPDK_EXAMPLE=$<TARGET_FILE:example_dpdk_client>")
  endif()
  belay_system_test(three 60)
  belay_system_test(crash 120)
  belay_system_test(pause 90)
  belay_system_test(disk 120)
  belay_system_test(rebuild 120)
  belay_system_test(network 120)
  belay_system_test(leases 90)
  belay_system_test(restart 120)
  belay_system_test(snapshot 120)
  belay_system_test(process 60)
  belay_system_test(hostile 60)
  belay_system_test(http 90)
  belay_system_test(workers 90)
  belay_system_test(host 60)
  belay_system_test(limits 60)
  belay_system_test(mass 60)
  belay_system_test(rules 90)
  belay_system_test(history 240)
  if(BELAY_BENCH)
    belay_system_test(capacity 60)
    belay_system_test(bench 150)
  endif()
  belay_system_test(chaos 180)
  belay_system_test(dpdk 120)
  belay_system_test(bypass 120)
endif()
