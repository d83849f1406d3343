// cli_file.c - whole files in and out: limits on reading, temporaries and renames on writing.
#define _POSIX_C_SOURCE 200809L
#define _XOPEN_SOURCE 700

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_TEMPORARIES = 1024, SINK_BUFFER = 1 << 16 };

// Paths of the temporaries that exist, for the signal handler: a slot is set after the name is
// complete and cleared after the file is gone, and unlink is safe in a handler.
static char *volatile temporaries[MAX_TEMPORARIES];

struct cli_sink {
    int fd;           // -1 once all is written
    int failure;      // errno of the first failed write
    char *path;       // where the bytes end up, symbolic links followed
    char *temporary;  // NULL when written directly
    int slot;         // in `temporaries`
    char *backup;     // what was in its place, until all files have theirs; NULL: nothing
    bool unchanged;   // its place holds these bytes already
    bool placed;      // it has its place ...
    bool created;     // ... where no file was
    size_t used;
    uint8_t *buffer;
};

bool cli_fail(cli_error *error, int code, const char *format, ...) {
    va_list list;
    va_start(list, format);
    error->code = code;
    vsnprintf(error->text, sizeof error->text, format, list);
    va_end(list);
    return false;
}

const char *cli_escape(char *buffer, size_t size, const char *text) {
    size_t used = 0;
    for (const char *s = text; *s; s++) {
        unsigned char c = (unsigned char)*s;
        bool plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
        size_t need = plain ? 1 : c == '"' || c == '\\' ? 2 : 4;
        if (used + need + 4 > size) {
            memcpy(buffer + used, "...", 4);
            return buffer;
        }
        if (plain) {
            buffer[used] = (char)c;
        } else if (need == 2) {
            buffer[used] = '\\';
            buffer[used + 1] = (char)c;
        } else {
            snprintf(buffer + used, 5, "\\x%02x", (unsigned)c);
        }
        used += need;
    }
    buffer[used] = 0;
    return buffer;
}

static void remove_temporaries(void) {
    for (int i = 0; i < MAX_TEMPORARIES; i++) {
        const char *path = temporaries[i];
        if (path) {
            unlink(path);
        }
    }
}

void cli_out_of_memory(void) {
    static const char text[] = "einnet: out of memory\n";
    remove_temporaries();
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    _exit(CLI_IO);
}

void *cli_alloc(size_t size) {
    void *memory = calloc(1, size ? size : 1);
    if (!memory) {
        cli_out_of_memory();
    }
    return memory;
}

void *cli_realloc(void *memory, size_t size) {
    void *grown = realloc(memory, size ? size : 1);
    if (!grown) {
        cli_out_of_memory();
    }
    return grown;
}

// A mapped file lost its end, or its disk fails. Both calls are safe in a handler.
static void on_bus_error(int number) {
    static const char text[] = "einnet: a file became shorter while it was read\n";
    (void)number;
    remove_temporaries();
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    _exit(CLI_IO);
}

static char *copy_string(const char *text) {
    size_t size = strlen(text) + 1;
    return memcpy(cli_alloc(size), text, size);
}

static void on_signal(int number) {
    remove_temporaries();
    raise(number);  // SA_RESETHAND: the default action follows
}

