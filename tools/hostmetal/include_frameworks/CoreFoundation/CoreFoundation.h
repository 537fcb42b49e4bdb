// Copyright © 2026 mlx_norms contributors

#pragma once

#include <math.h> // metal-cpp expects INFINITY from here

using CFStringRef = const struct __CFString*;
using CFTimeInterval = double;

extern "C" CFStringRef __CFStringMakeConstantString(const char*);
