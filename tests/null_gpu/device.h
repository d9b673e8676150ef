/* A GPU that computes nothing.
 *
 * Purpose: run PyTorch with CUDA on a machine without a GPU, to test everything around the
 * computation: memory, out of memory, processes, failures. `build.sh` makes one library that takes
 * the place of the CUDA runtime, the driver, cuBLAS and NCCL when it is preloaded.
 *
 * Real: the peaks of torch's caching allocator, out of memory across processes, autograd's device
 * threads, CUDA's error after a fork, and an error that poisons the context.
 * Not real: times; values (a tensor holds zeros, but copies of up to 64 KiB are made); cuDNN;
 * torch.compile; CUDA graphs; more than one GPU. An operation that torch compiles while it runs
 * (erfinv, in trunc_normal_) ends in a segmentation fault.
 *
 * Memory is mapped without being reserved and never touched, so 80 GB cost nothing.
 *
 * Environment:
 *   NULLGPU_MIB      memory of the GPU in MiB (81079, an H100's as CUDA reports it)
 *   NULLGPU_NAME     its name ("NVIDIA H100 80GB HBM3")
 *   NULLGPU_TABLE    file that all processes on the GPU share; a new file is a new GPU
 *   NULLGPU_TRACE    file to which each process that starts CUDA appends its command line
 *   NULLGPU_SMI      answers of nvidia-smi that differ, "field=value;field=value"
 *   CUDA_VISIBLE_DEVICES  empty or -1 hides the GPU; any other value shows it
 *
 * From Python, `ctypes.CDLL(None).nullgpu_poison(710)` fails every later call with that CUDA error
 * (710: device-side assert), and `hasattr(ctypes.CDLL(None), "nullgpu")` recognizes this GPU.
 */
#pragma once
#include <stddef.h>

/* Numbers of CUDA errors; the runtime and the driver use the same ones. */
enum {
    SUCCESS = 0,
    OUT_OF_MEMORY = 2,
    INITIALIZATION_ERROR = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101
};

/* A function without effect, and one that puts a value into its first or its second argument. Each
 * fails only if the GPU cannot be used. Arguments that it ignores need not be declared: on every
 * platform of ours it is the caller that passes and removes them. */
#define DOES_NOTHING(name) \
    int name() { return device_status(); }
#define ANSWERS_FIRST(name, type, value) \
    int name(type *answer) { return *answer = (value), device_status(); }
#define ANSWERS_SECOND(name, type, value) \
    int name(void *subject, type *answer) { return *answer = (value), device_status(); }

int device_status(void); /* SUCCESS, or the error that every call must return */
int device_is_visible(void);
const char *device_name(void);
size_t device_total_bytes(void);
size_t device_used_bytes(void); /* by all processes that are alive */

/* Address space on the GPU, and the memory behind it. `cudaMalloc` needs both at once; torch's
 * expandable segments reserve space first and add memory as they grow. */
int device_reserve(void **start, size_t bytes);
size_t device_unreserve(void *start); /* its size; 0 if it is unknown */
int device_charge(size_t bytes);
void device_uncharge(size_t bytes);
int device_holds(const void *address);
