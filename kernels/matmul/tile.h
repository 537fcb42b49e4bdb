// Copyright (c) 2026 mlx_norms contributors

#pragma once

#include <metal_stdlib>

using namespace metal;

// Where a group's part of C begins.
struct TileOrigin {
  ulong matrix; // of the batch
  uint row;
  uint column;
};

// Groups follow one another along the rows of tiles, in one dimension: CUDA has
// 65535 along each other one.
inline TileOrigin
tile_origin(uint group, uint rows, uint columns, uint height, uint width) {
  uint across = (columns + width - 1) / width;
  uint down = (rows + height - 1) / height;
  uint tile = group / across;
  return TileOrigin{tile / down, tile % down * height, group % across * width};
}
