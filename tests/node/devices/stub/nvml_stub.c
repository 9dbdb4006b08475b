/* A libnvidia-ml.so.1 for tests: it answers from a text file, so that each test says what the driver says.
 *
 * CUMULO_NVML_STUB names the file; it is read anew at each call, and without it the driver is "not loaded". Lines:
 *
 *   driver VERSION | cuda NUMBER          what the system functions answer
 *   device                                begins a device; the lines below it are of that device
 *   name TEXT | uuid TEXT | pci BUSID | minor N | total BYTES | used BYTES | reserved BYTES
 *   utilisation PERCENT | temperature C | power MILLIWATTS | mig 0|1 | numa NODE | recovery ACTION
 *   compute PID BYTES | mps PID BYTES | graphics PID BYTES      (BYTES -1: not available)
 *   fail FUNCTION CODE                    that function answers CODE, for the device or, before any, at all
 *
 * What a device leaves out is NVML_ERROR_NOT_SUPPORTED, except its name, uuid and memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9 };
enum { MAX_DEVICES = 16, MAX_LISTED = 32, TEXT = 96 };

typedef struct { unsigned pid; unsigned long long used; char kind; } Process;
typedef struct { char function[TEXT]; int code; } Failure;
typedef struct {
    char name[TEXT], uuid[TEXT], pci[TEXT];
    int minor, utilisation, temperature, power, mig, numa, recovery, processes, failures;
    unsigned long long total, used, reserved;
    Process process[MAX_LISTED];
    Failure failure[MAX_LISTED];
} Device;
typedef struct { char driver[TEXT]; int cuda, devices, failures; Device device[MAX_DEVICES]; Failure failure[MAX_LISTED]; } State;

static const Device NEW = {.minor = -1, .utilisation = -1, .temperature = -1, .power = -1, .mig = -1, .numa = -1, .recovery = -1};

static void read_line(State *state, char *line) {
    char key[TEXT] = "", text[TEXT] = "";
    long long number = 0, second = 0;
    if (sscanf(line, " %95s %95[^\n]", key, text) < 1) return;
    sscanf(text, "%lld %lld", &number, &second);
    Device *d = state->devices ? &state->device[state->devices - 1] : NULL;
    if (!strcmp(key, "driver")) strcpy(state->driver, text);
    else if (!strcmp(key, "cuda")) state->cuda = (int)number;
    else if (!strcmp(key, "device")) state->device[state->devices++] = NEW;
    else if (!strcmp(key, "fail")) {
        Failure *f = d ? &d->failure[d->failures++] : &state->failure[state->failures++];
        sscanf(text, "%95s %d", f->function, &f->code);
    }
    else if (!d) return;
    else if (!strcmp(key, "name")) strcpy(d->name, text);
    else if (!strcmp(key, "uuid")) strcpy(d->uuid, text);
    else if (!strcmp(key, "pci")) strcpy(d->pci, text);
    else if (!strcmp(key, "minor")) d->minor = (int)number;
    else if (!strcmp(key, "total")) d->total = (unsigned long long)number;
    else if (!strcmp(key, "used")) d->used = (unsigned long long)number;
    else if (!strcmp(key, "reserved")) d->reserved = (unsigned long long)number;
    else if (!strcmp(key, "utilisation")) d->utilisation = (int)number;
    else if (!strcmp(key, "temperature")) d->temperature = (int)number;
    else if (!strcmp(key, "power")) d->power = (int)number;
    else if (!strcmp(key, "mig")) d->mig = (int)number;
    else if (!strcmp(key, "numa")) d->numa = (int)number;
    else if (!strcmp(key, "recovery")) d->recovery = (int)number;
    else if (!strcmp(key, "compute") || !strcmp(key, "mps") || !strcmp(key, "graphics"))
        d->process[d->processes++] = (Process){(unsigned)number, (unsigned long long)second, key[0]};
}

static int load(State *state) {
    const char *path = getenv("CUMULO_NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[4 * TEXT];
    memset(state, 0, sizeof *state);
    if (!file) return DRIVER_NOT_LOADED;
    while (fgets(line, sizeof line, file)) read_line(state, line);
    fclose(file);
    return SUCCESS;
}

static int failure(const Failure *failures, int count, const char *function) {
    for (int i = 0; i < count; i++) if (!strcmp(failures[i].function, function)) return failures[i].code;
    return SUCCESS;
}

/* Each function begins by reading the state and returns at once what it was told to fail with. */
#define SYSTEM State state; int code = load(&state); \
    if (!code) code = failure(state.failure, state.failures, __func__); \
    if (code) return code
