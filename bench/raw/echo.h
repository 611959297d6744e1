/* SPDX-License-Identifier: Apache-2.0
 *
 * What the echo measurements have in common, whatever port the datagrams take: Belay's datagram
 * sizes, one that sends back what it gets, and one that asks.
 */
#ifndef BELAY_BENCH_RAW_ECHO_H
#define BELAY_BENCH_RAW_ECHO_H

#include "bench/raw/raw.h"
#include "hw/port.h"

/* Where requests are and how fast they may come. */
struct echo {
    struct port *client;
    struct port_address address; /* of whoever answers */
};

/* Sends back what is there; returns how many. */
uint32_t echo_answer(struct port *port);

/* Waits for something to be read, if the port can wake a sleeper. `limit_ms` -1: for ever; else the
 * program ends with a sentence. */
void echo_wait(struct port *port, int limit_ms);

/* For so long: one datagram after another, each measured; or as many under way as options say, one
 * request in each or as many as fit. */
void echo_measure_one(const struct echo *echo, const struct raw_options *options,
                      struct raw_samples *samples, struct raw_report *report);
void echo_measure_single(const struct echo *echo, const struct raw_options *options,
                         struct raw_report *report);
void echo_measure_packed(const struct echo *echo, const struct raw_options *options,
                         struct raw_report *report);

#endif
