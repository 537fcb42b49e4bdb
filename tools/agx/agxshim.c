// An Apple GPU that is not there: preloaded, it has Mesa's asahi driver start
// and compile. Nothing runs: the driver's submissions end at once. It stands in
// for libdrm, by the kernel's interface <drm/asahi_drm.h> alone.
//
// AGX_CHIP    g13g (M1) or g14g (M2)
// AGX_MEMORY  a file that it may make: the driver maps it as the GPU's memory
// AGX_ROOT    the packages' folder, as Mesa looks for libclc at an absolute
// path
#define _GNU_SOURCE
#include <dlfcn.h>
#include <drm/asahi_drm.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xf86drm.h>

#define NODES "/dev/dri/renderD"
#define LIBCLC "/usr/lib/clc/"

static const char* variable(const char* name) {
  const char* value = getenv(name);
  if (!value) {
    fprintf(stderr, "agxshim: %s is not set\n", name);
    abort();
  }
  return value;
}

// A sparse file: only pages that the driver writes take room.
static const char* memory(void) {
  static int made;
  const char* path = variable("AGX_MEMORY");
  if (!made) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ftruncate(file, 1ll << 36)) {
      perror("agxshim");
      abort();
    }
    close(file);
    made = 1;
  }
  return path;
}

int open64(const char* path, int flags, ...) {
  int (*real)(const char*, int, ...) = dlsym(RTLD_NEXT, "open64");
  va_list more;
  va_start(more, flags);
  int mode = va_arg(more, int);
  va_end(more);
  if (!strcmp(path, NODES "128")) {
    return real(memory(), flags, mode);
  }
  if (!strncmp(path, NODES, strlen(NODES))) {
    errno = ENOENT;
    return -1;
  }
  if (!strncmp(path, LIBCLC, strlen(LIBCLC))) {
    char there[4096];
    snprintf(there, sizeof there, "%s%s", variable("AGX_ROOT"), path);
    return real(there, flags, mode);
  }
  return real(path, flags, mode);
}

// One device, on the bus that Apple's GPUs are on.
static drmDevicePtr device(void) {
  struct {
    drmDevice device;
    char* nodes[DRM_NODE_MAX];
    drmPlatformBusInfo bus;
    drmPlatformDeviceInfo info;
    char* compatible[2];
  }* made = calloc(1, sizeof *made);
  made->nodes[DRM_NODE_RENDER] = (char*)memory();
  made->compatible[0] = "apple,agx-g13g";
  made->info.compatible = made->compatible;
  strcpy(made->bus.fullname, "/soc/gpu");
  made->device.nodes = made->nodes;
  made->device.available_nodes = 1 << DRM_NODE_RENDER;
  made->device.bustype = DRM_BUS_PLATFORM;
  made->device.businfo.platform = &made->bus;
  made->device.deviceinfo.platform = &made->info;
  return &made->device;
}

int drmGetDevices2(uint32_t flags, drmDevicePtr devices[], int most) {
  if (devices && most > 0) {
    devices[0] = device();
  }
  return 1;
}

int drmGetDevice2(int file, uint32_t flags, drmDevicePtr* of) {
  *of = device();
  return 0;
}

int drmGetDeviceFromDevId(dev_t id, uint32_t flags, drmDevicePtr* of) {
  *of = device();
  return 0;
}

void drmFreeDevice(drmDevicePtr* of) {
  free(*of);
  *of = NULL;
}

void drmFreeDevices(drmDevicePtr devices[], int count) {
  for (int i = 0; i < count; ++i) {
    drmFreeDevice(&devices[i]);
  }
}

int drmDevicesEqual(drmDevicePtr a, drmDevicePtr b) {
  return 1;
}

int drmGetNodeTypeFromFd(int file) {
  return DRM_NODE_RENDER;
}

char* drmGetRenderDeviceNameFromFd(int file) {
  return strdup(NODES "128");
}

drmVersionPtr drmGetVersion(int file) {
  drmVersionPtr version = calloc(1, sizeof *version);
  version->version_major = 1;
  version->name = strdup("asahi"); // by which Mesa chooses the driver
  version->name_len = strlen(version->name);
  version->date = strdup("0");
  version->desc = strdup("");
  return version;
}

void drmFreeVersion(drmVersionPtr version) {
  free(version->name);
  free(version->date);
  free(version->desc);
  free(version);
}

int drmGetCap(int file, uint64_t capability, uint64_t* value) {
  *value = 1;
  return 0;
}

// Sync objects are signaled as soon as they are made.
int drmSyncobjCreate(int file, uint32_t flags, uint32_t* made) {
  static uint32_t last;
  *made = ++last;
  return 0;
}

