# What tests/RULES.md and tests/REGRESSIONS.md found untested elsewhere.
belay_unit_test(test_lock_rules machine_rig)
belay_unit_test(test_shard_rules belay_dataplane)
belay_unit_test(test_worker_rules belay_dataplane)
target_link_options(test_worker_rules PRIVATE
  -Wl,--wrap=clock_monotonic_ns -Wl,--wrap=port_rx_burst -Wl,--wrap=port_rx_done
  -Wl,--wrap=disk_submit_write -Wl,--wrap=disk_in_flight -Wl,--wrap=disk_poll)
find_package(Python3 COMPONENTS Interpreter REQUIRED)
add_test(NAME rules.named_tests
  COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/named_tests.py)
set_tests_properties(rules.named_tests PROPERTIES LABELS unit)
