if(TARGET belay_mgmt)
  belay_plain_test(test_snapshots belay_mgmt)
  belay_plain_test(test_snapshots_hostile belay_mgmt)
endif()
