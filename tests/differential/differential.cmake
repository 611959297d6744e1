# Our Raft core against another implementation, on the same schedules. Both libraries have a
# raft_init and a raft_configuration_encode: ours is compiled once more, under other names.
find_library(C_RAFT raft REQUIRED)
file(GLOB differential_core CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/consensus/raft*.c)
add_library(differential_ours OBJECT ${differential_core}
  ${PROJECT_SOURCE_DIR}/consensus/log.c
  ${PROJECT_SOURCE_DIR}/consensus/ship.c
  ${PROJECT_SOURCE_DIR}/tests/unit/raft_rig.c
  ${PROJECT_SOURCE_DIR}/tests/unit/raft_rig_disk.c
  ${PROJECT_SOURCE_DIR}/tests/differential/ours.c)
target_link_libraries(differential_ours PUBLIC belay_flags xxhash)
target_compile_definitions(differential_ours PRIVATE
  raft_init=ours_raft_init raft_configuration_encode=ours_raft_configuration_encode)

add_executable(belay-differential
  ${PROJECT_SOURCE_DIR}/tests/differential/main.c
  ${PROJECT_SOURCE_DIR}/tests/differential/schedule.c
  ${PROJECT_SOURCE_DIR}/tests/differential/theirs.c)
target_link_libraries(belay-differential PRIVATE differential_ours ${C_RAFT} belay_flags)
set(differential_seeds 1..200)
if(NOT BELAY_SANITIZE STREQUAL "")
  set(differential_seeds 1..40) # eight times slower there
endif()
add_test(NAME differential.schedules COMMAND belay-differential --seeds ${differential_seeds})
set_tests_properties(differential.schedules PROPERTIES LABELS differential TIMEOUT 300)
