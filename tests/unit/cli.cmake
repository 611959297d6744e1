# The command line and the supervisor of `belay lock`, both without a server.
belay_unit_test(test_cli_parse belay_cli_parse)
# check-host, with machines in memory.
belay_module(host_rig SOURCES ${CMAKE_CURRENT_LIST_DIR}/host_rig.c LIBS belay_host)
belay_unit_test(test_host host_rig)
target_compile_definitions(test_host PRIVATE
  BELAY_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden/host")
belay_plain_test(test_guardian belay_supervise)
# It measures what a busy machine would not forgive: alone, and with time for every case.
set_tests_properties(plain.test_guardian PROPERTIES RUN_SERIAL ON TIMEOUT 240)
