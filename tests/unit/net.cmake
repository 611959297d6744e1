belay_unit_test(test_net belay_net belay_hw)
belay_unit_test(test_net_queues belay_net belay_hw)
belay_plain_test(test_net_kernel belay_net belay_hw)
belay_plain_test(test_port_dpdk belay_dpdk)
# DPDK is not built for ThreadSanitizer, which takes what happens inside of it for races.
set_tests_properties(plain.test_port_dpdk PROPERTIES LABELS unit)
