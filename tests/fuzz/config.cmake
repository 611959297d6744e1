if(TARGET belay_mgmt)
  belay_fuzzer(fuzz_config belay_mgmt)
endif()
