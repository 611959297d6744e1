# The load generator's parts, and its engine against a fake lock service.
include(${PROJECT_SOURCE_DIR}/bench/load/module.cmake)
belay_unit_test(test_bench_histogram belay_load)
belay_unit_test(test_bench_names belay_load)
belay_unit_test(test_bench_scenario belay_load)
target_compile_definitions(test_bench_scenario PRIVATE
  SCENARIOS="${PROJECT_SOURCE_DIR}/bench/scenarios")

add_library(bench_fake STATIC ${PROJECT_SOURCE_DIR}/tests/unit/bench_fake.c)
target_link_libraries(bench_fake PUBLIC belay_load)
belay_unit_test(test_bench_load bench_fake)

# The whole program, driving a service without a fault (A) and ones with a second holder (B) and
# tokens that fall (D): exit code 0 and 1, and the report says why.
add_executable(bench_planted ${PROJECT_SOURCE_DIR}/tests/unit/bench_planted.c
  ${PROJECT_SOURCE_DIR}/bench/load/main.c ${PROJECT_SOURCE_DIR}/bench/load/report.c)
target_compile_definitions(bench_planted PRIVATE
  BELAY_SCENARIOS_SOURCE="${PROJECT_SOURCE_DIR}/bench/scenarios" BELAY_SCENARIOS_INSTALLED="")
target_link_libraries(bench_planted PRIVATE bench_fake jansson belay_flags)
function(bench_planted_test name fault code text)
  add_test(NAME bench.${name} COMMAND sh -c
    "out=$(\"$0\" --target ${fault} --scenario hot-lock --seconds 1 --warm-up 0 \
--clients 20 -o json)
     code=$?; echo \"$out\"; test $code -eq ${code} && echo \"$out\" | grep -Eq '${text}'"
    $<TARGET_FILE:bench_planted>)
  set_tests_properties(bench.${name} PROPERTIES LABELS unit TIMEOUT 60)
endfunction()
bench_planted_test(sound A 0 "\"violations\": 0,")
bench_planted_test(second_holder B 1 "\"first\": \"name 0: granted exclusively")
bench_planted_test(falling_token D 1 "\"first\": \"name 0: token [0-9]+ was granted after token")

# Ports that cannot be: said before anything is started.
if(BELAY_BENCH)
  function(bench_port_test name target port code text)
    add_test(NAME bench.port_${name} COMMAND sh -c
      "out=$(\"$0\" --target ${target}:10.9.0.1:7400 --port ${port} --scenario hot-lock 2>&1)
       code=$?; echo \"$out\"; test $code -eq ${code} && echo \"$out\" | grep -q '${text}'"
      $<TARGET_FILE:belay-bench>)
    set_tests_properties(bench.port_${name} PROPERTIES LABELS unit TIMEOUT 60)
  endfunction()
  bench_port_test(unknown belay kernel 3 "expected dpdk:")
  bench_port_test(without_address belay dpdk:net_null0 3 "expected an address and its prefix")
  bench_port_test(memory belay dpdk:net_null0,memory=0 3 "a number of MiB")
  bench_port_test(no_device belay dpdk:address=10.9.0.2/24 3 "device is missing")
  bench_port_test(no_such_device belay dpdk:net_nothing0,address=10.9.0.2/24 3 "net_nothing0")
endif()
