# The load generator without main and drivers; the tests link it too, also where no benchmark is
# built.
include_guard(GLOBAL)
belay_module(belay_load SOURCES
  ${PROJECT_SOURCE_DIR}/bench/load/histogram.c
  ${PROJECT_SOURCE_DIR}/bench/load/names.c
  ${PROJECT_SOURCE_DIR}/bench/load/scenario.c
  ${PROJECT_SOURCE_DIR}/bench/load/checks.c
  ${PROJECT_SOURCE_DIR}/bench/load/timeline.c
  ${PROJECT_SOURCE_DIR}/bench/load/happenings.c
  ${PROJECT_SOURCE_DIR}/bench/load/load.c
  ${PROJECT_SOURCE_DIR}/bench/load/load_pairs.c
  ${PROJECT_SOURCE_DIR}/bench/load/load_held.c
  LIBS m)
