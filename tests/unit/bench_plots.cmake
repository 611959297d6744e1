# What benchmarks' figures come to: known results give the known ratios and readable plots.
# Debian's matplotlib belongs to Debian's Python, whatever else is first in the path.
find_program(BELAY_PLOT_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(BELAY_PLOT_PYTHON python3 REQUIRED)
add_test(NAME bench.ratios COMMAND ${BELAY_PLOT_PYTHON} -B ${PROJECT_SOURCE_DIR}/bench/results.py
  --self-check)
add_test(NAME bench.plots COMMAND ${BELAY_PLOT_PYTHON} -B ${PROJECT_SOURCE_DIR}/bench/plot.py
  --self-check)
set_tests_properties(bench.ratios bench.plots PROPERTIES LABELS unit TIMEOUT 120)

# The raw measurements run, shortly; their figures here mean nothing, but must be there.
if(BELAY_BENCH)
  function(belay_raw_check name flags)
    separate_arguments(flags)
    add_test(NAME bench.raw_${name} COMMAND ${BELAY_PLOT_PYTHON} -B
      ${PROJECT_SOURCE_DIR}/bench/raw/check.py $<TARGET_FILE:raw_${name}> ${flags} : ${ARGN}
      WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
    set_tests_properties(bench.raw_${name} PROPERTIES LABELS unit TIMEOUT 120)
  endfunction()
  belay_raw_check(bare_chain "--seconds 0.05 --in-flight 64 --directory DIRECTORY"
    disk.one.p50_us disk.hand_overs_s memory.one.p50_us memory.hand_overs_s
    memory.single.requests_s memory.packed.requests_s)
  belay_raw_check(udp_echo "--seconds 0.05 --in-flight 64" one.p50_us single.requests_s
    packed.requests_s)
  belay_raw_check(disk_rates "--seconds 0.05 --directory DIRECTORY" fdatasync.4k.writes_s
    ring.4k.writes_s ring.64k.writes_s)
  belay_raw_check(dpdk_echo "--seconds 0.05 --in-flight 64" one.p50_us single.requests_s
    single.server_cycles packed.requests_s)
  belay_raw_check(lean_locks "--seconds 0.05 --keys 20000 --held 1000"
    p1.requests_s p1.server_cycles p1.client_cycles p1.client_idle? p1.steady_share? p1.repeats?
    p4.client_idle? p4.steady_share? p4.repeats? p16.client_idle? p16.steady_share? p16.repeats?
    p32.requests_s p32.client_idle? p32.steady_share? p32.repeats?)
  add_test(NAME bench.lean_mistakes COMMAND ${BELAY_PLOT_PYTHON} -B
    ${PROJECT_SOURCE_DIR}/bench/raw/check_lean.py $<TARGET_FILE:raw_lean_locks>)
  set_tests_properties(bench.lean_mistakes PROPERTIES LABELS unit TIMEOUT 120)
  belay_raw_check(tables "--keys 20000" index.hit_ns index.miss_ns index.remove_insert_ns)
endif()

# The plan of script/bench can be told without running anything, and a wrong word is refused.
add_test(NAME bench.plan COMMAND ${PROJECT_SOURCE_DIR}/script/bench --list --quick --only belay)
set_tests_properties(bench.plan PROPERTIES LABELS unit TIMEOUT 60
  PASS_REGULAR_EXPRESSION "belay-memory, hot 1000\n.*the leader is lost .kill., 3 times")
add_test(NAME bench.plan_dpdk COMMAND ${PROJECT_SOURCE_DIR}/script/bench --list --quick --only dpdk)
set_tests_properties(bench.plan_dpdk PROPERTIES LABELS unit TIMEOUT 60
  PASS_REGULAR_EXPRESSION "dpdk_echo\n.*lean_null\n.*lean_kernel\n.*lean_dpdk\n.*dpdk, hot 64")
add_test(NAME bench.plan_wrong COMMAND ${PROJECT_SOURCE_DIR}/script/bench --only nobody)
set_tests_properties(bench.plan_wrong PROPERTIES LABELS unit TIMEOUT 60
  PASS_REGULAR_EXPRESSION "--only: belay, etcd, zookeeper, redis, raw or dpdk, not 'nobody'")
