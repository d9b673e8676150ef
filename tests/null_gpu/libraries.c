/* The parts of cuBLAS, NCCL and NVML that training calls; NCCL has one rank. */
#include <stdlib.h>
#include <string.h>

#include "device.h"

int cudaMalloc(void **start, size_t bytes);
int cudaFree(void *start);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);

/* --- cuBLAS ----------------------------------------------------------------------------------- */

ANSWERS_FIRST(cublasCreate_v2, void *, malloc(1))

int cublasDestroy_v2(void *handle) {
    free(handle);
    return SUCCESS;
}

ANSWERS_SECOND(cublasGetMathMode, int, 0)
ANSWERS_SECOND(cublasGetPointerMode_v2, int, 0)

/* One algorithm, which needs no workspace: a result is 96 bytes of zeros. */
int cublasLtMatmulAlgoGetHeuristic(
    void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference,
    int wanted, void *results, int *count) {
    memset(results, 0, 96);
    *count = 1;
    return device_status();
}

DOES_NOTHING(cublasDgemm_v2) DOES_NOTHING(cublasGemmBatchedEx) DOES_NOTHING(cublasGemmEx)
DOES_NOTHING(cublasGemmStridedBatchedEx) DOES_NOTHING(cublasLtMatmul) DOES_NOTHING(cublasSdot_v2)
DOES_NOTHING(cublasSetMathMode) DOES_NOTHING(cublasSetPointerMode_v2)
DOES_NOTHING(cublasSetStream_v2) DOES_NOTHING(cublasSetWorkspace_v2) DOES_NOTHING(cublasSgemmEx)
DOES_NOTHING(cublasSgemmStridedBatched) DOES_NOTHING(cublasSgemm_v2) DOES_NOTHING(cublasSgemv_v2)

/* --- NCCL ------------------------------------------------------------------------------------- */

ANSWERS_FIRST(ncclGetVersion, int, 22809)

int ncclGetUniqueId(void *id) {
    memset(id, 1, 128);
    return SUCCESS;
}

/* All ways of making a communicator put it at their first or their fourth argument. */
static int new_communicator(void **communicator) {
    *communicator = calloc(1, 4096);
    return device_status();
}

int ncclCommInitRank(void **communicator) { return new_communicator(communicator); }
int ncclCommInitRankConfig(void **communicator) { return new_communicator(communicator); }
int ncclCommInitRankScalable(void **communicator) { return new_communicator(communicator); }

int ncclCommSplit(void *parent, int color, int key, void **communicator) {
    return new_communicator(communicator);
}

ANSWERS_SECOND(ncclCommGetAsyncError, int, SUCCESS)
ANSWERS_SECOND(ncclCommCount, int, 1)
ANSWERS_SECOND(ncclCommUserRank, int, 0)

const char *ncclGetErrorString(int error) { return "error of the null GPU"; }
const char *ncclGetLastError(void *communicator) { return ""; }

int ncclMemAlloc(void **start, size_t bytes) { return cudaMalloc(start, bytes); }
int ncclMemFree(void *start) { return cudaFree(start); }

ANSWERS_FIRST(ncclRedOpCreatePreMulSum, int, 10)

/* With one rank the result of a collective is what was sent. */
static int collect(const void *sent, void *received, size_t values, int type) {
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}; /* by ncclDataType_t */
    return sent == received ? device_status() : cudaMemcpy(received, sent, values * bytes[type], 0);
}

#define COLLECTIVE(name) \
    int name(const void *sent, void *received, size_t values, int type) { \
        return collect(sent, received, values, type); \
    }
COLLECTIVE(ncclAllGather)
COLLECTIVE(ncclAllReduce)
COLLECTIVE(ncclBroadcast)
COLLECTIVE(ncclReduce)
COLLECTIVE(ncclReduceScatter)

DOES_NOTHING(ncclBcast) DOES_NOTHING(ncclCommAbort) DOES_NOTHING(ncclCommDeregister)
DOES_NOTHING(ncclCommDestroy) DOES_NOTHING(ncclCommFinalize) DOES_NOTHING(ncclCommRegister)
DOES_NOTHING(ncclGroupEnd) DOES_NOTHING(ncclGroupStart) DOES_NOTHING(ncclRecv)
DOES_NOTHING(ncclRedOpDestroy) DOES_NOTHING(ncclSend)

/* --- NVML: torch counts GPUs by it without starting CUDA; a device is any address ------------- */

int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 1, SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { return *device = "", SUCCESS; }
int nvmlDeviceGetHandleByPciBusId_v2(char *id, void **device) { return *device = "", SUCCESS; }
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *n) { return *n = 0, SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return *version = 13000, SUCCESS; }

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    strncpy(uuid, "GPU-11111111-2222-3333-4444-555555555555", length);
    return SUCCESS;
}

int nvmlInit(void) { return SUCCESS; }
int nvmlInit_v2(void) { return SUCCESS; }
int nvmlDeviceGetGpuFabricInfoV() { return SUCCESS; }
int nvmlDeviceGetNvLinkRemoteDeviceType() { return SUCCESS; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2() { return SUCCESS; }

/* --- torch's own C++ functions, under the names that the linker gives them ----------------------- */

/* at::Context::userEnabledCuDNN() and userEnabledCuDNNSDP(): torch uses its own convolutions and
 * attention instead of cuDNN's. */
int _ZNK2at7Context16userEnabledCuDNNEv(void *context) { return 0; }
int _ZNK2at7Context19userEnabledCuDNNSDPEv(void *context) { return 0; }
