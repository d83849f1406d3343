// cuDNN's graph API without a GPU: descriptors are finalised for the device that `properties` tell
// of, written by hand from datasheets. Include this before an emitted file, whose functions can be
// called then; handles, which need a device, are left out.
#include <cudnn.h>
#include <stdio.h>
#include <string.h>

static cudnnBackendDescriptor_t properties;
static struct {
    cudnnBackendDescriptor_t which;
    cudnnBackendDescriptorType_t type;
} described[4096];
static int descriptors;

static cudnnStatus_t here_create(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d) {
    cudnnStatus_t status = cudnnBackendCreateDescriptor(type, d);
    if (status == CUDNN_STATUS_SUCCESS && descriptors < 4096) described[descriptors++] = {*d, type};
    return status;
}

static cudnnStatus_t here_destroy(cudnnBackendDescriptor_t d) {
    for (int i = 0; i < descriptors; i++)
        if (described[i].which == d) described[i] = described[--descriptors];
    return cudnnBackendDestroyDescriptor(d);
}

static cudnnStatus_t here_set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                              cudnnBackendAttributeType_t type, int64_t n, const void *value) {
    if (type == CUDNN_TYPE_HANDLE) return CUDNN_STATUS_SUCCESS;
    return cudnnBackendSetAttribute(d, name, type, n, value);
}

static cudnnStatus_t here_finalize(cudnnBackendDescriptor_t d) {
    const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t name;
    } of[] = {{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP},
              {CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_DEVICEPROP},
              {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP}};
    for (int i = 0; i < descriptors; i++)
        for (int k = 0; k < 3; k++)
            if (described[i].which == d && described[i].type == of[k].type)
                cudnnBackendSetAttribute(d, of[k].name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                         &properties);
    return cudnnBackendFinalize(d);
}

// Makes `name` the device: h200 or agx-orin. 1: cuDNN refuses it.
static int here_device(const char *name) {
    bool orin = !strcmp(name, "agx-orin");
    char text[1500];
    int n = snprintf(text, sizeof text,
                     "{\"version\":1,\"deviceName\":\"%s\",\"cudaDeviceId\":0,\"deviceVer\":%d,"
                     "\"driverVer\":13000,\"isTccDriver\":0,\"supportCoopLaunch\":1,"
                     "\"multiProcessorCount\":%d,\"smClockRateKHz\":%d,\"memClockRateKHz\":%d,"
                     "\"l2CacheSize\":%d,\"totalGlobalMem\":%lld,\"regsPerBlock\":65536,"
                     "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":%d,\"maxThreadsPerBlock\":1024,"
                     "\"maxThreadsPerSM\":%d,\"maxSharedMemoryPerBlock\":49152,"
                     "\"maxSharedMemoryPerBlockOptin\":%d,\"reservedSharedMemoryPerBlock\":1024,"
                     "\"warpSize\":32,\"pciDeviceId\":0,\"maxGridSize\":[2147483647,65535,65535],"
                     "\"maxBlockSize\":[1024,1024,64]}",
                     orin ? "Orin" : "NVIDIA H200", orin ? 870 : 900, orin ? 16 : 132,
                     orin ? 1300000 : 1980000, orin ? 3200000 : 2619000, orin ? 4 << 20 : 60 << 20,
                     orin ? 64ll << 30 : 140ll << 30, orin ? 16 : 32, orin ? 1536 : 2048,
                     orin ? 166912 : 232448);
    return cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &properties) ||
           cudnnBackendSetAttribute(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                    CUDNN_TYPE_CHAR, n, text) ||
           cudnnBackendFinalize(properties);
}

#define cudnnBackendCreateDescriptor here_create
#define cudnnBackendDestroyDescriptor here_destroy
#define cudnnBackendSetAttribute here_set
#define cudnnBackendFinalize here_finalize
