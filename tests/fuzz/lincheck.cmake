belay_fuzzer(fuzz_lincheck lincheck)
