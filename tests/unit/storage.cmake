foreach(storage_test test_wal test_wal_full test_wal_power test_wal_handover test_snapshot_file
        test_manifest)
  belay_unit_test(${storage_test} belay_consensus)
  target_include_directories(${storage_test} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
endforeach()
if(TARGET belay_hw)
  belay_unit_test(test_disk belay_hw)
  target_compile_definitions(test_disk PRIVATE BELAY_TEST_DIRECTORY="${CMAKE_CURRENT_BINARY_DIR}")
endif()
