belay_fuzzer(fuzz_wal belay_consensus)
target_include_directories(fuzz_wal PRIVATE ${PROJECT_SOURCE_DIR}/tests)
belay_fuzzer(fuzz_snapshot belay_consensus)
belay_fuzzer(fuzz_manifest belay_consensus)
