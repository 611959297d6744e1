belay_bench(capacity belay_core)
target_sources(bench_capacity PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/core_socket.c)
