if(TARGET belay_mgmt)
  belay_unit_test(test_config belay_mgmt)
  target_compile_definitions(test_config PRIVATE
    BELAY_SOURCE_DIRECTORY="${PROJECT_SOURCE_DIR}")
  belay_unit_test(test_arguments belay_mgmt)
  belay_unit_test(test_metrics belay_mgmt)
endif()
