/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's thread, socket and timer, and what the core's effects become.
 */
#include "client/driver.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "client/core_transport.h"

/* CLOCK_MONOTONIC stops while the machine is suspended, and leases do not. */
uint64_t driver_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* ---- sending --------------------------------------------------------------------------------- */

static socklen_t to_socket_address(const belay_client *client, const struct wire_address *from,
                                   struct sockaddr_storage *to)
{
    memset(to, 0, sizeof(*to));
    if (client->ipv6) {
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)to;
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(from->port);
        memcpy(&v6->sin6_addr, from->ip, 16);
        return sizeof(*v6);
    }
    struct sockaddr_in *v4 = (struct sockaddr_in *)to;
    v4->sin_family = AF_INET;
    v4->sin_port = htons(from->port);
    memcpy(&v4->sin_addr, from->ip + 12, 4);
    return sizeof(*v4);
}

static bool from_socket_address(const struct sockaddr_storage *from, struct wire_address *to)
{
    memset(to, 0, sizeof(*to));
    if (from->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
        memcpy(to->ip, &v6->sin6_addr, 16);
        to->port = ntohs(v6->sin6_port);
        return true;
    }
    if (from->ss_family != AF_INET)
        return false;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
    to->ip[10] = to->ip[11] = 0xff;
    memcpy(to->ip + 12, &v4->sin_addr, 4);
    to->port = ntohs(v4->sin_port);
    return true;
}

