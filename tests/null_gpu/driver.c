/* The part of the CUDA driver that torch calls, mostly for expandable segments. */
#include "device.h"

#define SEGMENT_GRANULE (2ull << 20) /* of physical memory */

int cuInit(unsigned flags) { return device_status(); }

ANSWERS_FIRST(cuDriverGetVersion, int, 13000)
ANSWERS_FIRST(cuDeviceGetCount, int, device_is_visible())

int cuDeviceGet(int *device, int ordinal) {
    *device = 0;
    return ordinal ? INVALID_DEVICE : device_status();
}

/* No extras: neither multicast nor memory that other hosts can read. */
ANSWERS_FIRST(cuDeviceGetAttribute, int, 0)
ANSWERS_FIRST(cuCtxGetCurrent, void *, (void *)16)

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active) {
    *flags = 0, *is_active = 1;
    return SUCCESS;
}

int cuGetErrorString(int error, const char **text) {
    *text = error == OUT_OF_MEMORY ? "out of memory" : "error of the null GPU";
    return SUCCESS;
}

int cuGetErrorName(int error, const char **name) {
    *name = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
    return SUCCESS;
}

/* A handle to physical memory is its size. */
int cuMemCreate(size_t *handle, size_t bytes, const void *properties, unsigned long long flags) {
    *handle = bytes;
    return device_status() ? device_status() : device_charge(bytes);
}

int cuMemRelease(size_t handle) {
    device_uncharge(handle);
    return SUCCESS;
}

int cuMemAddressReserve(
    void **start, size_t bytes, size_t alignment, void *wanted, unsigned long long flags) {
    return device_reserve(start, bytes);
}

int cuMemAddressFree(void *start, size_t bytes) {
    device_unreserve(start);
    return SUCCESS;
}

int cuMemGetAllocationGranularity(size_t *bytes, const void *properties, int option) {
    *bytes = SEGMENT_GRANULE;
    return SUCCESS;
}

DOES_NOTHING(cuCtxSetCurrent) DOES_NOTHING(cuMemMap) DOES_NOTHING(cuMemSetAccess)
DOES_NOTHING(cuMemUnmap)
