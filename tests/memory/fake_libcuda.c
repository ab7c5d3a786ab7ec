/* A libcuda.so.1 for tests/memory/test_driver.py: it prints how it is called. Stream 0x99 has failed; others need two looks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

__attribute__((constructor)) static void unbuffered(void) { setvbuf(stdout, NULL, _IONBF, 0); }

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 38 ? 60 << 20 : -1; return 0; }
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

int cuModuleGetFunction(void **function, void *module, const char *name) {
    printf("get %s of %p\n", name, module);
    *function = (void *)0x20;
    return 0;
}

int cuFuncLoad(void *function) { printf("ready %p\n", function); return 0; }

int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size) {
    if (index > 2) return 1;
    *offset = 8 * index;
    *size = index == 1 ? 4 : 8;
    return 0;
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    printf("launch %p grid %u %u %u block %u %u %u shared %u stream %lx extra %d arguments %lx %x %lx\n", function, gx,
           gy, gz, bx, by, bz, shared, (unsigned long)stream, extra != 0, *(uint64_t *)arguments[0],
           *(uint32_t *)arguments[1], *(uint64_t *)arguments[2]);
    return 0;
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream) {
    printf("copy to %lx from %lx, %zu bytes, stream %lx\n", to, from, size, (unsigned long)stream);
    return 0;
}

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
