belay_fuzzer(fuzz_net belay_net)
