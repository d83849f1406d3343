// Entry bookkeeping of the judge: settings, fault injection, the ledger of live objects, error
// state, device properties.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <map>
#include <string>

#include "judge.h"

namespace {

long calls;     // API calls so far
long matching;  // of those, calls that fault injection counts
uint64_t random_state = 0x9E3779B97F4A7C15ull;
cudaError_t last_error = cudaSuccess;

std::map<std::string, long> &ledger() {
    static auto *counts = new std::map<std::string, long>;
    return *counts;
}

void finish() {
    judge_check_redzones();
    bool leaked = false;
    for (auto &entry : ledger()) {
        if (entry.second != 0 && (judge_env().leakcheck || judge_env().report)) {
            fprintf(stderr, "judge: leak: %ld x %s\n", entry.second, entry.first.c_str());
            leaked = true;
        }
    }
    bool raced = judge_race_report && judge_race_report();
    if (judge_env().report) {
        fprintf(stderr, "judge: %ld api calls\n", calls);
    }
    if (raced || (leaked && judge_env().leakcheck)) {
        fflush(nullptr);
        _exit(raced ? JUDGE_EXIT_RACE : JUDGE_EXIT_LEAK);
    }
}

long number_setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

bool flag_setting(const char *name) {
    const char *text = getenv(name);
    return text && *text && strcmp(text, "0") != 0;
}

judge_settings read_settings() {
    judge_settings s = {};
    s.fail_api = getenv("JUDGE_FAIL_API");
    s.fail_api = s.fail_api && *s.fail_api ? s.fail_api : nullptr;
    s.fail_at = number_setting("JUDGE_FAIL_AT", s.fail_api ? 1 : 0);
    s.sticky = flag_setting("JUDGE_STICKY");
    s.leakcheck = flag_setting("JUDGE_LEAKCHECK");
    s.report = flag_setting("JUDGE_REPORT");
    s.report_launches = s.report && strcmp(getenv("JUDGE_REPORT"), "launch") == 0;
    s.no_device = flag_setting("JUDGE_NO_DEVICE");
    s.memory = (size_t)number_setting("JUDGE_MEM_MB", 16384) << 20;
    s.capability = (int)number_setting("JUDGE_CC", 90);
    const char *order = getenv("JUDGE_ORDER");
    if (order && strcmp(order, "rev") == 0) {
        s.order = judge_settings::reversed;
    } else if (order && strncmp(order, "rand", 4) == 0) {
        s.order = judge_settings::random;
        random_state ^= strtoull(order + 4, nullptr, 10) * 0xD1342543DE82EF95ull;
    } else if (order && *order) {
        fprintf(stderr, "judge: JUDGE_ORDER is rev or rand<seed>, not %s\n", order);
        _exit(2);
    }
    judge_report_crashes();
    atexit(finish);
    return s;
}

// The call's name as a user writes it: without the version suffix that the vendor's headers add by
// macro.
bool same_name(const char *function, const char *wanted) {
    size_t length = strlen(wanted);
    return strncmp(function, wanted, length) == 0 &&
           (function[length] == 0 || strcmp(function + length, "_v2") == 0);
}

}  // namespace

const judge_settings &judge_env() {
    static const judge_settings settings = read_settings();
    return settings;
}

void judge_fault(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "judge: fault: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    fflush(nullptr);
    _exit(JUDGE_EXIT_FAULT);
}

bool judge_entry(const char *name) {
    const judge_settings &env = judge_env();
    calls++;
    if (judge_self) {
        judge_fault("%s called from a kernel", name);
    }
    if (env.no_device) {
        return true;
    }
    if (env.fail_at == 0 || (env.fail_api && !same_name(name, env.fail_api))) {
        return false;
    }
    matching++;
    bool fails = matching == env.fail_at || (env.sticky && matching > env.fail_at);
    if (fails && env.report) {
        fprintf(stderr, "judge: injected failure of %s (call %ld)\n", name, calls);
    }
    return fails;
}

cudaError_t judge_error(cudaError_t error) {
    if (error != cudaSuccess) {
        last_error = error;
    }
    return error;
}

cudaError_t judge_injected(cudaError_t error) {
    return judge_env().no_device ? cudaErrorNoDevice : error;
}

void judge_ledger(const char *kind, int change) { ledger()[kind] += change; }

uint64_t judge_random() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

