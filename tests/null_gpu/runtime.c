/* The part of the CUDA runtime that torch calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "vector_types.h" /* before driver_types.h, which uses its types */
#include "driver_types.h"

#include "device.h"

#define COPIED_BYTES 65536 /* larger copies are not made: they would touch the memory */
/* nvidia-smi and NVML write it GPU-11111111-2222-3333-4444-555555555555 */
#define UUID "\x11\x11\x11\x11\x22\x22\x33\x33\x44\x44\x55\x55\x55\x55\x55\x55"
#define GRANULE 512        /* cudaMalloc's */

/* --- The device ------------------------------------------------------------------------------- */

ANSWERS_FIRST(cudaGetDeviceCount, int, device_is_visible())
ANSWERS_FIRST(cudaGetDevice, int, 0)

int cudaSetDevice(int device) { return device ? INVALID_DEVICE : device_status(); }

/* Sizes are an H100's; torch chooses its kernels by them. */
int cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    *properties = (struct cudaDeviceProp){
        .totalGlobalMem = device_total_bytes(), .major = 9, .minor = 0,
        .multiProcessorCount = 132, .warpSize = 32, .maxBlocksPerMultiProcessor = 32,
        .maxThreadsPerBlock = 1024, .maxThreadsPerMultiProcessor = 2048,
        .maxThreadsDim = {1024, 1024, 64}, .maxGridSize = {INT32_MAX, 65535, 65535},
        .regsPerBlock = 65536, .regsPerMultiprocessor = 65536, .sharedMemPerBlock = 49152,
        .sharedMemPerBlockOptin = 232448, .sharedMemPerMultiprocessor = 233472,
        .l2CacheSize = 52428800, .memoryBusWidth = 5120, .concurrentKernels = 1,
        .textureAlignment = 512, .texturePitchAlignment = 32, .uuid = {UUID},
    };
    strncpy(properties->name, device_name(), sizeof properties->name - 1);
    return device_status();
}

int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    struct cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, device);
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = properties.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = properties.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = properties.multiProcessorCount; break;
    case cudaDevAttrWarpSize: *value = properties.warpSize; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = properties.maxThreadsPerBlock; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = properties.maxThreadsPerMultiProcessor;
        break;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = properties.maxThreadsDim[0]; break;
    case cudaDevAttrMaxGridDimX: *value = properties.maxGridSize[0]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = properties.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = properties.sharedMemPerBlockOptin;
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = properties.sharedMemPerMultiprocessor;
        break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = properties.regsPerBlock; break;
    default: *value = 1; /* supported */
    }
    return device_status();
}

int cudaDeviceGetPCIBusId(char *id, int length, int device) {
    strncpy(id, "0000:01:00.0", length);
    return device_status();
}

ANSWERS_FIRST(cudaDeviceCanAccessPeer, int, 0)

int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0, *greatest = -5;
    return device_status();
}

int cudaDriverGetVersion(int *version) { /* known without starting CUDA */
    *version = 13000;
    return SUCCESS;
}

/* The driver's functions are in driver.c; torch may also ask for some that are not there. */
static int unknown_function() { return SUCCESS; }

int cudaGetDriverEntryPointByVersion(
    const char *name, void **function, unsigned version, unsigned long long flags, int *result) {
    *function = dlsym(RTLD_DEFAULT, name);
    if (!*function) *function = (void *)unknown_function;
    if (result) *result = SUCCESS;
    return SUCCESS;
}

int cudaGetLastError(void) { return device_status(); }
int cudaPeekAtLastError(void) { return device_status(); }

/* --- Memory ----------------------------------------------------------------------------------- */

int cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    if (device_status()) return device_status();
    size_t used = device_used_bytes();
    *total = device_total_bytes();
    *free_bytes = used < *total ? *total - used : 0;
    return SUCCESS;
}

int cudaMalloc(void **start, size_t bytes) {
    if (device_status()) return device_status();
    bytes = (bytes + GRANULE - 1) / GRANULE * GRANULE;
    if (device_charge(bytes)) return OUT_OF_MEMORY;
    int error = device_reserve(start, bytes);
    if (error) device_uncharge(bytes);
    return error;
}

int cudaFree(void *start) {
    if (!start || device_status()) return device_status();
    device_uncharge(device_unreserve(start));
    return SUCCESS;
}

int cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address) {
    int is_here = device_holds(address);
    *attributes = (struct cudaPointerAttributes){
        .type = is_here ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered,
        .devicePointer = (void *)address,
        .hostPointer = is_here ? NULL : (void *)address,
    };
    return device_status();
}

int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    if (device_status()) return device_status();
    if (bytes <= COPIED_BYTES)
        memcpy(to, from, bytes);
    else if (!device_holds(to))
        memset(to, 0, bytes);
    return SUCCESS;
}

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
    return cudaMemcpy(to, from, bytes, kind);
}

int cudaHostAlloc(void **start, size_t bytes, unsigned flags) {
    *start = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *start ? device_status() : OUT_OF_MEMORY;
}

int cudaFreeHost(void *start) {
    free(start);
    return SUCCESS;
}

int cudaGetSymbolAddress(void **address, const void *symbol) {
    static char memory[COPIED_BYTES];
    *address = memory;
    return device_status();
}

/* --- Streams, events and kernels: everything has ended as soon as it is queued ---------------- */

int cudaStreamCreate(void **stream) {
    static uintptr_t last = 0x1000; /* a stream is only a number */
    *stream = (void *)__atomic_add_fetch(&last, 16, __ATOMIC_RELAXED);
    return device_status();
}

int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    return cudaStreamCreate(stream);
}

ANSWERS_SECOND(cudaStreamGetPriority, int, 0)

/* CUDA fails here, too, in a fork of a process that has started it. */
ANSWERS_SECOND(cudaStreamIsCapturing, int, 0)

int cudaStreamGetCaptureInfo(void *stream, int *is_capturing, unsigned long long *id) {
    *is_capturing = 0;
    if (id) *id = 0;
    return device_status();
}

int cudaEventCreate(void **event) {
    *event = calloc(1, sizeof(struct timespec));
    return device_status();
}

int cudaEventCreateWithFlags(void **event, unsigned flags) { return cudaEventCreate(event); }

int cudaEventDestroy(void *event) {
    free(event);
    return SUCCESS;
}

int cudaEventRecord(void *event, void *stream) {
    clock_gettime(CLOCK_MONOTONIC, event);
    return device_status();
}

int cudaEventRecordWithFlags(void *event, void *stream, unsigned flags) {
    return cudaEventRecord(event, stream);
}

int cudaEventElapsedTime(float *ms, const struct timespec *start, const struct timespec *end) {
    *ms = (end->tv_sec - start->tv_sec) * 1e3 + (end->tv_nsec - start->tv_nsec) / 1e6;
    return device_status();
}

int cudaEventElapsedTime_v2(float *ms, const void *start, const void *end) {
    return cudaEventElapsedTime(ms, start, end);
}

int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *argument) {
    function(argument);
    return device_status();
}

int cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
    *attributes = (struct cudaFuncAttributes){
        .maxThreadsPerBlock = 1024, .numRegs = 32, .ptxVersion = 90, .binaryVersion = 90,
        .maxDynamicSharedSizeBytes = 49152,
    };
    return device_status();
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    int *blocks, const void *function, int threads, size_t shared_bytes) {
    *blocks = 2;
    return device_status();
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *function, int threads, size_t shared_bytes, unsigned flags) {
    *blocks = 2;
    return device_status();
}

DOES_NOTHING(__cudaLaunchKernel) DOES_NOTHING(cudaDeviceEnablePeerAccess)
DOES_NOTHING(cudaDeviceSynchronize) DOES_NOTHING(cudaEventQuery) DOES_NOTHING(cudaEventSynchronize)
DOES_NOTHING(cudaFuncSetAttribute) DOES_NOTHING(cudaHostRegister) DOES_NOTHING(cudaHostUnregister)
DOES_NOTHING(cudaLaunchKernel) DOES_NOTHING(cudaLaunchKernelExC) DOES_NOTHING(cudaMemcpy2DAsync)
DOES_NOTHING(cudaMemcpyPeerAsync) DOES_NOTHING(cudaMemcpyToSymbol) DOES_NOTHING(cudaMemset)
DOES_NOTHING(cudaMemsetAsync) DOES_NOTHING(cudaProfilerStart) DOES_NOTHING(cudaProfilerStop)
DOES_NOTHING(cudaStreamAddCallback) DOES_NOTHING(cudaStreamDestroy) DOES_NOTHING(cudaStreamQuery)
DOES_NOTHING(cudaStreamSynchronize) DOES_NOTHING(cudaStreamWaitEvent)
DOES_NOTHING(cudaThreadExchangeStreamCaptureMode)
