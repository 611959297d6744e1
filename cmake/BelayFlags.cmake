# One interface target carries what every translation unit is compiled with.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON) # gnu17: hw/ needs it for the system headers it wraps
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(belay_flags INTERFACE)
target_include_directories(belay_flags INTERFACE
  ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(belay_flags INTERFACE
  _GNU_SOURCE BELAY_VERSION_STRING="${PROJECT_VERSION}")
set(belay_strict -Wpedantic -Wconversion -Wno-sign-conversion -Wshadow -Wmissing-prototypes)
target_compile_options(belay_flags INTERFACE
  -Wall -Wextra -Werror -Wstrict-prototypes -Wvla
  -fno-strict-aliasing -fno-omit-frame-pointer -g
  # Criterion's macros do not pass these; its programs have the property BELAY_RELAXED.
  $<$<NOT:$<BOOL:$<TARGET_PROPERTY:BELAY_RELAXED>>>:${belay_strict}>
  # clang counts assert(!"why this cannot be") among doubtful conversions. (After -Wconversion.)
  $<$<C_COMPILER_ID:Clang>:-Wno-string-conversion>)

# Asserts guard invariants of a service that must rather stop than lie: they stay on in every build.
string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE}")
string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELWITHDEBINFO "${CMAKE_C_FLAGS_RELWITHDEBINFO}")

# The hot path goes through many small functions of several files: optimised across them, the
# machine does a fifth to a third more. The objects are fat: belayd and the benches pay for the
# longer link, everybody else is told to take the plain code.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "Release")
  set(belay_across_compile -flto=auto -ffat-lto-objects)
  set(belay_across_link -flto=auto -O3)
  add_link_options(-fno-lto)
endif()

if(BELAY_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
elseif(BELAY_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread)
  add_link_options(-fsanitize=thread)
elseif(NOT BELAY_SANITIZE STREQUAL "")
  message(FATAL_ERROR
    "BELAY_SANITIZE must be empty, 'address' or 'thread', not '${BELAY_SANITIZE}'")
endif()
if(BELAY_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "BELAY_FUZZ needs clang: configure with the preset 'fuzz'")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
