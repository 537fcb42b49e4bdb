// Copyright (c) 2026 mlx_norms contributors

#pragma once

#include <metal_stdlib>

using namespace metal;

// Where a threadgroup's tile of C begins.
struct TileOrigin {
  ulong matrix; // index in the batch
  uint row;
  uint column;
};

// Threadgroups are numbered along the rows of tiles, in one dimension: CUDA
// limits the other two dimensions of a grid to 65535.
inline TileOrigin
tile_origin(uint group, uint rows, uint columns, uint height, uint width) {
  uint across = (columns + width - 1) / width;
  uint down = (rows + height - 1) / height;
  uint tile = group / across;
  return TileOrigin{tile / down, tile % down * height, group % across * width};
}
