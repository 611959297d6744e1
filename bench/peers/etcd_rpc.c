/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/peers/etcd_rpc.h"

#include <assert.h>
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Events of one turn: what keeps coming must not keep the load generator from its clock. */
enum { EVENTS_PER_TURN = 256 };

/* After a connection broke it is tried again this soon (gRPC waits a second by itself). */
enum { RECONNECT_MS = 100, RECONNECT_MAX_MS = 1000, CONNECT_TIMEOUT_MS = 2000 };

/* A connection over which nothing comes is asked for a sign of life, and given up without one. etcd
 * closes connections that ask more often than every 5 s. */
enum { PING_MS = 10000, PING_TIMEOUT_MS = 3000 };

enum tag_kind { TAG_CALL, TAG_SEND, TAG_RECEIVE, TAG_STATUS };

struct tag {
    enum tag_kind kind;
    void *owner; /* a struct call or a struct etcd_stream */
};

struct call {
    struct tag tag;
    struct call *next_all;  /* of all that were ever made */
    struct call *next_free; /* kept for the next call */
    grpc_call *call;        /* NULL: free */
    grpc_byte_buffer *request, *answer;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
    etcd_answered *answered;
    void *context;
    uint64_t cookie;
};

struct etcd_stream {
    struct etcd_rpc *rpc;
    struct etcd_stream *next;
    const struct etcd_stream_class *class;
    void *context;
    uint32_t channel;
    struct tag send_tag, receive_tag, status_tag;
    unsigned pending; /* batches under way: the call goes when the last of them has ended */
    bool ended;       /* its status came, or a batch failed */
    grpc_call *call;  /* NULL: down */
    grpc_byte_buffer **queue;
    uint32_t queue_capacity; /* a power of two */
    uint32_t queue_begin, queue_end;
    bool sending;       /* the initial metadata are, or the message at queue_begin is */
    bool metadata_sent; /* from then on it is messages */
    grpc_byte_buffer *received;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
};

struct etcd_rpc {
    grpc_completion_queue *queue;
    grpc_channel **channels;
    uint32_t channels_count;
    struct call *calls, *calls_free;
    struct etcd_stream *streams;
    bool closing; /* nobody is told any more */
};

static gpr_timespec deadline_of(uint64_t until_ns)
{
    if (until_ns == PEER_NEVER_NS)
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    return (gpr_timespec){.tv_sec = (int64_t)(until_ns / UINT64_C(1000000000)),
                          .tv_nsec = (int32_t)(until_ns % UINT64_C(1000000000)),
                          .clock_type = GPR_CLOCK_MONOTONIC};
}

static grpc_byte_buffer *pack(const ProtobufCMessage *message)
{
    grpc_slice slice = grpc_slice_malloc(protobuf_c_message_get_packed_size(message));

    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return buffer;
}

static grpc_slice content(grpc_byte_buffer *buffer)
{
    grpc_byte_buffer_reader reader;

    if (!buffer || !grpc_byte_buffer_reader_init(&reader, buffer))
        return grpc_empty_slice();
    grpc_slice slice = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    return slice;
}

static void start(grpc_call *call, const grpc_op *ops, size_t count, struct tag *tag)
{
    grpc_call_error error = grpc_call_start_batch(call, ops, count, tag, NULL);

    assert(error == GRPC_CALL_OK); /* anything else is misuse of the API */
    (void)error;
}

/* ---- calls --------------------------------------------------------------------------------- */

static struct call *take_call(struct etcd_rpc *rpc)
{
    struct call *call = rpc->calls_free;

    if (call) {
        rpc->calls_free = call->next_free;
        return call;
    }
    call = peer_alloc(1, sizeof(*call));
    call->tag = (struct tag){.kind = TAG_CALL, .owner = call};
    call->next_all = rpc->calls;
    rpc->calls = call;
    return call;
}

