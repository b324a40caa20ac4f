/*
 * Distance between two networks: distance PID-A IF-A PID-B IF-B DELAY-US LOSS-PPM KBIT
 *
 * Makes a TUN device in the network of each process and carries packets between the two: each
 * packet arrives DELAY-US later, LOSS-PPM of a million do not, and no more than KBIT kilobits a
 * second go each way (0: as many as come). What waits for the rate is cut at QUEUE_US, as a router's
 * queue is. Prints "ready" when both devices are there; a line "DELAY LOSS KBIT" on its input
 * changes all three. Ends when its input does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define PACKET 2048     /* more than the devices' MTU of 1500 */
#define PACKETS 16384   /* on their way in one direction: 100 ms at 1.5 Gbit/s and more */
#define QUEUE_US 100000 /* the longest wait for the rate */

struct packet {
    uint64_t due;
    int size;
    char data[PACKET];
};

struct direction {
    int from, to;
    uint64_t free_at; /* when the line has sent what it was given */
    unsigned head, count;
    struct packet *ring;
};

static uint64_t delay_us, loss_ppm, kbit;

static uint64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static uint64_t random_state = 0x9e3779b97f4a7c15;

static uint32_t random_ppm(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 16) % 1000000;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int device(const char *process, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/ns/net", process);
    int network = open(path, O_RDONLY);
    if (network < 0 || setns(network, CLONE_NEWNET) < 0) fail(path);
    close(network);
    int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    if (tun < 0) fail("/dev/net/tun");
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (ioctl(tun, TUNSETIFF, &request) < 0) fail(name);
    return tun;
}

/* Takes what has come; returns how much could not be kept. */
static void take(struct direction *d, uint64_t now) {
    for (int round = 0; round < 256; round++) {
        char spare[PACKET];
        int is_full = d->count == PACKETS;
        struct packet *packet = &d->ring[(d->head + d->count) % PACKETS];
        ssize_t size = read(d->from, is_full ? spare : packet->data, PACKET);
        if (size <= 0) return;
        if (is_full || random_ppm() < loss_ppm) continue;
        uint64_t sent = now;
        if (kbit) {
            uint64_t start = d->free_at > now ? d->free_at : now;
            if (start - now > QUEUE_US) continue;
            d->free_at = start + (uint64_t)size * 8000 / kbit;
            sent = d->free_at;
        }
        packet->due = sent + delay_us;
        packet->size = size;
        d->count++;
    }
}

static void give(struct direction *d, uint64_t now) {
    while (d->count && d->ring[d->head].due <= now) {
        struct packet *packet = &d->ring[d->head];
        /* A device that is down loses it, as a network does. */
        if (write(d->to, packet->data, packet->size) < 0 && errno == EAGAIN) return;
        d->head = (d->head + 1) % PACKETS;
        d->count--;
    }
}

int main(int argc, char **argv) {
    if (argc != 8) {
        fprintf(stderr, "distance PID-A IF-A PID-B IF-B DELAY-US LOSS-PPM KBIT\n");
        return 64;
    }
    int a = device(argv[1], argv[2]), b = device(argv[3], argv[4]);
    delay_us = strtoull(argv[5], NULL, 10);
    loss_ppm = strtoull(argv[6], NULL, 10);
    kbit = strtoull(argv[7], NULL, 10);
    struct direction ways[2] = {{.from = a, .to = b}, {.from = b, .to = a}};
    for (int i = 0; i < 2; i++)
        if (!(ways[i].ring = calloc(PACKETS, sizeof(struct packet)))) fail("memory");
    puts("ready");
    fflush(stdout);
    for (;;) {
        uint64_t now = now_us(), next = now + 1000000;
        for (int i = 0; i < 2; i++) {
            give(&ways[i], now);
            if (ways[i].count && ways[i].ring[ways[i].head].due < next)
                next = ways[i].ring[ways[i].head].due;
        }
        uint64_t wait = next > now ? next - now : 0;
        struct timespec limit = {.tv_sec = wait / 1000000, .tv_nsec = wait % 1000000 * 1000};
        struct pollfd ready[3] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
        if (ppoll(ready, 3, &limit, NULL) < 0 && errno != EINTR) fail("ppoll");
        now = now_us();
        for (int i = 0; i < 2; i++)
            if (ready[i].revents & POLLIN) take(&ways[i], now);
        if (ready[2].revents) {
            char line[128];
            ssize_t size = read(0, line, sizeof line - 1);
            if (size <= 0) return 0;
            line[size] = 0;
            unsigned long long delay, loss, rate;
            if (sscanf(line, "%llu %llu %llu", &delay, &loss, &rate) == 3) {
                delay_us = delay;
                loss_ppm = loss;
                kbit = rate;
            }
        }
    }
}
