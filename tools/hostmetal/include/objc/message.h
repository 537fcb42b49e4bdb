// Copyright © 2026 mlx_norms contributors

// What metal-cpp names of <objc/message.h>: each call casts these to the
// signature of its message.
#pragma once

#include <objc/runtime.h>

extern "C" {
void objc_msgSend(void);
void objc_msgSend_stret(void);
void objc_msgSend_fpret(void);
}
