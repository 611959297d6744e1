foreach(storage_test test_wal test_wal_power test_wal_handover)
  belay_unit_test(${storage_test} belay_consensus)
  target_include_directories(${storage_test} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
endforeach()
