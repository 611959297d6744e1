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
add_executable(belay-sim ${sim_sources} ${PROJECT_SOURCE_DIR}/tests/unit/lock_twin.c)
set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/unit/lock_twin.c PROPERTIES
  COMPILE_OPTIONS "-Wno-misleading-indentation")
target_link_libraries(belay-sim PRIVATE belay_planted)

add_test(NAME sim.seeds COMMAND belay-sim --seeds 1..40 --quiet)
add_test(NAME sim.calm COMMAND belay-sim --seeds 1..10 --profile calm --quiet)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME sim.plants COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/sim/plants.py
  $<TARGET_FILE:belay-sim>)
set_tests_properties(sim.seeds sim.calm PROPERTIES LABELS sim TIMEOUT 300)
set_tests_properties(sim.plants PROPERTIES LABELS "sim;long" TIMEOUT 900)
