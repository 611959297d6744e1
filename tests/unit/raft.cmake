# Raft core, log ring, shipping. The rig is a cluster in one process that these tests share.
belay_module(raft_rig SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/raft_rig.c
  LIBS belay_consensus)
belay_unit_test(test_raft_random raft_rig)
