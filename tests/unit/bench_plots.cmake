# What benchmarks' figures come to: known results give the known ratios and readable plots.
# Debian's matplotlib belongs to Debian's Python, whatever else is first in the path.
find_program(BELAY_PLOT_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(BELAY_PLOT_PYTHON python3 REQUIRED)
add_test(NAME bench.ratios COMMAND ${BELAY_PLOT_PYTHON} -B ${PROJECT_SOURCE_DIR}/bench/results.py
  --self-check)
add_test(NAME bench.plots COMMAND ${BELAY_PLOT_PYTHON} -B ${PROJECT_SOURCE_DIR}/bench/plot.py
  --self-check)
set_tests_properties(bench.ratios bench.plots PROPERTIES LABELS unit TIMEOUT 120)