void cli_catch_signals(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = (int)SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction old;
        // What the caller ignores (nohup, a shell's background jobs) stays ignored.
        if (!sigaction(numbers[i], NULL, &old) && old.sa_handler != SIG_IGN) {
            sigaction(numbers[i], &action, NULL);
        }
    }
    action.sa_handler = on_bus_error;
    sigaction(SIGBUS, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

// ---- reading ----

static bool io_error(cli_error *error, const char *path, int number) {
    char name[400];
    return cli_fail(error, CLI_IO, "%s: %s", cli_escape(name, sizeof name, path), strerror(number));
}

static bool too_big(cli_error *error, const char *path, size_t limit) {
    char name[400];
    return cli_fail(error, CLI_BAD_INPUT, "%s: larger than the limit of %zu bytes",
                    cli_escape(name, sizeof name, path), limit);
}

// A FIFO whose other end is not open yet is given two seconds for that, in steps of 20 ms.
enum { FIFO_TRIES = 100 };
// Regular files up to this size are read, larger ones mapped: a mapped file that another program
// makes shorter takes its bytes away. No text is larger than this.
static const size_t READ_LIMIT = (size_t)64 << 20;
// What a character device gives at most: one that never ends must not fill the memory.
static const size_t DEVICE_LIMIT = (size_t)1 << 26;

static void wait_a_little(void) {
    const struct timespec pause = {0, 20 * 1000 * 1000};
    nanosleep(&pause, NULL);
}

// One read. `fd` may be non-blocking: then 0 bytes mean that a FIFO has no writer, which is its end
// once it had one, and EAGAIN that it has one. `*tries` is what is left of the patience.
static ssize_t read_some(int fd, void *data, size_t size, int *tries) {
    for (;;) {
        ssize_t got = read(fd, data, size);
        if (got > 0 || (got < 0 && errno == EAGAIN)) {
            *tries = 0;
        }
        if (got < 0 && errno == EAGAIN) {
            struct pollfd ready = {fd, POLLIN, 0};
            poll(&ready, 1, -1);
        } else if (!got && *tries > 0) {
            --*tries;
            wait_a_little();
        } else if (got >= 0 || errno != EINTR) {
            return got;
        }
    }
}

static bool read_stream(int fd, const char *path, size_t limit, int tries, cli_bytes *bytes,
                        cli_error *error) {
    size_t room = 0;
    uint8_t *data = NULL;
    bytes->size = 0;
    for (;;) {
        if (bytes->size == room) {
            room = room ? room * 2 : 1 << 16;
            data = cli_realloc(data, room);
        }
        bool patient = tries > 0;
        ssize_t got = read_some(fd, data + bytes->size, room - bytes->size, &tries);
        if (got < 0 || (!got && patient)) {
            io_error(error, path, got < 0 ? errno : ENXIO);
            free(data);
            return false;
        }
        bytes->size += (size_t)got;
        if (bytes->size > limit) {
            free(data);
            return too_big(error, path, limit);
        }
        if (!got) {
            bytes->data = data;
            return true;
        }
    }
}

static bool read_open_file(int fd, const char *path, size_t limit, cli_bytes *bytes,
                           cli_error *error) {
    struct stat info;
    if (fstat(fd, &info)) {
        return io_error(error, path, errno);
    }
    if (S_ISDIR(info.st_mode)) {
        return io_error(error, path, EISDIR);
    }
    if (!S_ISREG(info.st_mode) || info.st_size == 0) {  // files under /proc say size 0
        int tries = S_ISFIFO(info.st_mode) ? FIFO_TRIES : 0;
        limit = S_ISCHR(info.st_mode) && limit > DEVICE_LIMIT ? DEVICE_LIMIT : limit;
        return read_stream(fd, path, limit, tries, bytes, error);
    }
    if ((uintmax_t)info.st_size > limit) {
        return too_big(error, path, limit);
    }
    size_t size = (size_t)info.st_size;
    void *map = size > READ_LIMIT ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (map == MAP_FAILED) {
        return read_stream(fd, path, limit, 0, bytes, error);
    }
    bytes->data = map;
    bytes->size = size;
    bytes->mapped = true;
    return true;
}

cli_place cli_file_place(const char *model, const char *path) {
    const char *slash = strrchr(model, '/');
    size_t size = slash ? (size_t)(slash - model) + 1 : 0;
    char *name = cli_alloc(size + 2);
    snprintf(name, size + 2, "%.*s.", (int)size, model);
    char *directory = realpath(name, NULL), *real = realpath(path, NULL);
    cli_place place = CLI_MISSING;
    if (directory && real) {
        size_t length = strlen(directory);
        bool below = !strncmp(real, directory, length) && real[length] == '/';
        place = below || !strcmp(directory, "/") ? CLI_INSIDE : CLI_OUTSIDE;
    }
    free(name);
    free(directory);
    free(real);
    return place;
}

bool cli_file_read_regular(const char *path, cli_bytes *bytes, cli_error *error) {
    const off_t big = (off_t)1 << 30;
    struct stat info;
    char name[400];
    bool known = !stat(path, &info);
    if (known && !S_ISREG(info.st_mode)) {
        return cli_fail(error, CLI_BAD_INPUT, "%s: not a regular file",
                        cli_escape(name, sizeof name, path));
    }
    // A few bytes on disk must not become terabytes of weights.
    if (known && info.st_size > big && info.st_blocks < info.st_size / 1024) {
        return cli_fail(error, CLI_BAD_INPUT, "%s: %lld bytes, mostly holes",
                        cli_escape(name, sizeof name, path), (long long)info.st_size);
    }
    return cli_file_read(path, SIZE_MAX, bytes, error);
}

bool cli_file_read(const char *path, size_t limit, cli_bytes *bytes, cli_error *error) {
    memset(bytes, 0, sizeof *bytes);
    if (!strcmp(path, "-")) {
        return read_stream(STDIN_FILENO, "standard input", limit, 0, bytes, error);
    }
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        return io_error(error, path, errno);
    }
    bool good = read_open_file(fd, path, limit, bytes, error);
    close(fd);
    return good;
}

