# The command line and the supervisor of `belay lock`, both without a server.
belay_unit_test(test_cli_parse belay_cli_parse)
belay_plain_test(test_guardian belay_supervise)
# It measures what a busy machine would not forgive: alone, and with time for every case.
set_tests_properties(plain.test_guardian PROPERTIES RUN_SERIAL ON TIMEOUT 240)