void etcd_call(struct etcd_rpc *rpc, uint32_t channel, const char *method,
               const ProtobufCMessage *request, uint64_t deadline_ns, etcd_answered *answered,
               void *context, uint64_t cookie)
{
    struct call *call = take_call(rpc);

    call->answered = answered;
    call->context = context;
    call->cookie = cookie;
    call->request = pack(request);
    call->answer = NULL;
    grpc_metadata_array_init(&call->initial);
    grpc_metadata_array_init(&call->trailing);
    call->call = grpc_channel_create_call(rpc->channels[channel], NULL, GRPC_PROPAGATE_DEFAULTS,
                                          rpc->queue, grpc_slice_from_static_string(method), NULL,
                                          deadline_of(deadline_ns), NULL);
    grpc_op ops[] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = call->request},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA,
         .data.recv_initial_metadata.recv_initial_metadata = &call->initial},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->answer},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
         .data.recv_status_on_client = {.trailing_metadata = &call->trailing,
                                        .status = &call->status,
                                        .status_details = &call->details}},
    };
    start(call->call, ops, sizeof(ops) / sizeof(ops[0]), &call->tag);
}

static void call_ended(struct etcd_rpc *rpc, struct call *call)
{
    grpc_slice bytes = content(call->answer);
    char *details = grpc_slice_to_c_string(call->details);
    struct etcd_answer answer = {.code = (int)call->status,
                                 .details = details,
                                 .bytes = GRPC_SLICE_START_PTR(bytes),
                                 .bytes_count = GRPC_SLICE_LENGTH(bytes)};

    if (!rpc->closing)
        call->answered(call->context, call->cookie, &answer);
    gpr_free(details);
    grpc_slice_unref(bytes);
    grpc_slice_unref(call->details);
    grpc_byte_buffer_destroy(call->request);
    grpc_byte_buffer_destroy(call->answer);
    grpc_metadata_array_destroy(&call->initial);
    grpc_metadata_array_destroy(&call->trailing);
    grpc_call_unref(call->call);
    call->call = NULL;
    call->next_free = rpc->calls_free;
    rpc->calls_free = call;
}

/* ---- streams ------------------------------------------------------------------------------- */

static void receive_next(struct etcd_stream *stream)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &stream->received};

    stream->received = NULL;
    stream->pending++;
    start(stream->call, &op, 1, &stream->receive_tag);
}

void etcd_stream_restart(struct etcd_stream *stream)
{
    if (stream->call || stream->rpc->closing)
        return;
    stream->ended = false;
    stream->sending = true;
    stream->metadata_sent = false;
    stream->call = grpc_channel_create_call(stream->rpc->channels[stream->channel], NULL,
                                            GRPC_PROPAGATE_DEFAULTS, stream->rpc->queue,
                                            grpc_slice_from_static_string(stream->class->method),
                                            NULL, deadline_of(PEER_NEVER_NS), NULL);
    grpc_metadata_array_init(&stream->initial);
    grpc_metadata_array_init(&stream->trailing);
    grpc_op status[] = {
        {.op = GRPC_OP_RECV_INITIAL_METADATA,
         .data.recv_initial_metadata.recv_initial_metadata = &stream->initial},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
         .data.recv_status_on_client = {.trailing_metadata = &stream->trailing,
                                        .status = &stream->status,
                                        .status_details = &stream->details}},
    };
    grpc_op first = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    stream->pending = 3; /* metadata there and back, status */
    start(stream->call, &status[1], 1, &stream->status_tag);
    start(stream->call, &status[0], 1, &stream->status_tag);
    start(stream->call, &first, 1, &stream->send_tag);
    receive_next(stream);
}

struct etcd_stream *etcd_stream_open(struct etcd_rpc *rpc, uint32_t channel,
                                     const struct etcd_stream_class *class, void *context)
{
    struct etcd_stream *stream = peer_alloc(1, sizeof(*stream));

    stream->rpc = rpc;
    stream->class = class;
    stream->context = context;
    stream->channel = channel;
    stream->send_tag = (struct tag){.kind = TAG_SEND, .owner = stream};
    stream->receive_tag = (struct tag){.kind = TAG_RECEIVE, .owner = stream};
    stream->status_tag = (struct tag){.kind = TAG_STATUS, .owner = stream};
    stream->queue_capacity = 64;
    stream->queue = peer_alloc(stream->queue_capacity, sizeof(grpc_byte_buffer *));
    stream->next = rpc->streams;
    rpc->streams = stream;
    etcd_stream_restart(stream);
    return stream;
}