int drmSyncobjQuery2(
    int file,
    uint32_t* of,
    uint64_t* points,
    uint32_t count,
    uint32_t flags) {
  for (uint32_t i = 0; i < count; ++i) {
    points[i] = UINT64_MAX / 2;
  }
  return 0;
}

int drmSyncobjExportSyncFile(int file, uint32_t of, int* made) {
  *made = open("/dev/null", O_RDONLY);
  return 0;
}

#define DOES_NOTHING(name, ...) \
  int name(__VA_ARGS__) {       \
    return 0;                   \
  }
DOES_NOTHING(drmSyncobjDestroy, int f, uint32_t of)
DOES_NOTHING(
    drmSyncobjWait,
    int f,
    uint32_t* of,
    unsigned n,
    int64_t t,
    unsigned s,
    uint32_t* first)
DOES_NOTHING(
    drmSyncobjTimelineWait,
    int f,
    uint32_t* of,
    uint64_t* points,
    unsigned n,
    int64_t t,
    unsigned s,
    uint32_t* first)
DOES_NOTHING(drmSyncobjSignal, int f, const uint32_t* of, uint32_t n)
DOES_NOTHING(drmSyncobjReset, int f, const uint32_t* of, uint32_t n)
DOES_NOTHING(
    drmSyncobjTimelineSignal,
    int f,
    const uint32_t* of,
    uint64_t* points,
    uint32_t n)
DOES_NOTHING(
    drmSyncobjTransfer,
    int f,
    uint32_t to,
    uint64_t to_point,
    uint32_t from,
    uint64_t from_point,
    uint32_t s)
DOES_NOTHING(drmSyncobjImportSyncFile, int f, uint32_t of, int file)
DOES_NOTHING(drmCloseBufferHandle, int f, uint32_t of)

// What the driver asks of the GPU. The compiler goes by its generation; memory
// and cores are an M1's or an M2's.
static void answer(struct drm_asahi_get_params* asked) {
  const char* chip = variable("AGX_CHIP");
  int m2 = !strcmp(chip, "g14g");
  struct drm_asahi_params_global answers = {
      .gpu_generation = m2 ? 14 : 13,
      .gpu_variant = 'G',
      .gpu_revision = m2 ? 0x10 : 0x11,
      .chip_id = m2 ? 0x8112 : 0x8103,
      .num_dies = 1,
      .num_clusters_total = 1,
      .num_cores_per_cluster = m2 ? 10 : 8,
      .core_masks = {m2 ? 0x3ff : 0xff},
      .max_frequency_khz = 1278000,
      .vm_start = 0x4000,
      .vm_end = 1ull << 39,
      .vm_kernel_min_size = 0x20000000,
      .max_commands_per_submission = 64,
      .max_attachments = 16,
      .command_timestamp_frequency_hz = 1000000000,
      .features = DRM_ASAHI_FEATURE_SOFT_FAULTS,
  };
  size_t size = asked->size < sizeof answers ? asked->size : sizeof answers;
  memcpy((void*)(uintptr_t)asked->pointer, &answers, size);
  asked->size = size;
}

// Buffers lie one behind the other in the file.
static struct {
  uint64_t offset;
} buffers[1 << 20];

static void create(struct drm_asahi_gem_create* buffer) {
  static uint32_t last;
  static uint64_t end = 1 << 16;
  if (++last == sizeof buffers / sizeof *buffers) {
    fprintf(stderr, "agxshim: too many buffers\n");
    abort();
  }
  buffer->handle = last;
  buffers[last].offset = end;
  end += (buffer->size + 0xffff) & ~0xffffull;
}

int drmIoctl(int file, unsigned long request, void* argument) {
  unsigned number = request & 0xff;
  if (number < DRM_COMMAND_BASE || number >= DRM_COMMAND_END) {
    return 0;
  }
  switch (number - DRM_COMMAND_BASE) {
    case DRM_ASAHI_GET_PARAMS:
      answer(argument);
      break;
    case DRM_ASAHI_VM_CREATE:
      ((struct drm_asahi_vm_create*)argument)->vm_id = 1;
      break;
    case DRM_ASAHI_GEM_CREATE:
      create(argument);
      break;
    case DRM_ASAHI_GEM_MMAP_OFFSET: {
      struct drm_asahi_gem_mmap_offset* map = argument;
      map->offset = buffers[map->handle].offset;
      break;
    }
    case DRM_ASAHI_GEM_BIND_OBJECT:
      ((struct drm_asahi_gem_bind_object*)argument)->object_handle = 1;
      break;
    case DRM_ASAHI_QUEUE_CREATE:
      ((struct drm_asahi_queue_create*)argument)->queue_id = 1;
      break;
    case DRM_ASAHI_GET_TIME:
      ((struct drm_asahi_get_time*)argument)->gpu_timestamp = 0;
      break;
  }
  return 0;
}
