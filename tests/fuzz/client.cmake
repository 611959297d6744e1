belay_fuzzer(fuzz_client belay_core)
