// Copyright © 2026 mlx_norms contributors

// metal-cpp's selectors and classes, which libmlx.dylib defines on a Mac, and
// what its functions name of Metal and of the runtime of blocks. A plugin has
// no use for those: its device is MLX's.

#include "handlers.h"

#define NS_PRIVATE_IMPLEMENTATION
#define MTL_PRIVATE_IMPLEMENTATION
#include <Metal/Metal.hpp>

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED MTL::Device* MTLCreateSystemDefaultDevice() {
  hostmetal::refuse("the software device is MLX's alone");
}

EXPORTED NS::Array* MTLCopyAllDevicesWithObserver(
    NS::Object**,
    MTL::DeviceNotificationHandlerBlock) {
  hostmetal::refuse("the software device is MLX's alone");
}

EXPORTED void MTLRemoveDeviceObserver(const NS::Object*) {
  hostmetal::refuse("the software device is MLX's alone");
}

EXPORTED void* _NSConcreteStackBlock[32];
void* _NSConcreteStackBlock[32];

EXPORTED void _Block_object_assign(void*, const void*, int) {
  hostmetal::refuse("the software device takes no blocks");
}

EXPORTED void _Block_object_dispose(const void*, int) {}
