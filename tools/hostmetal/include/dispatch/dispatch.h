// Copyright © 2026 mlx_norms contributors

#pragma once

using dispatch_data_t = struct dispatch_data_s*;
using dispatch_queue_t = struct dispatch_queue_s*;
