// Copyright © 2026 mlx_norms contributors

#pragma once

using IOSurfaceRef = struct __IOSurface*;