cudaError_t cudaGetLastError() {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

namespace {

struct error_text {
    cudaError_t error;
    const char *name, *text;
};

#define ERROR_TEXT(error, text) \
    { error, #error, text }
const error_text error_texts[] = {
    ERROR_TEXT(cudaSuccess, "no error"),
    ERROR_TEXT(cudaErrorInvalidValue, "invalid argument"),
    ERROR_TEXT(cudaErrorMemoryAllocation, "out of memory"),
    ERROR_TEXT(cudaErrorInitializationError, "initialization error"),
    ERROR_TEXT(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR_TEXT(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR_TEXT(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR_TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR_TEXT(cudaErrorNotReady, "device not ready"),
    ERROR_TEXT(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR_TEXT(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    ERROR_TEXT(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR_TEXT(cudaErrorStreamCaptureUnsupported,
               "operation not permitted when stream is capturing"),
    ERROR_TEXT(cudaErrorStreamCaptureInvalidated,
               "operation failed due to a previous error during capture"),
    ERROR_TEXT(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR_TEXT(cudaErrorStreamCaptureUnmatched, "the capture was not initiated in this stream"),
    ERROR_TEXT(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ERROR_TEXT(cudaErrorUnknown, "unknown error"),
};
#undef ERROR_TEXT

const error_text *find_text(cudaError_t error) {
    for (const error_text &entry : error_texts) {
        if (entry.error == error) {
            return &entry;
        }
    }
    return nullptr;
}

}  // namespace

const char *cudaGetErrorString(cudaError_t error) {
    const error_text *found = find_text(error);
    return found ? found->text : "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t error) {
    const error_text *found = find_text(error);
    return found ? found->name : "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int *count) {
    JUDGE_CALL(cudaErrorInitializationError);
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    JUDGE_CALL(cudaErrorInitializationError);
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    JUDGE_CALL(cudaErrorInitializationError);
    return device == 0 ? cudaSuccess : judge_error(cudaErrorInvalidDevice);
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    JUDGE_CALL(cudaErrorInitializationError);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    JUDGE_CALL(cudaErrorInitializationError);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

// Limits by compute capability as in the programming guide's table; other figures those of an H200
// or, for 8.7, an Orin.
int judge_largest_shared_block() {
    switch (judge_env().capability) {
    case 75: return 64 << 10;
    case 80:
    case 87: return 163 << 10;
    case 86:
    case 89:
    case 120:
    case 121: return 99 << 10;
    default: return 227 << 10;
    }
}

static int judge_shared_of_processor() {
    return judge_largest_shared_block() + (judge_env().capability == 75 ? 0 : 1024);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device) {
    JUDGE_CALL(cudaErrorInitializationError);
    if (device != 0) {
        return judge_error(cudaErrorInvalidDevice);
    }
    bool small = judge_env().capability == 87;
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "judge (CPU)");
    prop->totalGlobalMem = judge_env().memory;
    prop->major = judge_env().capability / 10;
    prop->minor = judge_env().capability % 10;
    prop->multiProcessorCount = small ? 16 : 132;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = 1024;
    prop->maxThreadsPerMultiProcessor = small ? 1536 : 2048;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = 2147483647;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->sharedMemPerBlock = 48 << 10;
    prop->sharedMemPerBlockOptin = (size_t)judge_largest_shared_block();
    prop->sharedMemPerMultiprocessor = (size_t)judge_shared_of_processor();
    prop->reservedSharedMemPerBlock = 1024;
    prop->regsPerBlock = prop->regsPerMultiprocessor = 65536;
    prop->l2CacheSize = small ? 4 << 20 : 60 << 20;
    prop->memoryBusWidth = small ? 256 : 6144;
    prop->totalConstMem = 64 << 10;
    prop->textureAlignment = 512;
    prop->unifiedAddressing = 1;
    prop->asyncEngineCount = small ? 1 : 3;
    prop->concurrentKernels = 1;
    prop->integrated = small;
    prop->canMapHostMemory = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
    JUDGE_CALL(cudaErrorInitializationError);
    if (device != 0) {
        return judge_error(cudaErrorInvalidDevice);
    }
    bool small = judge_env().capability == 87;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = judge_largest_shared_block(); break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = judge_shared_of_processor(); break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = 1024; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = 65536; break;
    case cudaDevAttrMultiProcessorCount: *value = small ? 16 : 132; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = small ? 1536 : 2048; break;
    case cudaDevAttrL2CacheSize: *value = small ? 4 << 20 : 60 << 20; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = small ? 256 : 6144; break;
    case cudaDevAttrComputeCapabilityMajor: *value = judge_env().capability / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = judge_env().capability % 10; break;
    case cudaDevAttrIntegrated: *value = small; break;
    case cudaDevAttrUnifiedAddressing: *value = 1; break;
    case cudaDevAttrMemoryPoolsSupported: *value = 0; break;
    case cudaDevAttrClockRate: *value = small ? 1300000 : 1980000; break;
    case cudaDevAttrMemoryClockRate: *value = small ? 3200000 : 3201000; break;
    default: return judge_error(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}
