if(TARGET belay_mgmt)
  belay_unit_test(test_config belay_mgmt)
  belay_unit_test(test_arguments belay_mgmt)
endif()