bool etcd_stream_up(const struct etcd_stream *stream)
{
    return stream->call && !stream->ended;
}

static void send_next(struct etcd_stream *stream)
{
    if (stream->sending || stream->ended || stream->queue_begin == stream->queue_end)
        return;
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE,
                  .data.send_message.send_message =
                      stream->queue[stream->queue_begin & (stream->queue_capacity - 1)]};
    stream->sending = true;
    stream->pending++;
    start(stream->call, &op, 1, &stream->send_tag);
}

bool etcd_stream_send(struct etcd_stream *stream, const ProtobufCMessage *message)
{
    uint32_t count = stream->queue_end - stream->queue_begin;

    if (!etcd_stream_up(stream))
        return false;
    if (count == stream->queue_capacity) {
        grpc_byte_buffer **more = peer_alloc((size_t)count * 2, sizeof(*more));

        for (uint32_t i = 0; i < count; i++)
            more[i] = stream->queue[(stream->queue_begin + i) & (count - 1)];
        free(stream->queue);
        stream->queue = more;
        stream->queue_capacity = count * 2;
        stream->queue_begin = 0;
        stream->queue_end = count;
    }
    stream->queue[stream->queue_end++ & (stream->queue_capacity - 1)] = pack(message);
    send_next(stream);
    return true;
}

static void drop_first(struct etcd_stream *stream)
{
    grpc_byte_buffer_destroy(stream->queue[stream->queue_begin++ & (stream->queue_capacity - 1)]);
}

static void stream_gone(struct etcd_rpc *rpc, struct etcd_stream *stream)
{
    while (stream->queue_begin != stream->queue_end)
        drop_first(stream);
    grpc_slice_unref(stream->details);
    grpc_metadata_array_destroy(&stream->initial);
    grpc_metadata_array_destroy(&stream->trailing);
    grpc_call_unref(stream->call);
    stream->call = NULL;
    if (!rpc->closing)
        stream->class->broken(stream->context, stream->channel);
}

static void stream_event(struct etcd_rpc *rpc, struct tag *tag, bool ok)
{
    struct etcd_stream *stream = tag->owner;

    stream->pending--;
    switch (tag->kind) {
    case TAG_RECEIVE:
        if (!ok || !stream->received || stream->ended) {
            grpc_byte_buffer_destroy(stream->received);
            stream->ended = true;
            break;
        }
        grpc_slice bytes = content(stream->received);
        grpc_byte_buffer_destroy(stream->received);
        receive_next(stream);
        if (!rpc->closing)
            stream->class->message(stream->context, stream->channel, GRPC_SLICE_START_PTR(bytes),
                                   GRPC_SLICE_LENGTH(bytes));
        grpc_slice_unref(bytes);
        break;
    case TAG_SEND:
        if (stream->metadata_sent)
            drop_first(stream);
        stream->metadata_sent = true;
        stream->sending = false;
        if (!ok)
            stream->ended = true;
        send_next(stream);
        break;
    default: /* metadata, or the status: a receive that fails says that it has ended */
        break;
    }
    if (stream->ended && stream->pending > 0)
        grpc_call_cancel(stream->call, NULL);
    if (stream->pending == 0)
        stream_gone(rpc, stream);
}

/* ---- turning ------------------------------------------------------------------------------- */

static void handle(struct etcd_rpc *rpc, const grpc_event *event)
{
    struct tag *tag = event->tag;

    if (tag->kind == TAG_CALL)
        call_ended(rpc, tag->owner);
    else
        stream_event(rpc, tag, event->success != 0);
}

unsigned etcd_rpc_turn(struct etcd_rpc *rpc, uint64_t until_ns)
{
    unsigned count = 0;

    while (count < EVENTS_PER_TURN) {
        grpc_event event =
            grpc_completion_queue_next(rpc->queue, deadline_of(count ? 0 : until_ns), NULL);

        if (event.type != GRPC_OP_COMPLETE)
            break;
        handle(rpc, &event);
        count++;
    }
    return count;
}

