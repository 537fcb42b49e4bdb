// Copyright © 2026 mlx_norms contributors

#include "csrc/group_norm/geometry.h"

#include <algorithm>

#include "csrc/gpu/integers.h"

namespace mlx_norms {

namespace {

constexpr int kMostLanes = 64;
constexpr int kFewestSteps = 8, kMostSteps = 64;
constexpr int kAtOnce = 4; // the kernels'; it divides steps
// A thread's start costs as much as some steps do, and each chunk's sums are
// merged: chunks of fewer than kWorthAStart steps are only made to have
// kFewChunks, and none to have more than kChunks.
constexpr int kWorthAStart = 16;
constexpr int kFewChunks = 32, kChunks = 64;

constexpr int kSector = 32; // bytes that memory is read by, at least
constexpr int kHeldThreads = 640;
constexpr int kEnoughThreads = 128; // where more vectors would leave fewer
constexpr int kHeldGroups = 64;
// A thread's registers of x. Where a position's channels end within a sector,
// few are better than many.
constexpr int kCudaWords = 64, kFewCudaWords = 32, kMetalWords = 16;

// The channels that threads have at one position, for a width.
std::optional<HeldGeometry> pieces(
    int channels,
    int positions,
    int groups,
    bool strided,
    int item_size,
    int width) {
  int of_group = channels / groups;
  HeldGeometry found{positions, width, strided || of_group % width != 0};
  if (strided) {
    if (groups % width != 0) {
      return std::nullopt;
    }
    int vectors = groups / width;
    found.adjoining = std::min(ceil_div(kSector, width * item_size), vectors);
    while (vectors % found.adjoining != 0) {
      ++found.adjoining;
    }
    found.across = of_group;
    found.groups = found.adjoining * width;
  } else {
    int held = 1;
    while (held < groups &&
           (groups % held != 0 || held * of_group % width != 0 ||
            held * of_group * item_size < kSector)) {
      ++held;
    }
    if (held * of_group % width != 0) {
      return std::nullopt;
    }
    found.adjoining = held * of_group / width;
    found.across = 1;
    found.groups = held;
  }
  if (found.groups > kHeldGroups || found.lanes() > kHeldThreads) {
    return std::nullopt;
  }
  return found;
}

} // namespace

SampleGeometry::SampleGeometry(int channels, int positions, int item_size)
    : channels(channels),
      positions(positions),
      width(item_size == 2 && channels % 8 == 0 ? 8 : 4) {
  int vectors = ceil_div(channels, width);
  lanes = ceil_div(vectors, ceil_div(vectors, kMostLanes));
  blocks = ceil_div(vectors, lanes);
  rows = kThreads / lanes;
  int wanted = std::max(
      ceil_div(positions, rows * kChunks),
      std::min(kWorthAStart, ceil_div(positions, rows * kFewChunks)));
  steps =
      std::clamp(ceil_div(wanted, kAtOnce) * kAtOnce, kFewestSteps, kMostSteps);
  chunks = ceil_div(positions, chunk_size());
}

int HeldGeometry::threads() const {
  return ceil_div(lanes() * rows, 32) * 32;
}

std::optional<HeldGeometry> HeldGeometry::choose(
    int channels,
    int positions,
    int groups,
    bool strided,
    int item_size,
    Backend backend) {
  std::optional<HeldGeometry> found;
  for (int width : {8, 4}) {
    if (width * item_size <= 16) {
      auto of = pieces(channels, positions, groups, strided, item_size, width);
      if (of && (!found || of->groups < found->groups)) {
        found = of;
      }
    }
  }
  if (!found) {
    return std::nullopt;
  }
  int words = found->width * item_size / 4; // of a vector
  bool whole = found->adjoining * found->width * item_size % kSector == 0;
  int most_words = backend == Backend::Metal ? kMetalWords
      : whole                                ? kCudaWords
                                             : kFewCudaWords;
  for (int v = most_words / words; v > 0; v /= 2) {
    found->vectors = v;
    found->rows = ceil_div(positions, v);
    int threads = found->threads();
    if (threads > kHeldThreads) {
      break;
    }
    if (v == 1 || threads >= kEnoughThreads) {
      return found;
    }
  }
  return std::nullopt;
}

} // namespace mlx_norms