/* What the kernel does not take is dropped: these are datagrams, and the core repeats. */
static void send_all(belay_client *client)
{
    struct mmsghdr messages[DRIVER_TX_MAX];
    struct iovec vectors[DRIVER_TX_MAX];
    struct sockaddr_storage addresses[DRIVER_TX_MAX];
    uint32_t count = client->tx_count;

    client->tx_count = 0;
    if (client->transport.flush != NULL)
        client->transport.flush(client->transport.context);
    if (client->mute || count == 0)
        return;
    memset(messages, 0, count * sizeof(messages[0]));
    for (uint32_t i = 0; i < count; i++) {
        struct driver_tx *tx = &client->tx[i];
        vectors[i] = (struct iovec){.iov_base = tx->bytes, .iov_len = tx->length};
        messages[i].msg_hdr.msg_iov = &vectors[i];
        messages[i].msg_hdr.msg_iovlen = 1;
        messages[i].msg_hdr.msg_name = &addresses[i];
        messages[i].msg_hdr.msg_namelen = to_socket_address(client, &tx->to, &addresses[i]);
    }
    for (uint32_t at = 0; at < count;) {
        int sent = sendmmsg(client->socket, messages + at, count - at, MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        at += sent > 0 ? (uint32_t)sent : 1; /* one that cannot be sent does not hold up the rest */
    }
}

static void sink_send(void *context, const struct wire_address *to, const uint8_t *bytes,
                      size_t length)
{
    belay_client *client = context;

    if (client->transport.send != NULL) {
        if (!client->mute)
            core_transport_send(&client->transport, to, bytes, length);
        return;
    }
    if (client->tx_count == DRIVER_TX_MAX)
        send_all(client);
    struct driver_tx *tx = &client->tx[client->tx_count++];
    tx->to = *to;
    tx->length = (uint32_t)length;
    memcpy(tx->bytes, bytes, length);
}

/* ---- effects --------------------------------------------------------------------------------- */

static void fill_holder(belay_holder_info *holder, const struct wire_item *item)
{
    if (item->status == WIRE_DELAYED) {
        holder->remaining_ms = ((const struct wire_delayed *)item)->remaining_ms;
        return;
    }
    const struct wire_busy *busy = (const struct wire_busy *)item;
    holder->holders = busy->holders;
    holder->token = busy->first.token;
    holder->remaining_ms = busy->first.remaining_ms;
    holder->mode = (belay_mode)busy->first.mode;
    holder->value_bytes = busy->first.value_bytes;
    memcpy(holder->value, busy->value, busy->first.value_bytes);
}

static void fill_handle(struct call *call, const struct core_completion *completion)
{
    belay_client *client = call->client;
    struct core_lock_info info;

    if (!core_lock_info(client->core, completion->lock, &info))
        return;
    if (completion->shared_lock) { /* the handle that the caller has already */
        handle_unref(call->lock);
        call->lock = (struct belay_lock *)(uintptr_t)info.user;
        call->lock->uses++;
        return;
    }
    struct belay_lock *lock = (struct belay_lock *)(uintptr_t)info.user;
    lock->ref = completion->lock;
    lock->lease = (belay_lease_id){.secret = info.lease.secret, .slot = info.lease.slot};
    atomic_store(&lock->token, info.token);
    atomic_store(&lock->mode, info.mode);
    atomic_store(&lock->deadline_ns, info.deadline_ns);
}

static void finish(struct call *call)
{
    belay_client *client = call->client;

    call->done = true;
    if (call->done_cond != NULL) {
        pthread_cond_signal(call->done_cond);
        return;
    }
    call->next = NULL;
    if (client->done_tail != NULL)
        client->done_tail->next = call;
    else
        client->done_head = call;
    client->done_tail = call;
    if (client->options.polled)
        return;
    uint64_t one = 1;
    ssize_t written = write(client->ready, &one, sizeof(one));
    (void)written; /* the counter cannot be full: it is cleared when the queue is emptied */
}

static void sink_complete(void *context, const struct core_completion *completion)
{
    struct call *call = (struct call *)(uintptr_t)completion->user;

    (void)context;
    call->status = completion->status;
    call->what = completion->what;
    call->limit = completion->limit;
    if (completion->item != NULL) {
        call->item_bytes = completion->item->bytes;
        memcpy(call->item, completion->item, completion->item->bytes);
        if (completion->status == BELAY_BUSY || completion->status == BELAY_DELAYED)
            fill_holder(&call->holder, completion->item);
    }
    if (completion->status == BELAY_OK && completion->lock != 0)
        fill_handle(call, completion);
    if (completion->op == WIRE_OP_ACQUIRE && completion->status != BELAY_OK) {
        handle_unref(call->lock);
        call->lock = NULL;
    }
    finish(call);
}

static void add_callback(belay_client *client, struct belay_lock *lock, enum callback_kind kind,
                         belay_lost_reason reason)
{
    struct callback *callback = malloc(sizeof(*callback));

    if (callback == NULL)
        return; /* the handle says by itself that it is lost */
    *callback = (struct callback){.lock = lock, .kind = kind, .reason = reason};
    lock->callbacks++;
    if (client->callbacks_tail != NULL)
        client->callbacks_tail->next = callback;
    else
        client->callbacks_head = callback;
    client->callbacks_tail = callback;
}

static void sink_lost(void *context, core_ref ref, uint64_t user, belay_lost_reason reason)
{
    struct belay_lock *lock = (struct belay_lock *)(uintptr_t)user;

    (void)ref;
    atomic_store(&lock->deadline_ns, 0);
    add_callback(context, lock, CALLBACK_LOST, reason);
}

static void sink_revoke(void *context, core_ref ref, uint64_t user)
{
    (void)ref;
    add_callback(context, (struct belay_lock *)(uintptr_t)user, CALLBACK_REVOKE, 0);
}

static void sink_renewed(void *context, core_ref ref, uint64_t user, uint64_t deadline_ns)
{
    (void)context;
    (void)ref;
    atomic_store(&((struct belay_lock *)(uintptr_t)user)->deadline_ns, deadline_ns);
}

static void handle_collect(struct belay_lock *lock);

/* Without the mutex: the caller's functions may use the API. */
static void run_callbacks(belay_client *client)
{
    for (;;) {
        driver_hold(client);
        struct callback *callback = client->callbacks_head;
        if (callback != NULL) {
            client->callbacks_head = callback->next;
            if (client->callbacks_head == NULL)
                client->callbacks_tail = NULL;
        }
        bool wanted = callback != NULL && callback->lock->uses > 0;
        driver_let_go(client);
        if (callback == NULL)
            return;
        if (wanted && callback->kind == CALLBACK_LOST && client->options.on_lost != NULL)
            client->options.on_lost(client->options.context, callback->lock, callback->reason);
        if (wanted && callback->kind == CALLBACK_REVOKE && client->options.on_revoke != NULL)
            client->options.on_revoke(client->options.context, callback->lock);
        driver_hold(client);
        callback->lock->callbacks--;
        handle_collect(callback->lock);
        driver_let_go(client);
        free(callback);
    }
}

/* ---- handles --------------------------------------------------------------------------------- */

struct belay_lock *handle_new(belay_client *client)
{
    struct belay_lock *lock = calloc(1, sizeof(*lock));

    if (lock == NULL)
        return NULL;
    lock->client = client;
    lock->uses = 1;
    lock->next = client->locks;
    if (client->locks != NULL)
        client->locks->previous = lock;
    client->locks = lock;
    return lock;
}

/* Neither the caller nor a callback has it any more. */
static void handle_collect(struct belay_lock *lock)
{
    belay_client *client = lock->client;

    if (lock->uses > 0 || lock->callbacks > 0)
        return;
    if (lock->previous != NULL)
        lock->previous->next = lock->next;
    else
        client->locks = lock->next;
    if (lock->next != NULL)
        lock->next->previous = lock->previous;
    free(lock);
}

void handle_unref(struct belay_lock *lock)
{
    assert(lock->uses > 0);
    lock->uses--;
    handle_collect(lock);
}

/* ---- the mutex, the timer -------------------------------------------------------------------- */

static void arm_timer(belay_client *client)
{
    uint64_t at_ns = core_next_deadline(client->core);

    if (at_ns == client->armed_ns || (at_ns > client->armed_ns && at_ns != UINT64_MAX))
        return; /* later ones are armed when the earlier one has fired */
    client->armed_ns = at_ns;
    struct itimerspec when = {.it_value = {.tv_sec = 0}};
    if (at_ns != UINT64_MAX) {
        when.it_value.tv_sec = (time_t)(at_ns / UINT64_C(1000000000));
        when.it_value.tv_nsec = (long)(at_ns % UINT64_C(1000000000));
        if (at_ns == 0)
            when.it_value.tv_nsec = 1; /* zero would disarm */
    }
    timerfd_settime(client->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

void driver_hold(belay_client *client)
{
    if (!client->options.polled)
        pthread_mutex_lock(&client->mutex);
}

void driver_let_go(belay_client *client)
{
    if (!client->options.polled)
        pthread_mutex_unlock(&client->mutex);
}

void driver_lock(belay_client *client)
{
    driver_hold(client);
}

void driver_unlock(belay_client *client)
{
    if (client->options.polled)
        return;
    core_flush(client->core);
    send_all(client);
    arm_timer(client);
    driver_let_go(client);
}

int driver_wait(belay_client *client, pthread_cond_t *condition, const struct timespec *until)
{
    struct timespec now;

    if (!client->options.polled)
        return until == NULL ? pthread_cond_wait(condition, &client->mutex)
                             : pthread_cond_timedwait(condition, &client->mutex, until);
    (void)driver_poll(client);
    if (until == NULL)
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    bool late = now.tv_sec > until->tv_sec ||
                (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec);
    return late ? ETIMEDOUT : 0;
}

/* ---- blocking calls -------------------------------------------------------------------------- */

void call_begin(belay_client *client, struct call *call, pthread_cond_t *cond)
{
    /* Not the item's bytes: they are written before they are read. */
    memset(call, 0, offsetof(struct call, item));
    call->client = client;
    call->done_cond = cond;
    if (cond != NULL)
        pthread_cond_init(cond, NULL);
    driver_lock(client);
    client->inside += cond != NULL;
}

/* With the lock held since call_begin; `started` is what the core said to the command. */
belay_status call_wait(struct call *call, belay_status started)
{
    belay_client *client = call->client;

    if (started != BELAY_OK)
        call->status = started;
    if (started == BELAY_OK && !call->done) {
        driver_unlock(client);
        driver_hold(client);
        while (!call->done)
            driver_wait(client, call->done_cond, NULL);
    }
    client->inside--;
    if (client->stopping)
        pthread_cond_broadcast(&client->changed);
    pthread_cond_destroy(call->done_cond);
    driver_unlock(client);
    return fail_call(call);
}

/* ---- the client's thread --------------------------------------------------------------------- */

struct received {
    struct mmsghdr messages[DRIVER_RX_MAX];
    struct iovec vectors[DRIVER_RX_MAX];
    struct sockaddr_storage addresses[DRIVER_RX_MAX];
};

static int receive(belay_client *client, struct received *received)
{
    memset(received->messages, 0, sizeof(received->messages));
    for (uint32_t i = 0; i < DRIVER_RX_MAX; i++) {
        received->vectors[i] = (struct iovec){
            .iov_base = client->rx + i * (WIRE_DATAGRAM_BYTES_MAX + 8),
            .iov_len = WIRE_DATAGRAM_BYTES_MAX + 8, /* room to see that one is too long */
        };
        received->messages[i].msg_hdr.msg_iov = &received->vectors[i];
        received->messages[i].msg_hdr.msg_iovlen = 1;
        received->messages[i].msg_hdr.msg_name = &received->addresses[i];
        received->messages[i].msg_hdr.msg_namelen = sizeof(received->addresses[i]);
    }
    return recvmmsg(client->socket, received->messages, DRIVER_RX_MAX, MSG_DONTWAIT, NULL);
}

static void take_received(belay_client *client, const struct received *received, int i,
                          uint64_t now_ns)
{
    struct wire_address from;

    if (from_socket_address(&received->addresses[i], &from))
        core_receive(client->core, now_ns, &from,
                     client->rx + (size_t)i * (WIRE_DATAGRAM_BYTES_MAX + 8),
                     received->messages[i].msg_len);
}

static void serve(belay_client *client, struct received *received)
{
    int count = receive(client, received);
    uint64_t now_ns = driver_now_ns();

    driver_lock(client);
    for (int i = 0; i < count; i++)
        take_received(client, received, i, now_ns);
    if (now_ns >= client->armed_ns)
        client->armed_ns = UINT64_MAX; /* it has fired: arm_timer sets the next one */
    core_tick(client->core, now_ns);
    if (client->stopping)
        pthread_cond_broadcast(&client->changed);
    bool callbacks = client->callbacks_head != NULL;
    driver_unlock(client);
    if (callbacks)
        run_callbacks(client);
}

static uint32_t receive_by_socket(belay_client *client, uint64_t *now_ns)
{
    int count = receive(client, client->received);

    *now_ns = driver_now_ns();
    for (int i = 0; i < count; i++)
        take_received(client, client->received, i, *now_ns);
    return count > 0 ? (uint32_t)count : 0;
}

void driver_send(belay_client *client)
{
    core_flush(client->core);
    send_all(client);
}

uint32_t driver_poll(belay_client *client)
{
    uint64_t now_ns;
    uint32_t count = client->transport.receive != NULL
                         ? core_transport_receive(&client->transport, client->core, DRIVER_RX_MAX,
                                                  driver_now_ns, &now_ns)
                         : receive_by_socket(client, &now_ns);

    core_tick(client->core, now_ns);
    driver_send(client);
    if (client->callbacks_head != NULL)
        run_callbacks(client);
    return count;
}

static void drain(int descriptor)
{
    uint64_t count;
    ssize_t got = read(descriptor, &count, sizeof(count));
    (void)got; /* non-blocking: nothing there is fine */
}

static void *client_thread(void *context)
{
    belay_client *client = context;
    struct received *received = malloc(sizeof(*received));
    struct epoll_event events[4];

    while (received != NULL) {
        int count = epoll_wait(client->epoll, events, 4, -1);
        bool stop = false;
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd != client->socket)
                drain(events[i].data.fd);
            stop = stop || events[i].data.fd == client->wake;
        }
        if (stop)
            break;
        serve(client, received);
    }
    free(received);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int open_socket(belay_client *client)
{
    int off = 0, buffer_bytes = 4 << 20;

    client->socket =
        socket(client->ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (client->socket < 0)
        return -errno;
    if (client->ipv6)
        setsockopt(client->socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    /* As large as the system allows; less works too. */
    setsockopt(client->socket, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof(buffer_bytes));
    setsockopt(client->socket, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes));
    return 0;
}

static int watch(belay_client *client, int descriptor)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = descriptor}};

    if (descriptor < 0 || epoll_ctl(client->epoll, EPOLL_CTL_ADD, descriptor, &event) < 0)
        return -errno;
    return 0;
}

