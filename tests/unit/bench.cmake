# The load generator's parts, and its engine against a fake lock service.
include(${PROJECT_SOURCE_DIR}/bench/load/module.cmake)
belay_unit_test(test_bench_histogram belay_load)
belay_unit_test(test_bench_names belay_load)
belay_unit_test(test_bench_scenario belay_load)
target_compile_definitions(test_bench_scenario PRIVATE
  SCENARIOS="${PROJECT_SOURCE_DIR}/bench/scenarios")
belay_unit_test(test_bench_load belay_load)
