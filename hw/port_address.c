/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses as text; see hw/port.h.
 */
#include "hw/port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "hw/port_socket.h"

bool port_address_is_ipv4(const struct port_address *address)
{
    return port_ip_is_ipv4(address->ip);
}

uint32_t port_address_to_socket(const struct port_address *address, bool ipv4,
                                struct sockaddr_storage *storage)
{
    if (ipv4) {
        if (!port_address_is_ipv4(address))
            return 0;
        struct sockaddr_in *in = (struct sockaddr_in *)storage;
        *in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(address->port)};
        memcpy(&in->sin_addr, address->ip + PORT_IPV4_AT, sizeof in->sin_addr);
        return sizeof *in;
    }
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)storage;
    *in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(address->port)};
    memcpy(&in6->sin6_addr, address->ip, sizeof in6->sin6_addr);
    return sizeof *in6;
}

bool port_address_from_socket(const struct sockaddr_storage *storage, struct port_address *address)
{
    *address = (struct port_address){0};
    if (storage->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)storage;
        port_ip_map(address->ip, (const uint8_t *)&in->sin_addr);
        address->port = ntohs(in->sin_port);
        return true;
    }
    if (storage->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)storage;
        memcpy(address->ip, &in6->sin6_addr, sizeof in6->sin6_addr);
        address->port = ntohs(in6->sin6_port);
        return true;
    }
    return false;
}

/* Splits "host:port" or "[host]:port". False if it is neither. */
static bool split(const char *text, char *host, size_t host_bytes, const char **port)
{
    const char *begin = text;
    const char *end;
    if (*text == '[') {
        begin = text + 1;
        end = strchr(begin, ']');
        if (end == NULL || end[1] != ':')
            return false;
        *port = end + 2;
    } else {
        end = strrchr(text, ':');
        /* An IPv6 address without brackets is ambiguous: its last group looks like a port. */
        if (end == NULL || memchr(text, ':', (size_t)(end - text)) != NULL)
            return false;
        *port = end + 1;
    }
    size_t length = (size_t)(end - begin);
    if (length == 0 || length >= host_bytes)
        return false;
    memcpy(host, begin, length);
    host[length] = '\0';
    return true;
}

static bool parse_port(const char *text, uint16_t *port)
{
    uint32_t value = 0;
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (uint32_t)(*text - '0');
        if (value > UINT16_MAX)
            return false;
    }
    *port = (uint16_t)value;
    return true;
}

int port_address_parse(const char *text, struct port_address *address)
{
    char host[256];
    const char *port_text;
    uint16_t port;
    if (!split(text, host, sizeof host, &port_text) || !parse_port(port_text, &port))
        return -EINVAL;
    const struct addrinfo hints = {.ai_family = *text == '[' ? AF_INET6 : AF_UNSPEC,
                                   .ai_socktype = SOCK_DGRAM};
    struct addrinfo *found;
    int result = getaddrinfo(host, NULL, &hints, &found);
    if (result == EAI_AGAIN)
        return -EAGAIN;
    if (result == EAI_SYSTEM)
        return errno > 0 ? -errno : -EIO;
    if (result == EAI_MEMORY)
        return -ENOMEM;
    if (result != 0)
        return -ENOENT;
    struct sockaddr_storage storage = {0};
    memcpy(&storage, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    if (!port_address_from_socket(&storage, address))
        return -EINVAL;
    address->port = port;
    return 0;
}

void port_address_format(const struct port_address *address, char text[PORT_ADDRESS_TEXT_BYTES])
{
    char ip[INET6_ADDRSTRLEN] = "?";
    if (port_address_is_ipv4(address)) {
        inet_ntop(AF_INET, address->ip + PORT_IPV4_AT, ip, sizeof ip);
        snprintf(text, PORT_ADDRESS_TEXT_BYTES, "%s:%u", ip, (unsigned)address->port);
    } else {
        inet_ntop(AF_INET6, address->ip, ip, sizeof ip);
        snprintf(text, PORT_ADDRESS_TEXT_BYTES, "[%s]:%u", ip, (unsigned)address->port);
    }
}

bool port_address_equal(const struct port_address *a, const struct port_address *b)
{
    return a->port == b->port && memcmp(a->ip, b->ip, sizeof a->ip) == 0;
}
