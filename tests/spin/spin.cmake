# The model of the write-access fence: searched whole, then with one rule left out at a time, which
# must fail. It is no C code of ours, so the sanitizer builds have nothing to add to it.
if(BELAY_SANITIZE STREQUAL "" AND NOT BELAY_FUZZ)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  find_program(SPIN spin REQUIRED)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/check.py --list
    OUTPUT_VARIABLE fence_cases COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[a-z_]+" fence_cases "${fence_cases}")
  foreach(case IN LISTS fence_cases)
    add_test(NAME model.fence_${case}
      COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/check.py ${case})
    set_tests_properties(model.fence_${case} PROPERTIES LABELS model TIMEOUT 300)
    if(case MATCHES "^holds") # half a minute and nearly a gigabyte each: one after the other
      set_tests_properties(model.fence_${case} PROPERTIES RESOURCE_LOCK fence_memory COST 100
        TIMEOUT 600)
    endif()
  endforeach()
endif()