/* ---- opening and closing ------------------------------------------------------------------- */

static grpc_channel *open_channel(const char *where)
{
    grpc_arg settings[] = {
        {.type = GRPC_ARG_STRING, .key = GRPC_ARG_LB_POLICY_NAME, .value.string = "round_robin"},
        /* Channels of the same endpoints would share their connections. */
        {.type = GRPC_ARG_INTEGER, .key = GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, .value.integer = 1},
        {.type = GRPC_ARG_INTEGER, .key = GRPC_ARG_ENABLE_HTTP_PROXY, .value.integer = 0},
        {.type = GRPC_ARG_INTEGER,
         .key = GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
         .value.integer = RECONNECT_MS},
        {.type = GRPC_ARG_INTEGER,
         .key = GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, /* in fact how long one attempt may take */
         .value.integer = CONNECT_TIMEOUT_MS},
        {.type = GRPC_ARG_INTEGER,
         .key = GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
         .value.integer = RECONNECT_MAX_MS},
        {.type = GRPC_ARG_INTEGER, .key = GRPC_ARG_KEEPALIVE_TIME_MS, .value.integer = PING_MS},
        {.type = GRPC_ARG_INTEGER,
         .key = GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
         .value.integer = PING_TIMEOUT_MS},
        {.type = GRPC_ARG_INTEGER,
         .key = GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA,
         .value.integer = 0}, /* no limit of this side's own */
    };
    grpc_channel_args args = {.num_args = sizeof(settings) / sizeof(settings[0]), .args = settings};
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(where, plain, &args);

    grpc_channel_credentials_release(plain);
    return channel;
}

struct etcd_rpc *etcd_rpc_open(const struct peer_endpoint *endpoints, unsigned endpoints_count,
                               uint32_t channels)
{
    struct etcd_rpc *rpc = peer_alloc(1, sizeof(*rpc));
    char where[8 + PEER_ENDPOINTS_MAX * (PEER_ADDRESS_BYTES + 8)];
    size_t used = (size_t)snprintf(where, sizeof(where), "ipv4:");

    for (unsigned i = 0; i < endpoints_count; i++)
        used += (size_t)snprintf(where + used, sizeof(where) - used, "%s%s:%u", i ? "," : "",
                                 endpoints[i].address, endpoints[i].port);
    grpc_init();
    rpc->queue = grpc_completion_queue_create_for_next(NULL);
    rpc->channels_count = channels;
    rpc->channels = peer_alloc(channels, sizeof(grpc_channel *));
    for (uint32_t i = 0; i < channels; i++)
        rpc->channels[i] = open_channel(where);
    return rpc;
}

void etcd_rpc_close(struct etcd_rpc *rpc)
{
    grpc_event event;

    rpc->closing = true;
    for (struct call *call = rpc->calls; call; call = call->next_all) {
        if (call->call)
            grpc_call_cancel(call->call, NULL);
    }
    for (struct etcd_stream *stream = rpc->streams; stream; stream = stream->next) {
        stream->ended = true;
        if (stream->call)
            grpc_call_cancel(stream->call, NULL);
    }
    for (uint32_t i = 0; i < rpc->channels_count; i++)
        grpc_channel_destroy(rpc->channels[i]);
    grpc_completion_queue_shutdown(rpc->queue);
    while (
        (event = grpc_completion_queue_next(rpc->queue, deadline_of(PEER_NEVER_NS), NULL)).type !=
        GRPC_QUEUE_SHUTDOWN) {
        if (event.type == GRPC_OP_COMPLETE)
            handle(rpc, &event);
    }
    grpc_completion_queue_destroy(rpc->queue);
    while (rpc->calls) {
        struct call *next = rpc->calls->next_all;
        free(rpc->calls);
        rpc->calls = next;
    }
    while (rpc->streams) {
        struct etcd_stream *next = rpc->streams->next;
        free(rpc->streams->queue);
        free(rpc->streams);
        rpc->streams = next;
    }
    free(rpc->channels);
    free(rpc);
    grpc_shutdown();
}
