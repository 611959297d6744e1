belay_fuzzer(fuzz_wire belay_wire)
