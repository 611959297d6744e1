if(TARGET belay_sim)
  belay_bench(sim belay_sim belay_planted)
  target_link_options(bench_sim PRIVATE -fno-lto)
endif()
