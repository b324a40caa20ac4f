/*
 * Packets over one TCP connection, the way several tools connect a laptop to a cluster:
 *   l3 serve PORT DEVICE      makes a TUN, waits for one connection
 *   l3 connect ADDR PORT DEVICE
 * Each packet goes with its length in front, at an MTU of 1500. For figures only: no TLS, no
 * checks of who is there.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER (256 * 1024)
#define PACKET 2048

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int device(const char *name) {
    int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    if (tun < 0) fail("/dev/net/tun");
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (ioctl(tun, TUNSETIFF, &request) < 0) fail(name);
    return tun;
}

static int connection(int argc, char **argv) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    int is_server = argc == 4, one = 1, stream = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_port = htons(atoi(argv[is_server ? 2 : 3]));
    if (is_server) {
        setsockopt(stream, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(stream, (struct sockaddr *)&at, sizeof at) < 0 || listen(stream, 1) < 0) fail("listen");
        puts("listening");
        fflush(stdout);
        stream = accept(stream, NULL, NULL);
    } else {
        inet_pton(AF_INET, argv[2], &at.sin_addr);
        if (connect(stream, (struct sockaddr *)&at, sizeof at) < 0) fail("connect");
    }
    setsockopt(stream, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return stream;
}

static void write_all(int to, const char *data, size_t size) {
    while (size) {
        ssize_t written = write(to, data, size);
        if (written <= 0) exit(0);
        data += written;
        size -= written;
    }
}

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5) return 64;
    int tun = device(argv[argc - 1]);
    int stream = connection(argc, argv);
    puts("connected");
    fflush(stdout);
    static char out[BUFFER], in[BUFFER];
    size_t kept = 0;
    struct pollfd ready[2] = {{.fd = tun, .events = POLLIN}, {.fd = stream, .events = POLLIN}};
    for (;;) {
        if (poll(ready, 2, -1) < 0) fail("poll");
        if (ready[0].revents & POLLIN) {
            size_t size = 0;
            while (size + PACKET + 2 <= BUFFER) {
                ssize_t packet = read(tun, out + size + 2, PACKET);
                if (packet <= 0) break;
                uint16_t length = htons((uint16_t)packet);
                memcpy(out + size, &length, 2);
                size += packet + 2;
            }
            write_all(stream, out, size);
        }
        if (ready[1].revents) {
            ssize_t count = read(stream, in + kept, BUFFER - kept);
            if (count <= 0) return 0;
            kept += count;
            size_t at = 0;
            while (kept - at >= 2) {
                uint16_t length;
                memcpy(&length, in + at, 2);
                length = ntohs(length);
                if (kept - at < (size_t)length + 2) break;
                if (write(tun, in + at + 2, length) < 0) { /* lost, as on any network */ }
                at += length + 2;
            }
            memmove(in, in + at, kept - at);
            kept -= at;
        }
    }
}
