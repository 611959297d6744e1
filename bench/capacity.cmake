belay_bench(capacity belay_core)
