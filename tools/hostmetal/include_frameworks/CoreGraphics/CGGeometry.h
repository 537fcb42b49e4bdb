// Copyright © 2026 mlx_norms contributors

#pragma once

using CGFloat = double;
struct CGSize {
  CGFloat width;
  CGFloat height;
};
