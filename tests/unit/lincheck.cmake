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
  ${PROJECT_SOURCE_DIR}/tests/lincheck/search.c
  ${PROJECT_SOURCE_DIR}/tests/lincheck/verdict.c
  ${PROJECT_SOURCE_DIR}/tests/lincheck/report.c)
add_executable(belay-lincheck ${PROJECT_SOURCE_DIR}/tests/lincheck/main.c)
target_link_libraries(belay-lincheck PRIVATE lincheck)
