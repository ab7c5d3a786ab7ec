/* A libcuda.so.1 for tests/memory/test_driver.py: it prints how it is called. Stream 0x99 has failed; others need two looks.
   Its kernels are "entry", of parameters of 8, 4 and 8 bytes, and "every_kind", of 4, 8, 4, 8, 8 and 20 bytes. Both declare
   1000 bytes of shared memory; a block has 232448 at most. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

__attribute__((constructor)) static void unbuffered(void) { setvbuf(stdout, NULL, _IONBF, 0); }

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 38 ? 60 << 20 : attribute == 97 ? 232448 : -1;
    return 0;
}
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) { *free_bytes = 5; *total_bytes = 9; return 0; }

int cuGetErrorName(int error, const char **text) {
    *text = error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OTHER";
    return 0;
}

int cuGetErrorString(int error, const char **text) {
    *text = "an illegal memory access was encountered";
    return 0;
}

int cuModuleLoadData(void **module, const char *image) {
    printf("load %s\n", image + 1);
    *module = (void *)0x10;
    return 0;
}

int cuLibraryLoadData(void **library, const char *code, void *a, void *b, unsigned c, void *d, void *e, unsigned f) {
    printf("load library %s\n", code + 1);
    *library = (void *)0x40;
    return 0;
}

int cuLibraryGetModule(void **module, void *library) {
    printf("module of library %p\n", library);
    *module = (void *)0x11;
    return 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    printf("get %s of %p\n", name, module);
    *function = (void *)(strcmp(name, "every_kind") ? 0x20 : 0x21);
    return 0;
}

/* "table" has 24 bytes, and a module no other variable. */
int cuModuleGetGlobal_v2(uint64_t *address, size_t *size, void *module, const char *name) {
    if (strcmp(name, "table")) return 500;
    *address = 0x5000;
    *size = 24;
    return 0;
}

int cuMemcpyHtoD_v2(uint64_t to, const unsigned char *from, size_t size) {
    printf("write to %lx", (unsigned long)to);
    for (size_t at = 0; at < size; at++) printf(" %02x", from[at]);
    printf("\n");
    return 0;
}

static int parameters(void *function, const int **sizes) {
    static const int entry[] = {8, 4, 8}, every_kind[] = {4, 8, 4, 8, 8, 20};
    *sizes = function == (void *)0x21 ? every_kind : entry;
    return function == (void *)0x21 ? 6 : 3;
}

int cuFuncGetAttribute(int *value, int attribute, void *function) {
    *value = attribute == 1 ? 1000 : attribute == 8 ? 48152 : -1;
    return 0;
}

int cuFuncSetAttribute(void *function, int attribute, int value) {
    printf("set %d of %p to %d\n", attribute, function, value);
    return 0;
}

int cuFuncLoad(void *function) { printf("ready %p\n", function); return 0; }

int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size) {
    const int *sizes;
    if (index >= (size_t)parameters(function, &sizes)) return 1;
    *offset = 8 * index;
    *size = sizes[index];
    return 0;
}

/* As many as fit into 2,048 threads. */
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared) {
    (void)function;
    (void)shared;
    *blocks = 2048 / threads;
    return 0;
}

/* Each argument as an integer, longer ones as hexadecimal bytes in order of their addresses. */
static void print_arguments(void *function, void **arguments) {
    const int *sizes;
    int count = parameters(function, &sizes);
    printf(" arguments");
    for (int index = 0; index < count; index++) {
        const unsigned char *bytes = arguments[index];
        if ((uintptr_t)bytes % (sizes[index] > 8 ? 16 : sizes[index])) printf(" misaligned");
        printf(" ");
        if (sizes[index] == 8) printf("%lx", *(uint64_t *)bytes);
        else if (sizes[index] == 4) printf("%x", *(uint32_t *)bytes);
        else for (int at = 0; at < sizes[index]; at++) printf("%02x", bytes[at]);
    }
    printf("\n");
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    printf("launch %p grid %u %u %u block %u %u %u shared %u stream %lx extra %d", function, gx, gy, gz, bx, by, bz, shared,
           (unsigned long)stream, extra != 0);
    print_arguments(function, arguments);
    return 0;
}

/* The start of CUlaunchConfig and of CUlaunchAttribute (cuda.h). */
struct attribute { int id; char pad[4]; unsigned value[16]; };
struct configuration {
    unsigned grid[3], block[3], shared;
    void *stream;
    struct attribute *attributes;
    unsigned count;
};

int cuLaunchKernelEx(const struct configuration *how, void *function, void **arguments, void **extra) {
    printf("launch %p grid %u %u %u block %u %u %u shared %u stream %lx extra %d", function, how->grid[0], how->grid[1],
           how->grid[2], how->block[0], how->block[1], how->block[2], how->shared, (unsigned long)how->stream, extra != 0);
    for (unsigned index = 0; index < how->count; index++) {
        const unsigned *value = how->attributes[index].value;
        printf(" attribute %d is %u %u %u", how->attributes[index].id, value[0], value[1], value[2]);
    }
    print_arguments(function, arguments);
    return 0;
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream) {
    printf("copy to %lx from %lx, %zu bytes, stream %lx\n", to, from, size, (unsigned long)stream);
    return 0;
}

int cuEventCreate(void **event, unsigned flags) { printf("event flags %u\n", flags); *event = (void *)0x30; return 0; }

int cuEventRecord(void *event, void *stream) {
    printf("record %p stream %lx\n", event, (unsigned long)stream);
    return stream == (void *)0x99 ? 700 : 0;
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    printf("stream %lx waits for %p, flags %u\n", (unsigned long)stream, event, flags);
    return 0;
}

int cuEventDestroy_v2(void *event) { printf("destroy %p\n", event); return 0; }

int cuStreamQuery(void *stream) {
    static int looks = 0;
    if (stream == (void *)0x99) return 700;
    if (stream == (void *)0x77) return 600;
    printf("look %lx\n", (unsigned long)stream);
    return ++looks % 2 ? 600 : 0;
}

int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
    static void *self = 0;
    char versioned[256];
    if (!self) self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    snprintf(versioned, sizeof versioned, "%s_v2", name);
    *found = dlsym(self, versioned);
    if (!*found) *found = dlsym(self, name);
    if (status) *status = 0;
    return 0;
}
