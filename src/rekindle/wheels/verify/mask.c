/* Preloaded in front of libcudart: lets a program believe that its card is an older one, so that the branches it takes
 * by the card's properties are those it would take there. The values come from the environment as `name=value` words
 * in REKINDLE_MASK; what happened is counted into the file REKINDLE_MASK_LOG.
 *
 * NVRTC is asked for the older card's machine code by such a program, which the real card cannot load: the code is
 * compiled for it all the same (that it compiles is part of the proof), and the PTX that NVRTC made on the way is
 * handed out in its place.
 *
 * cudaDeviceProp as in CUDA 10.0 to 12.9; it is only changed where the capability is found at the place assumed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct properties {
  char name[256];
  char uuid[16], luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
  int deviceOverlap, multiProcessorCount;
};

/* Where CUDA 10.0 to 12.9 keep the others that matter here, and the attribute that says the same. */
static const struct {
  const char *name;
  size_t offset, width;
  int attribute;
} others[] = {{"shared_per_multiprocessor", 640, sizeof(size_t), 81},
              {"registers_per_multiprocessor", 648, sizeof(int), 82},
              {"shared_per_block", 696, sizeof(size_t), 97}};

static long wanted(const char *name, long otherwise) {
  const char *at = getenv("REKINDLE_MASK");
  size_t length = strlen(name);
  while (at && *at) {
    while (*at == ' ') at++;
    if (!strncmp(at, name, length) && at[length] == '=') return strtol(at + length + 1, NULL, 10);
    at = strchr(at, ' ');
  }
  return otherwise;
}

static void note(const char *what) {
  const char *path = getenv("REKINDLE_MASK_LOG");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  fprintf(file, "%s\n", what);
  fclose(file);
}

typedef void *(*look_up)(void *, const char *);

static look_up true_dlsym(void) {
  static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17", NULL};
  static look_up found;
  for (int number = 0; versions[number] && !found; number++) found = (look_up)dlvsym(RTLD_NEXT, "dlsym", versions[number]);
  return found;
}

static void *next(const char *name) {
  look_up real = true_dlsym();
  void *found = real ? real(RTLD_NEXT, name) : NULL;
  if (!found) {
    /* libnvrtc and libcudart are often loaded late and without RTLD_GLOBAL */
    static const char *const libraries[] = {"libcudart.so.11.0", "libcudart.so.12", "libcudart.so.10.2", "libnvrtc.so.11.2",
                                            "libnvrtc.so.12", NULL};
    for (int number = 0; libraries[number] && !found; number++) {
      void *library = dlopen(libraries[number], RTLD_LAZY | RTLD_NOLOAD);
      if (library && real) found = real(library, name);
    }
  }
  if (!found) note("missing entry point");
  return found;
}

typedef int (*get_properties)(void *, int);
typedef int (*get_attribute)(int *, int, int);

static int masked_properties(const char *name, struct properties *out, int device) {
  static int told;
  get_properties real = (get_properties)next(name);
  get_attribute attribute = (get_attribute)next("cudaDeviceGetAttribute");
  int major = -1, minor = -1, code;
  if (!real || !attribute) return 999;
  code = real(out, device);
  if (code) return code;
  attribute(&major, 75, device);
  attribute(&minor, 76, device);
  if (out->major != major || out->minor != minor) {
    note("unknown layout of cudaDeviceProp");
    return code;
  }
  if (!told++) note("properties masked");
  out->major = (int)wanted("major", major);
  out->minor = (int)wanted("minor", minor);
  out->multiProcessorCount = (int)wanted("multiprocessors", out->multiProcessorCount);
  out->sharedMemPerBlock = (size_t)wanted("shared_per_block", (long)out->sharedMemPerBlock);
  out->regsPerBlock = (int)wanted("registers_per_block", out->regsPerBlock);
  for (size_t number = 0; number < sizeof others / sizeof *others; number++) {
    char *at = (char *)out + others[number].offset;
    int real_value = 0, there = 0;
    memcpy(&there, at, sizeof there);
    if (attribute(&real_value, others[number].attribute, device) || there != real_value) {
      note("unknown layout of cudaDeviceProp");
      continue;
    }
    size_t value = (size_t)wanted(others[number].name, real_value);
    memcpy(at, &value, others[number].width);
  }
  return code;
}

int cudaGetDeviceProperties(struct properties *out, int device) {
  return masked_properties("cudaGetDeviceProperties", out, device);
}

int cudaGetDeviceProperties_v2(struct properties *out, int device) {
  return masked_properties("cudaGetDeviceProperties_v2", out, device);
}

int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  get_attribute real = (get_attribute)next("cudaDeviceGetAttribute");
  int code = real ? real(value, attribute, device) : 999;
  if (code) return code;
  switch (attribute) {
    case 75: *value = (int)wanted("major", *value); break;
    case 76: *value = (int)wanted("minor", *value); break;
    case 16: *value = (int)wanted("multiprocessors", *value); break;
    case 8: *value = (int)wanted("shared_per_block", *value); break;
    case 97: *value = (int)wanted("shared_per_block", *value); break;
    case 81: *value = (int)wanted("shared_per_multiprocessor", *value); break;
    case 12: *value = (int)wanted("registers_per_block", *value); break;
    case 82: *value = (int)wanted("registers_per_multiprocessor", *value); break;
    case 95: *value = wanted("major", 9) < 6 ? 0 : *value; break; /* cooperative launch came with Pascal */
  }
  return code;
}

typedef int (*compile_program)(void *, int, const char *const *);
typedef int (*get_size)(void *, size_t *);
typedef int (*get_text)(void *, char *);

int nvrtcCompileProgram(void *program, int count, const char *const *options) {
  compile_program real = (compile_program)next("nvrtcCompileProgram");
  int code = real ? real(program, count, options) : 999;
  note(code ? "nvrtc failed" : "nvrtc compiled");
  return code;
}

/* The machine code is there as well, and is never what is wanted here: only the older card could load it. */
int nvrtcGetCUBINSize(void *program, size_t *size) {
  get_size ptx = (get_size)next("nvrtcGetPTXSize");
  return ptx ? ptx(program, size) : 999;
}

int nvrtcGetCUBIN(void *program, char *out) {
  get_text ptx = (get_text)next("nvrtcGetPTX");
  return ptx ? ptx(program, out) : 999;
}

/* PyTorch loads libnvrtc itself and asks it for each function by name, past everything that is preloaded. */
static void *instead(const char *name) {
  if (!strcmp(name, "nvrtcCompileProgram")) return (void *)nvrtcCompileProgram;
  if (!strcmp(name, "nvrtcGetCUBINSize")) return (void *)nvrtcGetCUBINSize;
  if (!strcmp(name, "nvrtcGetCUBIN")) return (void *)nvrtcGetCUBIN;
  return NULL;
}

/* The last call is a jump: RTLD_NEXT goes by the address that dlsym returns to. */
__attribute__((optimize("O2"))) void *dlsym(void *handle, const char *name) {
  look_up real = true_dlsym();
  void *ours = name ? instead(name) : NULL;
  if (!real) return NULL;
  if (ours && real(handle, name)) return ours;
  return real(handle, name);
}
