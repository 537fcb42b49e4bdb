// compile_kernels (FILE.spv X,Y,Z)...: hands SPIR-V to OpenCL's device and
// launches its kernel once with a group of so many threads, as the driver
// compiles a kernel where it is launched. One process for all files: the first
// takes seconds, in which Mesa reads libclc.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                               \
  do {                                            \
    cl_int status = (call);                       \
    if (status) {                                 \
      fprintf(stderr, "%s: %d\n", #call, status); \
      return;                                     \
    }                                             \
  } while (0)

static cl_device_id device;
static cl_context context;
static cl_command_queue queue;
static cl_mem buffer;

static void set_arguments(cl_kernel kernel) {
  cl_uint count = 0;
  clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL);
  for (cl_uint i = 0; i < count; ++i) {
    // Arrays and references are buffers; a pointer to local memory has a size
    // only.
    if (clSetKernelArg(kernel, i, sizeof buffer, &buffer)) {
      clSetKernelArg(kernel, i, 1024, NULL);
    }
  }
}

static void compile(const char* path, const char* group) {
  static char code[1 << 24], log[1 << 16];
  FILE* file = fopen(path, "rb");
  if (!file) {
    perror(path);
    return;
  }
  size_t size = fread(code, 1, sizeof code, file);
  fclose(file);
  cl_int status;
  cl_program program = clCreateProgramWithIL(context, code, size, &status);
  CHECK(status);
  status = clBuildProgram(program, 1, &device, "", NULL, NULL);
  if (status) {
    clGetProgramBuildInfo(
        program, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
    fprintf(stderr, "%s\n", log);
  }
  CHECK(status);
  cl_kernel kernel;
  CHECK(clCreateKernelsInProgram(program, 1, &kernel, NULL));
  cl_ulong local = 0;
  CHECK(clGetKernelWorkGroupInfo(
      kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local, NULL));
  fprintf(stderr, "threadgroup bytes: %llu\n", (unsigned long long)local);
  set_arguments(kernel);
  size_t threads[3] = {1, 1, 1};
  sscanf(group, "%zu,%zu,%zu", &threads[0], &threads[1], &threads[2]);
  CHECK(clEnqueueNDRangeKernel(
      queue, kernel, 3, NULL, threads, threads, 0, NULL, NULL));
  CHECK(clFinish(queue));
  clReleaseKernel(kernel);
  clReleaseProgram(program);
}

int main(int count, char** arguments) {
  cl_platform_id platform;
  if (clGetPlatformIDs(1, &platform, NULL) ||
      clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL)) {
    fprintf(stderr, "Mesa finds no GPU\n");
    return 1;
  }
  context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
  queue = clCreateCommandQueueWithProperties(context, device, NULL, NULL);
  buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 1 << 20, NULL, NULL);
  for (int i = 1; i + 1 < count; i += 2) {
    // Mesa prints statistics to one stream and listings to the other.
    printf("==== %s\n", arguments[i]);
    fprintf(stderr, "==== %s\n", arguments[i]);
    fflush(stdout);
    compile(arguments[i], arguments[i + 1]);
    fflush(stdout);
  }
  fflush(NULL);
  _Exit(0); // the driver would wait for its GPU
}
