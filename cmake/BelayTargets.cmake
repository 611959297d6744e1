# belay_module(name SOURCES... [LIBS ...]): a static library of one part of the house.
function(belay_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC belay_flags ${ARG_LIBS})
  target_compile_options(${name} PRIVATE ${belay_across_compile})
endfunction()

# belay_unit_test(name LIBS...): tests/unit/<name>.c, a Criterion program.
function(belay_unit_test name)
  add_executable(${name} ${PROJECT_SOURCE_DIR}/tests/unit/${name}.c)
  target_link_libraries(${name} PRIVATE ${ARGN} criterion belay_flags)
  set_target_properties(${name} PROPERTIES BELAY_RELAXED ON)
  add_test(NAME unit.${name} COMMAND ${name} --short-filename)
  set_tests_properties(unit.${name} PROPERTIES LABELS unit TIMEOUT 120)
endfunction()

# belay_plain_test(name LIBS...): tests/unit/<name>.c with a main of its own, exit code 0 = passed.
# Tests of threads are plain programs: Criterion's runner does not work under ThreadSanitizer.
function(belay_plain_test name)
  add_executable(${name} ${PROJECT_SOURCE_DIR}/tests/unit/${name}.c)
  target_link_libraries(${name} PRIVATE ${ARGN} belay_flags)
  add_test(NAME plain.${name} COMMAND ${name})
  set_tests_properties(plain.${name} PROPERTIES LABELS "unit;threads" TIMEOUT 120)
endfunction()

# belay_bench(name LIBS...): bench/<name>.c, run by hand or by script/bench, never by ctest.
function(belay_bench name)
  add_executable(bench_${name} ${PROJECT_SOURCE_DIR}/bench/${name}.c)
  set_target_properties(bench_${name} PROPERTIES OUTPUT_NAME ${name})
  target_link_libraries(bench_${name} PRIVATE ${ARGN} belay_flags)
  target_link_options(bench_${name} PRIVATE ${belay_across_link})
endfunction()

# belay_fuzzer(name LIBS...): tests/fuzz/<name>.c with LLVMFuzzerTestOneInput.
function(belay_fuzzer name)
  add_executable(${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/${name}.c)
  target_link_libraries(${name} PRIVATE ${ARGN} belay_flags)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_compile_options(${name} PRIVATE -Wno-missing-prototypes)
endfunction()
