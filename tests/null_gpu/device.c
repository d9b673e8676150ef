/* The state of the GPU: its memory, the processes that use it, and the errors it is in. */
#define _GNU_SOURCE
#include "device.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define CONTEXT_BYTES (520 * MIB) /* a process's CUDA context, as large as on an H100 */
#define PROCESSES 256             /* rows of the table that processes share */
#define RANGES 65536              /* reserved ranges of one process */

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

const char *device_name(void) { return setting("NULLGPU_NAME", "NVIDIA H100 80GB HBM3"); }

size_t device_total_bytes(void) {
    return strtoull(setting("NULLGPU_MIB", "81079"), NULL, 10) * MIB;
}

int device_is_visible(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return !visible || (*visible && strcmp(visible, "-1") != 0);
}

/* --- Which process may use the GPU ------------------------------------------------------------ */

static pid_t starter; /* the process that started CUDA; a fork of it inherits this value */
static int poison;    /* error of every later call, as after a device-side assert */

void nullgpu_poison(int error) { poison = error; }
const char *nullgpu(void) { return "a GPU that computes nothing"; }

static void trace_start(void) {
    char command[200] = {0}, line[260];
    int source = open("/proc/self/cmdline", O_RDONLY);
    ssize_t length = read(source, command, sizeof command - 1);
    close(source);
    for (ssize_t i = 0; i < length; i++)
        if (!command[i]) command[i] = ' ';
    snprintf(line, sizeof line, "pid %d: %s\n", getpid(), command);
    int file = open(getenv("NULLGPU_TRACE"), O_WRONLY | O_APPEND | O_CREAT, 0644);
    if (write(file, line, strlen(line)) < 0) perror("NULLGPU_TRACE");
    close(file);
}

int device_status(void) {
    if (!device_is_visible()) return NO_DEVICE;
    if (!starter) {
        starter = getpid();
        if (getenv("NULLGPU_TRACE")) trace_start();
    }
    return starter != getpid() ? INITIALIZATION_ERROR : poison;
}

/* --- Memory of all processes ------------------------------------------------------------------ */

struct process {
    long pid;
    size_t bytes;
};

static struct process *table; /* shared through the file NULLGPU_TABLE */
static struct process *self;  /* this process's row */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int is_alive(long pid) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%ld", pid);
    return pid && access(path, F_OK) == 0;
}

/* Take a row for this process. Rows of processes that ended are free again. */
static void attach(void) {
    size_t bytes = PROCESSES * sizeof *table;
    if (self && self->pid == getpid()) return;
    if (!table) {
        int file = open(setting("NULLGPU_TABLE", "null_gpu.table"), O_RDWR | O_CREAT, 0600);
        if (ftruncate(file, bytes) < 0) abort();
        table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
    }
    for (self = table; is_alive(self->pid); self++)
        if (self == table + PROCESSES - 1) abort();
    *self = (struct process){getpid(), CONTEXT_BYTES};
}

static size_t used_bytes(void) {
    size_t sum = 0;
    attach();
    for (int i = 0; i < PROCESSES; i++)
        if (is_alive(table[i].pid)) sum += table[i].bytes;
    return sum;
}

size_t device_used_bytes(void) {
    pthread_mutex_lock(&lock);
    size_t used = used_bytes();
    pthread_mutex_unlock(&lock);
    return used;
}

int device_charge(size_t bytes) {
    pthread_mutex_lock(&lock);
    int fits = used_bytes() + bytes <= device_total_bytes();
    if (fits) self->bytes += bytes;
    pthread_mutex_unlock(&lock);
    return fits ? SUCCESS : OUT_OF_MEMORY;
}

void device_uncharge(size_t bytes) {
    pthread_mutex_lock(&lock);
    attach();
    self->bytes -= bytes;
    pthread_mutex_unlock(&lock);
}

/* --- Addresses of this process ---------------------------------------------------------------- */

static struct range {
    char *start;
    size_t bytes;
} ranges[RANGES];
static int range_count;

int device_reserve(void **start, size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE; /* memory only for what is touched */
    void *space = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (space == MAP_FAILED || range_count == RANGES) return OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    ranges[range_count++] = (struct range){space, bytes};
    pthread_mutex_unlock(&lock);
    *start = space;
    return SUCCESS;
}

size_t device_unreserve(void *start) {
    size_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < range_count && !bytes; i++)
        if (ranges[i].start == start) {
            bytes = ranges[i].bytes;
            ranges[i] = ranges[--range_count];
            munmap(start, bytes);
        }
    pthread_mutex_unlock(&lock);
    return bytes;
}

int device_holds(const void *address) {
    int holds = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < range_count && !holds; i++)
        holds = (size_t)((const char *)address - ranges[i].start) < ranges[i].bytes;
    pthread_mutex_unlock(&lock);
    return holds;
}
