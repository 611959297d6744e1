/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/raw/loopback.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "bench/raw/raw.h"

struct port *loopback_port(void)
{
    struct port_kernel_options options = {.socket_buffer_bytes = 8 << 20};
    struct port *port;
    int error = port_address_parse("127.0.0.1:0", &options.bind);
    if (error == 0)
        error = port_kernel_open(&options, &port);
    if (error != 0)
        raw_die("a port on loopback: %s", strerror(-error));
    return port;
}

pid_t loopback_fork(void)
{
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        raw_die("fork: %s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) /* it ended before the line above */
            _exit(1);
    }
    return child;
}
