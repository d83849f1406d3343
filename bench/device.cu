// What a result depends on beside the code: the GPU and the libraries, one `key TAB value` a line.
// Exit code 77 without a GPU. `--hold PROCESS` says nothing: where no daemon keeps the driver on
// the device, each program would bring it there anew, so that it holds on to it while the process
// lives.
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int put_device(int device) {
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, device) != cudaSuccess) return 5;
    printf("gpu\t%s\n", p.name);
    printf("sm\t%d.%d\n", p.major, p.minor);
    printf("multiprocessors\t%d\n", p.multiProcessorCount);
    printf("memory_bytes\t%zu\n", p.totalGlobalMem);
    printf("l2_bytes\t%d\n", p.l2CacheSize);
    int core = 0, memory = 0;
    if (cudaDeviceGetAttribute(&core, cudaDevAttrClockRate, device) != cudaSuccess) return 5;
    if (cudaDeviceGetAttribute(&memory, cudaDevAttrMemoryClockRate, device) != cudaSuccess)
        return 5;
    printf("core_clock_khz\t%d\n", core);
    printf("memory_clock_khz\t%d\n", memory);
    return 0;
}

static int hold(int process) {
    if (process < 1 || cudaFree(NULL) != cudaSuccess) return 5;
    while (kill(process, 0) == 0) sleep(1);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--hold")) return hold(atoi(argv[2]));
    int count = 0, driver = 0, runtime = 0, cublas = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    bool gpu = e == cudaSuccess && count > 0;
    if (gpu) {
        int code = put_device(0);
        if (code) return code;
    } else {
        printf("gpu\tnone: %s\n", e == cudaSuccess ? "none is visible" : cudaGetErrorString(e));
    }
    if (cudaDriverGetVersion(&driver) == cudaSuccess) printf("driver_cuda\t%d\n", driver);
    if (cudaRuntimeGetVersion(&runtime) == cudaSuccess) printf("runtime_cuda\t%d\n", runtime);
    printf("cudnn\t%zu\n", cudnnGetVersion());
    cublasHandle_t handle;
    if (gpu && cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS) {
        if (cublasGetVersion(handle, &cublas) == CUBLAS_STATUS_SUCCESS)
            printf("cublas\t%d\n", cublas);
        cublasDestroy(handle);
    }
    return gpu ? 0 : 77;
}
