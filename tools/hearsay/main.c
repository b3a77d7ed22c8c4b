/* hearsay: one node of a group. Everything is in running_node.c; here are the command line, the signals and the exit status. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "tools/hearsay/node_options.h"
#include "tools/hearsay/running_node.h"

enum { EXIT_GOOD = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NOT_HERE = 77 };

#define DRAIN_NS (10ull * 1000000000)

/* What a failed start means to whoever started us. */
static int exit_status(int code)
{
    switch (code) {
    case HS_ERR_NO_MEMORY:
    case HS_ERR_CLOSED:
    case HS_ERR_TIMEOUT:
        return EXIT_FAILED;
    case HS_ERR_UNSUPPORTED:
        return EXIT_NOT_HERE;
    default:
        return EXIT_USAGE; /* a file, a port, a value: something on the command line is not as it must be */
    }
}

/* SIGTERM and SIGINT are taken by sigwait in the main thread: every other thread inherits the block. */
static void block_signals(sigset_t *ends)
{
    sigemptyset(ends);
    sigaddset(ends, SIGTERM);
    sigaddset(ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, ends, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int main(int argc, char **argv)
{
    struct node_options options;
    struct error err = {0};
    int rc = node_options_parse(argc, argv, &options, &err);
    if (rc > 0)
        return EXIT_GOOD;
    if (rc < 0) {
        fprintf(stderr, "hearsay: %s\n", err.text);
        return EXIT_USAGE;
    }
    log_setup(options.check ? LOG_LEVEL_ERROR : options.log_level, options.log_format);

    sigset_t ends;
    block_signals(&ends);
    struct running_node *running;
    rc = running_node_open(&options, &running, &err);
    if (rc) {
        fprintf(stderr, "hearsay: %s\n", err.text);
        return exit_status(rc);
    }
    if (options.check) {
        running_node_describe(running);
    } else {
        int signal_number;
        sigwait(&ends, &signal_number);
        log_info("start", "%s: finishing what runs, then ending (again: at once)", strsignal(signal_number));
        signal(SIGTERM, SIG_DFL);
        signal(SIGINT, SIG_DFL);
        pthread_sigmask(SIG_UNBLOCK, &ends, NULL);
    }
    running_node_close(running, options.check ? 0 : DRAIN_NS);
    return EXIT_GOOD;
}
