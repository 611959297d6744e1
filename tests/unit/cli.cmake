# The command line and the supervisor of `belay lock`, both without a server.
belay_unit_test(test_cli_parse belay_cli_parse)
belay_plain_test(test_guardian belay_supervise)