/* A handle is the device's index plus one. */
#define DEVICE SYSTEM; size_t at = (size_t)handle; if (at < 1 || at > (size_t)state.devices) return INVALID_ARGUMENT; \
    Device *d = &state.device[at - 1]; (void)d; \
    code = failure(d->failure, d->failures, __func__); if (code) return code
#define SUPPORTED(condition) if (!(condition)) return NOT_SUPPORTED

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct { unsigned gpu, memory; } Utilisation;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } ProcessInfo;
typedef struct { unsigned field, scope; long long timestamp, latency; int type, code; union { unsigned u; double d; } value; } FieldValue;

int nvmlInitWithFlags(unsigned flags) { (void)flags; SYSTEM; return SUCCESS; }
int nvmlInit_v2(void) { SYSTEM; return SUCCESS; }
int nvmlShutdown(void) { SYSTEM; return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the stub"; }

int nvmlSystemGetDriverVersion(char *text, unsigned size) { SYSTEM; snprintf(text, size, "%s", state.driver); return SUCCESS; }
int nvmlSystemGetNVMLVersion(char *text, unsigned size) { SYSTEM; snprintf(text, size, "13.%s", state.driver); return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { SYSTEM; *version = state.cuda; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { SYSTEM; *count = (unsigned)state.devices; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    void *handle = (void *)((size_t)index + 1);
    DEVICE;
    *out = handle;
    return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned size) { DEVICE; snprintf(text, size, "%s", d->name); return SUCCESS; }
int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) { DEVICE; snprintf(text, size, "%s", d->uuid); return SUCCESS; }
int nvmlDeviceGetMinorNumber(void *handle, unsigned *n) { DEVICE; SUPPORTED(d->minor >= 0); *n = (unsigned)d->minor; return SUCCESS; }

int nvmlDeviceGetMemoryInfo(void *handle, Memory *m) {
    DEVICE;
    *m = (Memory){d->total, d->total - d->used - d->reserved, d->used + d->reserved};
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, MemoryV2 *m) {
    DEVICE;
    *m = (MemoryV2){m->version, d->total, d->reserved, d->total - d->used - d->reserved, d->used};
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *handle, Utilisation *u) {
    DEVICE;
    SUPPORTED(d->utilisation >= 0);
    *u = (Utilisation){(unsigned)d->utilisation, 0};
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) {
    (void)sensor;
    DEVICE;
    SUPPORTED(d->temperature >= 0);
    *celsius = (unsigned)d->temperature;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *mw) { DEVICE; SUPPORTED(d->power >= 0); *mw = (unsigned)d->power; return SUCCESS; }

int nvmlDeviceGetPciInfo_v3(void *handle, Pci *pci) {
    DEVICE;
    SUPPORTED(d->pci[0]);
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%.31s", d->pci);
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    DEVICE;
    SUPPORTED(d->mig >= 0);
    *current = *pending = (unsigned)d->mig;
    return SUCCESS;
}

int nvmlDeviceGetMemoryAffinity(void *handle, unsigned size, unsigned long *set, unsigned scope) {
    (void)scope;
    DEVICE;
    SUPPORTED(d->numa >= 0 && (unsigned)d->numa < 64 * size);
    memset(set, 0, size * sizeof *set);
    set[d->numa / 64] = 1ul << (d->numa % 64);
    return SUCCESS;
}

int nvmlDeviceGetFieldValues(void *handle, int count, FieldValue *values) {
    DEVICE;
    for (int i = 0; i < count; i++) {
        values[i].code = values[i].field == 230 && d->recovery >= 0 ? SUCCESS : NOT_SUPPORTED;
        values[i].value.u = (unsigned)d->recovery;
    }
    return SUCCESS;
}

static int list(const Device *d, char kind, unsigned *count, ProcessInfo *out) {
    unsigned found = 0, room = *count;
    for (int i = 0; i < d->processes; i++) {
        if (d->process[i].kind != kind) continue;
        if (found < room) out[found] = (ProcessInfo){d->process[i].pid, d->process[i].used, ~0u, ~0u};
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, ProcessInfo *out) { DEVICE; return list(d, 'c', count, out); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *count, ProcessInfo *out) { DEVICE; return list(d, 'm', count, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, ProcessInfo *out) { DEVICE; return list(d, 'g', count, out); }
