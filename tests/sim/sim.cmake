# The simulator compiles the product's pure parts a second time, with places for planted faults.
file(GLOB sim_product CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/client/core*.c
  ${PROJECT_SOURCE_DIR}/consensus/*.c
  ${PROJECT_SOURCE_DIR}/dataplane/machine/*.c
  ${PROJECT_SOURCE_DIR}/dataplane/wire/*.c
  ${PROJECT_SOURCE_DIR}/dataplane/shard*.c)
add_library(belay_planted OBJECT ${sim_product} ${PROJECT_SOURCE_DIR}/client/timers.c
  ${PROJECT_SOURCE_DIR}/dataplane/push.c)
target_link_libraries(belay_planted PUBLIC belay_flags xxhash sodium)
target_compile_definitions(belay_planted PUBLIC BELAY_PLANTS)

file(GLOB sim_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/sim/*.c)
list(REMOVE_ITEM sim_sources ${PROJECT_SOURCE_DIR}/tests/sim/main.c)
add_library(belay_sim OBJECT ${sim_sources} ${PROJECT_SOURCE_DIR}/tests/unit/lock_twin.c)
set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/unit/lock_twin.c PROPERTIES
  COMPILE_OPTIONS "-Wno-misleading-indentation")
target_link_libraries(belay_sim PUBLIC belay_planted)
add_executable(belay-sim ${PROJECT_SOURCE_DIR}/tests/sim/main.c)
target_link_libraries(belay-sim PRIVATE belay_sim belay_planted)

# How many seeds; sanitizers make each ten times as long.
set(sim_all 300)
set(sim_other 60)
if(BELAY_SANITIZE)
  set(sim_all 16)
  set(sim_other 4)
endif()

# belay_sim_test(profile seeds)
function(belay_sim_test profile seeds)
  add_test(NAME sim.${profile}
    COMMAND belay-sim --seeds 1..${seeds} --profile ${profile} --jobs 2 --quiet --report)
  set_tests_properties(sim.${profile} PROPERTIES LABELS sim TIMEOUT 600 PROCESSORS 2)
endfunction()
belay_sim_test(all ${sim_all})
belay_sim_test(elections ${sim_other})
belay_sim_test(membership ${sim_other})
belay_sim_test(memory ${sim_other})
belay_sim_test(rdma ${sim_other})
belay_sim_test(calm ${sim_other})

find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME sim.repeatable COMMAND ${Python3_EXECUTABLE}
  ${PROJECT_SOURCE_DIR}/tests/sim/repeatable.py $<TARGET_FILE:belay-sim>)
set_tests_properties(sim.repeatable PROPERTIES LABELS sim TIMEOUT 300)
if(NOT BELAY_SANITIZE)
  add_test(NAME sim.plants COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/sim/plants.py
    $<TARGET_FILE:belay-sim>)
  set_tests_properties(sim.plants PROPERTIES LABELS sim TIMEOUT 600)
endif()