void cli_file_release(cli_bytes *bytes) {
    if (bytes->mapped) {
        munmap((void *)(uintptr_t)bytes->data, bytes->size);
    } else {
        free((void *)(uintptr_t)bytes->data);
    }
    memset(bytes, 0, sizeof *bytes);
}

// Where a file that is not there yet would be made: its folder, and its name in that.
static bool place_of(const char *path, struct stat *folder, const char **name) {
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) {
        *name = slash ? slash + 1 : path;
        return !stat(slash ? "/" : ".", folder);
    }
    size_t size = (size_t)(slash - path);
    char *parent = cli_realloc(NULL, size + 1);
    memcpy(parent, path, size);
    parent[size] = 0;
    *name = slash + 1;
    bool there = !stat(parent, folder);
    free(parent);
    return there;
}

bool cli_same_file(const char *a, const char *b) {
    struct stat x, y;
    const char *name = "", *other = "";
    bool there = !stat(a, &x);
    if (!strcmp(a, "-") || !strcmp(b, "-") || there != !stat(b, &y)) {
        return false;
    }
    if (!there && !(place_of(a, &x, &name) && place_of(b, &y, &other))) {
        return false;
    }
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino && !strcmp(name, other);
}

bool cli_overwrites(const char *path, const char *from) {
    struct stat info;
    if (!strcmp(path, "-") || (!stat(path, &info) && !S_ISREG(info.st_mode))) {
        return false;
    }
    return cli_same_file(path, strcmp(from, "-") != 0 ? from : "/dev/stdin");
}

// ---- writing ----

static void free_sink(cli_sink *sink) {
    if (sink->temporary) {
        temporaries[sink->slot] = NULL;
    }
    free(sink->temporary);
    free(sink->backup);
    free(sink->buffer);
    free(sink->path);
    free(sink);
}

// Makes a file with the first `keep` bytes of `path` in its name; -1: errno says why not.
static int make_temporary(const char *path, size_t keep, char **name) {
    size_t size = keep + sizeof ".XXXXXX";
    *name = cli_realloc(*name, size);
    snprintf(*name, size, "%.*s.XXXXXX", (int)keep, path);
    return mkstemp(*name);
}