static int open_descriptors(belay_client *client)
{
    int error = client->transport.receive != NULL ? 0 : open_socket(client);

    if (error < 0 || client->options.polled)
        return error;
    client->epoll = epoll_create1(EPOLL_CLOEXEC);
    client->timer = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    client->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    client->ready = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (client->epoll < 0 || client->timer < 0 || client->wake < 0 || client->ready < 0)
        return -errno;
    error = watch(client, client->socket);
    if (error == 0)
        error = watch(client, client->timer);
    return error != 0 ? error : watch(client, client->wake);
}

static void close_descriptors(belay_client *client)
{
    int descriptors[] = {client->socket, client->epoll, client->timer, client->wake, client->ready};

    for (size_t i = 0; i < sizeof(descriptors) / sizeof(descriptors[0]); i++) {
        if (descriptors[i] >= 0)
            close(descriptors[i]);
    }
}

static void free_memory(belay_client *client)
{
    if (client->memory != NULL)
        munmap(client->memory, client->memory_bytes);
    free(client->tx);
    free(client->rx);
    free(client->received);
    pthread_cond_destroy(&client->changed);
    pthread_mutex_destroy(&client->mutex);
}

static bool get_memory(belay_client *client, const struct core_options *options)
{
    client->tx = calloc(DRIVER_TX_MAX, sizeof(*client->tx));
    client->rx = aligned_alloc(64, DRIVER_RX_MAX * (WIRE_DATAGRAM_BYTES_MAX + 8));
    if (client->options.polled)
        client->received = malloc(sizeof(*client->received));
    client->memory_bytes = core_memory_bytes(options);
    /* Untouched pages cost nothing: the limits may be generous. */
    client->memory = mmap(NULL, client->memory_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (client->memory == MAP_FAILED)
        client->memory = NULL;
    return client->tx != NULL && client->rx != NULL && client->memory != NULL &&
           (!client->options.polled || client->received != NULL);
}

belay_status driver_start(belay_client *client, const struct core_options *options)
{
    struct core_sink sink = {
        .send = sink_send,
        .complete = sink_complete,
        .lost = sink_lost,
        .revoke = sink_revoke,
        .renewed = sink_renewed,
        .context = client,
    };
    pthread_condattr_t monotonic;

    client->socket = client->epoll = client->timer = client->wake = client->ready = -1;
    client->armed_ns = UINT64_MAX;
    pthread_mutex_init(&client->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&client->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (!get_memory(client, options)) {
        free_memory(client);
        return fail(BELAY_NO_MEMORY, "no memory for %zu bytes of client state",
                    client->memory_bytes);
    }
    int error = open_descriptors(client);
    if (error == 0) {
        client->core = core_init(client->memory, options, &sink, driver_now_ns());
        if (!client->options.polled) {
            arm_timer(client);
            error = -pthread_create(&client->thread, NULL, client_thread, client);
        }
    }
    if (error != 0) {
        close_descriptors(client);
        free_memory(client);
        errno = -error;
        return fail_system("starting the client");
    }
    return BELAY_OK;
}

void driver_stop(belay_client *client)
{
    uint64_t one = 1;

    while (!client->options.polled && write(client->wake, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    if (!client->options.polled)
        pthread_join(client->thread, NULL);
    while (client->callbacks_head != NULL) {
        struct callback *next = client->callbacks_head->next;
        free(client->callbacks_head);
        client->callbacks_head = next;
    }
    while (client->done_head != NULL) {
        struct call *next = client->done_head->next;
        free(client->done_head);
        client->done_head = next;
    }
    while (client->locks != NULL) {
        struct belay_lock *next = client->locks->next;
        free(client->locks);
        client->locks = next;
    }
    close_descriptors(client);
    free_memory(client);
}
