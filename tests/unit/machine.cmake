# The lock machine. The rig is one machine under test, the twin a second one written naively; both
# are shared by these tests.
belay_module(machine_rig SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/machine_rig.c
  ${CMAKE_CURRENT_LIST_DIR}/lock_twin.c
  LIBS belay_machine)
belay_unit_test(test_slab belay_machine)
belay_unit_test(test_index belay_machine)
belay_unit_test(test_timers belay_machine)
belay_unit_test(test_lock_machine machine_rig)
belay_unit_test(test_lock_machine_snapshot machine_rig)
belay_unit_test(test_lock_machine_twin machine_rig)
belay_unit_test(test_lock_machine_golden machine_rig)
target_compile_definitions(test_lock_machine_golden PRIVATE
  BELAY_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden/lock")
find_package(Threads REQUIRED)
belay_plain_test(test_index_threads machine_rig Threads::Threads)
