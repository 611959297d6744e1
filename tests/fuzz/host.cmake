if(TARGET belay_host)
  belay_fuzzer(fuzz_host host_rig belay_host)
endif()
