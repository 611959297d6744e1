/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel UDP on loopback with Belay's datagram sizes and bursts: a process that sends back what it
 * gets, and a client. What no service on this kernel's UDP can be faster than.
 */
#include <signal.h>
#include <sys/wait.h>

#include "bench/raw/echo.h"
#include "bench/raw/loopback.h"

enum { SAMPLES_MAX = 1 << 20 };

__attribute__((noreturn)) static void serve(struct port *port)
{
    for (;;) {
        if (echo_answer(port) < PORT_BURST_MAX)
            echo_wait(port, -1);
    }
}

static void measure(const struct raw_options *options, struct raw_samples *samples,
                    struct raw_report *report)
{
    struct port *server = loopback_port();
    struct echo echo = {.client = loopback_port()};
    port_local_address(server, &echo.address);
    pid_t child = loopback_fork();
    if (child == 0)
        serve(server);
    echo_measure_one(&echo, options, samples, report);
    echo_measure_single(&echo, options, report);
    echo_measure_packed(&echo, options, report);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    port_close(echo.client);
    port_close(server);
}

int main(int argc, char **argv)
{
    struct raw_options options;
    struct raw_report report = {.program = "udp_echo"};
    struct raw_samples samples;
    raw_parse(&options, "f", "kernel UDP over loopback, echoed: what the transport alone can do",
              argc, argv);
    raw_samples_open(&samples, SAMPLES_MAX);
    for (uint32_t round = 0; round < options.rounds; round++)
        measure(&options, &samples, &report);
    raw_note(&report, "two processes, not pinned, recvmmsg, sendmmsg and UDP_SEGMENT");
    raw_print(&report, options.json);
    raw_samples_close(&samples);
    return 0;
}
