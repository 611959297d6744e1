# Raft core, log ring, shipping. The rig is a cluster in one process that these tests share.
belay_module(raft_rig SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/raft_rig.c
  ${CMAKE_CURRENT_LIST_DIR}/raft_rig_disk.c
  LIBS belay_consensus)
belay_unit_test(test_raft_random raft_rig)
belay_unit_test(test_raft_golden raft_rig)
target_compile_definitions(test_raft_golden PRIVATE
  BELAY_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden/raft")
belay_unit_test(test_raft_rules belay_consensus)
belay_unit_test(test_raft_log_rules belay_consensus)
belay_unit_test(test_log belay_consensus)
belay_unit_test(test_ship belay_consensus)
belay_unit_test(test_raft_message belay_consensus)
belay_unit_test(test_raft_quorum belay_consensus)
target_compile_definitions(test_raft_quorum PRIVATE
  BELAY_QUORUM_CASES="${PROJECT_SOURCE_DIR}/../shared/data/raft-quorum")
