belay_unit_test(test_wire belay_wire)
belay_unit_test(test_wire_judges belay_wire)
belay_unit_test(test_siphash sodium jansson)
target_compile_definitions(test_siphash PRIVATE BELAY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
