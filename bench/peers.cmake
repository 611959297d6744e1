# Drivers of the systems that Belay is compared to: each is built if what it needs is installed, and
# BELAY_BENCH_ETCD, BELAY_BENCH_ZOOKEEPER and BELAY_BENCH_REDIS say which there are.
find_package(PkgConfig REQUIRED)
set(peers ${PROJECT_SOURCE_DIR}/bench/peers)
set(peers_built "")

add_library(belay_bench_peers STATIC ${peers}/common.c)
target_link_libraries(belay_bench_peers PUBLIC belay_flags)

pkg_check_modules(BELAY_GRPC IMPORTED_TARGET QUIET grpc gpr)
pkg_check_modules(BELAY_PROTOBUF_C IMPORTED_TARGET QUIET libprotobuf-c)
find_program(BELAY_PROTOC_C protoc-c)
if(BELAY_GRPC_FOUND AND BELAY_PROTOBUF_C_FOUND AND BELAY_PROTOC_C)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/peers)
  file(MAKE_DIRECTORY ${generated})
  add_custom_command(OUTPUT ${generated}/etcd.pb-c.c ${generated}/etcd.pb-c.h
    COMMAND ${BELAY_PROTOC_C} --proto_path=${peers} --c_out=${generated} ${peers}/etcd.proto
    DEPENDS ${peers}/etcd.proto VERBATIM)
  # Generated code is not held to the house's warnings.
  add_library(belay_bench_etcd_messages STATIC ${generated}/etcd.pb-c.c ${generated}/etcd.pb-c.h)
  target_include_directories(belay_bench_etcd_messages SYSTEM PUBLIC ${generated})
  target_link_libraries(belay_bench_etcd_messages PUBLIC PkgConfig::BELAY_PROTOBUF_C)
  target_sources(belay_bench_peers PRIVATE
    ${peers}/etcd.c ${peers}/etcd_lease.c ${peers}/etcd_requests.c ${peers}/etcd_rpc.c)
  # Only the two libraries themselves: pkg-config also names everything a static link would need.
  find_library(BELAY_GRPC_LIBRARY grpc REQUIRED)
  find_library(BELAY_GPR_LIBRARY gpr REQUIRED)
  target_link_libraries(belay_bench_peers PUBLIC
    belay_bench_etcd_messages ${BELAY_GRPC_LIBRARY} ${BELAY_GPR_LIBRARY})
  target_compile_definitions(belay_bench_peers PUBLIC BELAY_BENCH_ETCD)
  list(APPEND peers_built etcd etcd-lock)
endif()

pkg_check_modules(BELAY_HIREDIS IMPORTED_TARGET QUIET hiredis)
if(BELAY_HIREDIS_FOUND)
  target_sources(belay_bench_peers PRIVATE ${peers}/redis.c ${peers}/redis_wire.c)
  target_link_libraries(belay_bench_peers PUBLIC PkgConfig::BELAY_HIREDIS)
  target_compile_definitions(belay_bench_peers PUBLIC BELAY_BENCH_REDIS)
  list(APPEND peers_built redis redlock)
endif()

# The single-threaded library (zookeeper_session.c says why); Debian has no pkg-config file for it.
find_path(BELAY_ZOOKEEPER_INCLUDE zookeeper/zookeeper.h)
find_library(BELAY_ZOOKEEPER_LIBRARY zookeeper_st)
if(BELAY_ZOOKEEPER_INCLUDE AND BELAY_ZOOKEEPER_LIBRARY)
  target_sources(belay_bench_peers PRIVATE
    ${peers}/zookeeper.c ${peers}/zookeeper_session.c)
  target_include_directories(belay_bench_peers SYSTEM PRIVATE ${BELAY_ZOOKEEPER_INCLUDE})
  target_link_libraries(belay_bench_peers PUBLIC ${BELAY_ZOOKEEPER_LIBRARY})
  target_compile_definitions(belay_bench_peers PUBLIC BELAY_BENCH_ZOOKEEPER)
  list(APPEND peers_built zookeeper)
endif()

# The drivers against real servers. Declared here: whether there is a driver is known only here.
if(BELAY_TESTS AND peers_built)
  find_package(Python3 COMPONENTS Interpreter REQUIRED)
  add_executable(system_peers ${PROJECT_SOURCE_DIR}/tests/system/peers.c)
  target_link_libraries(system_peers PRIVATE belay_bench_peers belay_flags)
  add_test(NAME system.peers
    COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/system/test_peers.py)
  string(REPLACE ";" " " peers_words "${peers_built}")
  set_tests_properties(system.peers PROPERTIES LABELS system RUN_SERIAL TRUE TIMEOUT 120
    ENVIRONMENT "BELAY_PEERS=$<TARGET_FILE:system_peers>;BELAY_PEERS_BUILT=${peers_words}")
endif()
