/* Stands in for libnvidia-ml.so.1: two devices, the functions that the bindings call, the driver's return codes.
 *
 * Device 0 supports all but slices (MIG), which device 1 has if STAND_IN_SPLIT is set; device 1 supports neither
 * utilisation, power nor PCIe throughput. Where the file named by STAND_IN_LOST
 * exists, device 1 is lost. STAND_IN_INIT is what nvmlInitWithFlags returns. With OLD_DRIVER the functions that newer
 * drivers brought are not there. STAND_IN_PID is a process on device 0, beside one that is not ours. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };

typedef struct { int index; } *Device;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned int gpu, memory; } Utilization;
typedef struct { char legacy[16]; unsigned int domain, bus, device, id, subsystem; char text[32]; } Pci;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gpu_instance, compute_instance; } Process;

static struct { int index; } devices[2] = {{0}, {1}};

static int lost(Device device) {
    const char *path = getenv("STAND_IN_LOST");
    return device->index == 1 && path && access(path, F_OK) == 0;
}

#define CHECK(device) do { if (lost(device)) return GPU_IS_LOST; } while (0)
#define ONLY_FIRST(device) do { CHECK(device); if ((device)->index == 1) return NOT_SUPPORTED; } while (0)
#define NUMBER(name, value) int name(Device device, unsigned int *out) { CHECK(device); *out = (value); return SUCCESS; }
#define FIRST_NUMBER(name, value) int name(Device device, unsigned int *out) { ONLY_FIRST(device); *out = (value); return SUCCESS; }

int nvmlInitWithFlags(unsigned int flags) { const char *code = getenv("STAND_IN_INIT"); return code ? atoi(code) : SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return "an error of the stand-in"; }
int nvmlSystemGetDriverVersion(char *out, unsigned int size) { snprintf(out, size, "550.1"); return SUCCESS; }
int nvmlSystemGetNVMLVersion(char *out, unsigned int size) { snprintf(out, size, "12.550.1"); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned int *out) { const char *n = getenv("STAND_IN_COUNT"); *out = n ? atoi(n) : 2; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device *out) {
    if (index > 1) return INVALID_ARGUMENT;
    *out = (Device)&devices[index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(Device device, char *out, unsigned int size) { snprintf(out, size, "GPU-%d%d", device->index, device->index); return SUCCESS; }
int nvmlDeviceGetName(Device device, char *out, unsigned int size) { snprintf(out, size, "Stand-in 80GB"); return SUCCESS; }

int nvmlDeviceGetPciInfo_v3(Device device, Pci *out) {
    memset(out, 0, sizeof *out);
    out->bus = 0x3b + device->index;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(Device device, unsigned int *now, unsigned int *pending) {
    if (device->index == 0) return NOT_SUPPORTED;
    *now = *pending = getenv("STAND_IN_SPLIT") != NULL;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Device device, Memory *out) {
    CHECK(device);
    out->total = 80000000000ull; out->used = 20500000000ull; out->free = 59500000000ull;
    return SUCCESS;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(Device device, Memory2 *out) {
    CHECK(device);
    if (out->version != (sizeof *out | 2 << 24)) return INVALID_ARGUMENT;
    out->total = 80000000000ull; out->reserved = 500000000ull; out->used = 20000000000ull; out->free = 59500000000ull;
    return SUCCESS;
}
#endif

int nvmlDeviceGetUtilizationRates(Device device, Utilization *out) { ONLY_FIRST(device); out->gpu = 93; out->memory = 41; return SUCCESS; }
FIRST_NUMBER(nvmlDeviceGetPowerUsage, 301500)
FIRST_NUMBER(nvmlDeviceGetEnforcedPowerLimit, 400000)
FIRST_NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, 450000)
int nvmlDeviceGetPowerManagementLimitConstraints(Device device, unsigned int *least, unsigned int *most) { ONLY_FIRST(device); *least = 100000; *most = 500000; return SUCCESS; }
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, 3)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, 8)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, 4)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, 16)

int nvmlDeviceGetTemperatureThreshold(Device device, unsigned int which, unsigned int *out) { CHECK(device); *out = 87; return SUCCESS; }
int nvmlDeviceGetClockInfo(Device device, unsigned int which, unsigned int *out) { CHECK(device); *out = which == 1 ? 1410 : 1593; return SUCCESS; }
int nvmlDeviceGetMaxClockInfo(Device device, unsigned int which, unsigned int *out) { CHECK(device); *out = which == 1 ? 1980 : 2619; return SUCCESS; }

int nvmlDeviceGetPcieThroughput(Device device, unsigned int which, unsigned int *out) {
    ONLY_FIRST(device);
    usleep(20000);
    *out = which == 0 ? 7000 : 9000;
    return SUCCESS;
}

#ifdef OLD_DRIVER
#define RUNNING_PROCESSES nvmlDeviceGetComputeRunningProcesses_v2
int nvmlDeviceGetTemperature(Device device, unsigned int sensor, unsigned int *out) { CHECK(device); *out = 61; return SUCCESS; }
int nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long *out) { CHECK(device); *out = 0x4; return SUCCESS; }
#else
#define RUNNING_PROCESSES nvmlDeviceGetComputeRunningProcesses_v3
typedef struct { unsigned int version, sensor; int celsius; } Temperature;
int nvmlDeviceGetTemperatureV(Device device, Temperature *out) { CHECK(device); out->celsius = 71; return SUCCESS; }
int nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long *out) { CHECK(device); *out = 0x60; return SUCCESS; }
#endif

int RUNNING_PROCESSES(Device device, unsigned int *count, Process *out) {
    CHECK(device);
    const char *ours = getenv("STAND_IN_PID");
    unsigned int needed = device->index == 0 ? 2 : 0, room = *count;
    *count = needed;
    if (room < needed) return INSUFFICIENT_SIZE;
    if (needed) {
        memset(out, 0, 2 * sizeof *out);
        out[0].pid = ours ? atoi(ours) : 1; out[0].used = 15000000000ull;
        out[1].pid = 999999999; out[1].used = 3000000000ull;
    }
    return SUCCESS;
}
