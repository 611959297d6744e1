# The linearizability checker. It judges what the rest does, so it shares no code with it.
belay_module(lincheck SOURCES
  ${PROJECT_SOURCE_DIR}/tests/lincheck/intern.c
  ${PROJECT_SOURCE_DIR}/tests/lincheck/datum.c
  ${PROJECT_SOURCE_DIR}/tests/lincheck/datum_edn.c
  ${PROJECT_SOURCE_DIR}/tests/lincheck/datum_json.c
  ${PROJECT_SOURCE_DIR}/tests/lincheck/history.c
  ${PROJECT_SOURCE_DIR}/tests/lincheck/events.c
  ${PROJECT_SOURCE_DIR}/tests/lincheck/pairing.c
  ${PROJECT_SOURCE_DIR}/tests/lincheck/model.c
  ${PROJECT_SOURCE_DIR}/tests/lincheck/lock_state.c
  ${PROJECT_SOURCE_DIR}/tests/lincheck/plan.c
  ${PROJECT_SOURCE_DIR}/tests/lincheck/depth.c
  ${PROJECT_SOURCE_DIR}/tests/lincheck/breadth.c
  ${PROJECT_SOURCE_DIR}/tests/lincheck/search.c
  ${PROJECT_SOURCE_DIR}/tests/lincheck/verdict.c
  ${PROJECT_SOURCE_DIR}/tests/lincheck/report.c)
add_executable(belay-lincheck ${PROJECT_SOURCE_DIR}/tests/lincheck/main.c)
target_link_libraries(belay-lincheck PRIVATE lincheck)

belay_unit_test(test_lincheck_read lincheck)
belay_unit_test(test_lincheck_models lincheck)
belay_unit_test(test_lincheck_twin lincheck)
add_test(NAME lincheck.program COMMAND ${CMAKE_COMMAND} -DLINCHECK=$<TARGET_FILE:belay-lincheck>
  -DSCRATCH=${CMAKE_CURRENT_BINARY_DIR}/lincheck-scratch
  -P ${PROJECT_SOURCE_DIR}/tests/lincheck/program.cmake)
set_tests_properties(lincheck.program PROPERTIES LABELS unit TIMEOUT 240)
add_test(NAME lincheck.verdicts COMMAND ${CMAKE_COMMAND} -DLINCHECK=$<TARGET_FILE:belay-lincheck>
  -DDATA=${PROJECT_SOURCE_DIR}/../shared/data
  -P ${PROJECT_SOURCE_DIR}/tests/lincheck/verdicts.cmake)
set_tests_properties(lincheck.verdicts PROPERTIES LABELS unit TIMEOUT 240
  SKIP_REGULAR_EXPRESSION "SKIPPED: ")