// The temporary lies beside its target, since a rename cannot cross file systems, and has its name
// in front unless that makes it longer than names may be.
static bool open_temporary(cli_sink *sink, const struct stat *old, cli_error *error) {
    const char *slash = strrchr(sink->path, '/');
    size_t folder = slash ? (size_t)(slash - sink->path) + 1 : 0;
    char *name = NULL;
    sink->slot = 0;
    while (sink->slot < MAX_TEMPORARIES - 1 && temporaries[sink->slot]) {
        sink->slot++;
    }
    // A signal between the two would leave a file that no handler knows.
    sigset_t signals, before;
    sigfillset(&signals);
    sigprocmask(SIG_BLOCK, &signals, &before);
    sink->fd = make_temporary(sink->path, strlen(sink->path), &name);
    if (sink->fd < 0 && errno == ENAMETOOLONG) {
        sink->fd = make_temporary(sink->path, folder, &name);
    }
    int failure = errno;
    temporaries[sink->slot] = sink->fd >= 0 ? name : NULL;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (sink->fd < 0) {
        io_error(error, sink->path, failure);
        free(name);
        return false;
    }
    sink->temporary = name;
    mode_t mask = umask(0);
    umask(mask);
    fchmod(sink->fd, old ? old->st_mode & 0777 : 0666 & ~mask);
    return true;
}

// A device or pipe: opened without waiting for ever, then written as usual.
static int open_direct(const char *path) {
    int fd = -1;
    for (int tries = 0; tries < FIFO_TRIES && fd < 0; tries++) {
        fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
        if (fd < 0 && errno != ENXIO) {
            return -1;
        }
        if (fd < 0) {
            wait_a_little();
        }
    }
    if (fd >= 0) {
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    } else {
        errno = ENXIO;
    }
    return fd;
}

static bool dead_link(cli_error *error, const char *path) {
    char name[400];
    return cli_fail(error, CLI_IO, "%s: a symbolic link to a file that does not exist",
                    cli_escape(name, sizeof name, path));
}

static bool open_target(cli_sink *sink, const char *path, cli_error *error) {
    struct stat old;
    if (!strcmp(path, "-")) {
        sink->path = copy_string("standard output");
        sink->fd = dup(STDOUT_FILENO);
        return sink->fd >= 0 || io_error(error, sink->path, errno);
    }
    bool exists = !stat(path, &old);
    int failure = errno;
    if (!exists && !lstat(path, &old)) {  // a rename would put a file in the link's place
        sink->path = copy_string(path);
        return failure == ENOENT ? dead_link(error, path) : io_error(error, path, failure);
    }
    if (exists && !S_ISREG(old.st_mode)) {
        sink->path = copy_string(path);
        sink->fd = open_direct(path);
        return sink->fd >= 0 || io_error(error, path, errno);
    }
    char *real = exists ? realpath(path, NULL) : NULL;
    sink->path = copy_string(real ? real : path);
    free(real);
    return open_temporary(sink, exists ? &old : NULL, error);
}

cli_sink *cli_sink_open(const char *path, cli_error *error) {
    cli_sink *sink = cli_alloc(sizeof *sink);
    sink->fd = -1;
    sink->buffer = cli_realloc(NULL, SINK_BUFFER);
    if (!open_target(sink, path, error)) {
        free_sink(sink);
        return NULL;
    }
    return sink;
}

static void write_all(cli_sink *sink, const uint8_t *data, size_t size) {
    while (size && !sink->failure) {
        ssize_t done = write(sink->fd, data, size);
        if (done < 0 && errno != EINTR) {
            sink->failure = errno;
        } else if (done > 0) {
            data += done;
            size -= (size_t)done;
        }
    }
}

bool cli_sink_write(cli_sink *sink, const void *data, size_t size) {
    if (size > SINK_BUFFER - sink->used) {
        write_all(sink, sink->buffer, sink->used);
        sink->used = 0;
    }
    if (size > SINK_BUFFER) {
        write_all(sink, data, size);
    } else if (size) {
        memcpy(sink->buffer + sink->used, data, size);
        sink->used += size;
    }
    return !sink->failure;
}

