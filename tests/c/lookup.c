/* Asks the C library for names, as a program that knows nothing of us would.
 * usage: lookup any|4|6 NAME...
 * prints one line for each name: "NAME = ADDRESS..." in the library's order, or
 * "NAME ! ERROR". Ends with 0 whatever was found. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static const char *error_name(int code) {
    switch (code) {
    case EAI_NONAME: return "NONAME";
    case EAI_AGAIN: return "AGAIN";
    case EAI_FAIL: return "FAIL";
#ifdef EAI_NODATA
    case EAI_NODATA: return "NODATA";
#endif
    default: return gai_strerror(code);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 64;
    struct addrinfo hints = {0}, *found, *at;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_family = !strcmp(argv[1], "4") ? AF_INET : !strcmp(argv[1], "6") ? AF_INET6 : AF_UNSPEC;
    for (int i = 2; i < argc; i++) {
        int code = getaddrinfo(argv[i], NULL, &hints, &found);
        if (code) {
            printf("%s ! %s\n", argv[i], error_name(code));
            continue;
        }
        printf("%s =", argv[i]);
        for (at = found; at; at = at->ai_next) {
            char text[INET6_ADDRSTRLEN];
            const void *address = at->ai_family == AF_INET
                ? (const void *)&((struct sockaddr_in *)at->ai_addr)->sin_addr
                : (const void *)&((struct sockaddr_in6 *)at->ai_addr)->sin6_addr;
            printf(" %s", inet_ntop(at->ai_family, address, text, sizeof text));
        }
        printf("\n");
        freeaddrinfo(found);
    }
    return 0;
}
