// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/channels/geometry.h"

#include <algorithm>
#include <bit>

#include "csrc/gpu/integers.h"

namespace mlx_norms {

namespace {

constexpr int kVectorBytes = 16;
constexpr int kSimdSize = 32;
constexpr int kMaxSimds = 16;
constexpr int kEnoughVectors = 5; // for a thread's loads to overlap
constexpr int kLoopedVectors = 4, kFewLoopedVectors = 2;
// A sample of fewer threadgroups is cut finer, down to so many bytes: small
// images are a long loop of one threadgroup else.
constexpr int kFewThreadgroups = 4, kMinBytes = 64;

} // namespace

ChannelGeometry::ChannelGeometry(
    int channels,
    int64_t inner,
    int item_size,
    int max_vectors,
    bool few_registers)
    : width(few_registers ? 4 : kVectorBytes / item_size),
      simds(1),
      looped(false) {
  if (inner % width != 0) {
    width = inner % 4 == 0 ? 4 : 1;
  }
  // 128 bytes that adjoin or, rather than to read a column twice, 32 or more.
  int max_lanes = width == 1 ? 32 : 8;
  int min_lanes = width == 1 ? 8 : 4;
  auto vectors_of_channel =
      static_cast<uint64_t>(std::max<int64_t>(inner / width, 1));
  lanes = static_cast<int>(
      std::min<uint64_t>(max_lanes, std::bit_ceil(vectors_of_channel)));

  auto channel_lanes = [&] { return simds * kSimdSize / lanes; };
  auto needed = [&] { return ceil_div(channels, channel_lanes()); };
  int enough = std::min(kEnoughVectors, max_vectors);
  auto coalesced = lanes;
  while (simds < kMaxSimds && needed() > enough) {
    simds *= 2;
  }
  while (needed() > enough && lanes > min_lanes) {
    lanes /= 2;
  }
  // Each thread has a channel.
  while (channel_lanes() > channels && lanes < kSimdSize) {
    simds > 1 ? simds /= 2 : lanes *= 2;
  }
  looped = needed() > max_vectors;
  if (looped) {
    lanes = coalesced;
    while (lanes * width * item_size > kMinBytes &&
           inner < int64_t{kFewThreadgroups} * width * lanes) {
      lanes /= 2;
    }
  }
  int of_loop = few_registers ? kFewLoopedVectors : kLoopedVectors;
  count = looped ? of_loop : needed();
  full = looped ? 0 : channels / channel_lanes();
  held = looped ? 0 : count * std::min(width, 4);
  whole = inner % (int64_t(width) * lanes) == 0;
  vectors = static_cast<int>(std::bit_ceil(static_cast<unsigned>(count)));
}

int places_like(int64_t inner) {
  constexpr int kPeriod = 64, kMany = 256;
  return inner <= kMany ? inner : kMany + inner % kPeriod;
}

} // namespace mlx_norms
