belay_unit_test(test_net belay_net belay_hw)
belay_plain_test(test_net_kernel belay_net belay_hw)
belay_plain_test(test_port_dpdk belay_dpdk)
# One thread of ours, and DPDK's own, which ThreadSanitizer knows nothing of.
set_tests_properties(plain.test_port_dpdk PROPERTIES LABELS unit)
