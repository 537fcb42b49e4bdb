// Copyright © 2026 mlx_norms contributors
// The Metal standard library, put before each rewritten source.
#pragma once

#include "types.h"

#include "vector.h"

#include "traits.h"

#include "relational.h"

#include "math.h"

#include "fast.h"

#include "integer.h"

#include "common.h"

#include "matrix.h"

#include "simdgroup.h"

#include "simdgroup_matrix.h"

#include "atomic.h"

#include "launch.h"

#include "names.h"

using metal::vec;

// All that the list says is known is there.
namespace msl::known {
#define MSL_USE(name) using metal::name;
MSL_KNOWN(MSL_USE)
#undef MSL_USE
} // namespace msl::known

// What C++ has and Metal's language lacks, in the source that follows.
#pragma GCC \
    poison double goto virtual thread_local register new typeid dynamic_cast try catch throw std