bool cli_sink_is_direct(const cli_sink *sink) { return !sink->temporary; }

bool cli_sink_finish(cli_sink *sink, cli_error *error) {
    if (sink->fd >= 0) {
        write_all(sink, sink->buffer, sink->used);
        if (close(sink->fd) && !sink->failure) {
            sink->failure = errno;
        }
        sink->fd = -1;
        free(sink->buffer);
        sink->buffer = NULL;
    }
    return !sink->failure || io_error(error, sink->path, sink->failure);
}

void cli_sink_abort(cli_sink *sink) {
    if (sink) {
        if (sink->fd >= 0) {
            close(sink->fd);
        }
        if (sink->temporary && !sink->placed) {
            unlink(sink->temporary);
        }
        if (sink->backup) {
            unlink(sink->backup);
        }
        free_sink(sink);
    }
}

static bool same_bytes(const char *a, const char *b) {
    cli_bytes x, y;
    cli_error ignored;
    struct stat s, t;
    if (stat(a, &s) || stat(b, &t) || s.st_size != t.st_size || !S_ISREG(t.st_mode)) {
        return false;
    }
    if (!cli_file_read(a, SIZE_MAX, &x, &ignored)) {
        return false;
    }
    bool same = cli_file_read(b, SIZE_MAX, &y, &ignored);
    if (same) {
        same = x.size == y.size && !memcmp(x.data, y.data, x.size);
        cli_file_release(&y);
    }
    cli_file_release(&x);
    return same;
}

// Puts a finished file in its place. What it takes the place of is kept under another name, which
// no handler knows of: signals wait.
static bool take_place(cli_sink *sink, cli_error *error) {
    if (!sink->temporary || sink->unchanged) {
        return true;
    }
    sink->backup = copy_string(sink->temporary);
    sink->backup[strlen(sink->backup) - 1] = '~';  // mkstemp has letters and digits there
    if (link(sink->path, sink->backup)) {
        sink->created = errno == ENOENT;
        free(sink->backup);
        sink->backup = NULL;
    }
    sink->placed = !rename(sink->temporary, sink->path);
    return sink->placed || io_error(error, sink->path, errno);
}

// Takes a file out of its place again, and what was there back in. A file system without links
// does not give it back.
static void leave_place(const cli_sink *sink) {
    if (sink->placed && sink->backup) {
        rename(sink->backup, sink->path);
    } else if (sink->placed && sink->created) {
        unlink(sink->path);
    }
}

bool cli_sinks_commit(cli_sink *const *sinks, size_t count, bool good, cli_error *error) {
    sigset_t signals, before;
    for (size_t i = 0; good && i < count; i++) {
        good = !sinks[i] || cli_sink_finish(sinks[i], error);
        if (good && sinks[i] && sinks[i]->temporary) {
            sinks[i]->unchanged = same_bytes(sinks[i]->temporary, sinks[i]->path);
        }
    }
    sigfillset(&signals);
    sigprocmask(SIG_BLOCK, &signals, &before);
    for (size_t i = 0; good && i < count; i++) {
        good = !sinks[i] || take_place(sinks[i], error);
    }
    for (size_t i = 0; i < count; i++) {
        if (sinks[i] && !good) {
            leave_place(sinks[i]);
        }
        cli_sink_abort(sinks[i]);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return good;
}

bool cli_sink_commit(cli_sink *sink, cli_error *error) {
    return cli_sinks_commit(&sink, 1, true, error);
}

bool cli_file_write(const char *path, const void *data, size_t size, cli_error *error) {
    cli_sink *sink = cli_sink_open(path, error);
    if (!sink) {
        return false;
    }
    cli_sink_write(sink, data, size);
    return cli_sink_commit(sink, error);
}
