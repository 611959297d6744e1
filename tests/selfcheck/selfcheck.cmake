# Programs with a planted fault each. They are no tests of ctest: script/test builds them in the
# sanitizer and fuzzing builds, runs them the way it runs the real tests, and wants them refused.
if(BELAY_SANITIZE STREQUAL "address" AND NOT BELAY_FUZZ)
  add_executable(planted_leak EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/planted_leak.c)
  target_link_libraries(planted_leak PRIVATE criterion belay_flags)
  target_compile_options(planted_leak PRIVATE -Wno-pedantic -Wno-conversion
    -Wno-missing-prototypes -Wno-shadow)
  add_executable(planted_undefined EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/planted_undefined.c)
  target_link_libraries(planted_undefined PRIVATE belay_flags)
elseif(BELAY_SANITIZE STREQUAL "thread")
  add_executable(planted_race EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/planted_race.c)
  target_link_libraries(planted_race PRIVATE belay_flags)
endif()
if(BELAY_FUZZ)
  add_executable(planted_crash EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/planted_crash.c)
  target_link_libraries(planted_crash PRIVATE belay_flags)
  target_link_options(planted_crash PRIVATE -fsanitize=fuzzer)
endif()
