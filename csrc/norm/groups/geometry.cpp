// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/groups/geometry.h"

#include <algorithm>

#include "csrc/gpu/integers.h"

namespace mlx_norms {

namespace {

constexpr int kMaxLanes = 64;
// Small samples are one chunk: no launch merges sums.
constexpr int kFewLanes = 32;
constexpr int kMinSteps = 8, kMaxSteps = 64;
constexpr int kAtOnce = 4; // the kernels'; it divides steps
// A thread's start costs as much as some steps do, and each chunk's sums are
// merged: chunks of fewer than kWorthAStart steps are only made to have
// kFewThreadgroups of a sample, and none to have more than kChunks.
constexpr int kWorthAStart = 16;
constexpr int kFewThreadgroups = 32, kChunks = 64;

constexpr int kSector = 32; // bytes that memory is read by, at least
// CUDA's memory is faster by more: the first of these bytes of a position that
// a threadgroup can hold, if that is not too many groups.
constexpr int kPieces[] = {128, 64, kSector};
constexpr int kFewGroups = 32;
constexpr int kHeldThreads = 640;
constexpr int kEnoughThreads = 128; // where more vectors would leave fewer
constexpr int kHeldGroups = 64;
// A thread's registers of x, of which the first that leave a core enough
// threads are best; 80 where no others fit. Where a position's channels end
// within a sector, few are better than many.
constexpr int kWords[] = {64, 40, 32, 16, 8, 4, 2, 80};
constexpr int kMaxCudaWords = 80, kFewCudaWords = 32, kMetalWords = 16;
constexpr int kMaxVectors = 32;
// A thread's registers beside those of x, and the fewest that do.
constexpr int kOtherWords = 40, kFewOtherWords = 22;
constexpr int kCoreWords = 1 << 16, kCoreThreads = 480;

// What a threadgroup may hold some groups of.
struct SampleSizes {
  int channels;
  int positions;
  int groups;
  bool strided;
  int item_size;
};

// The channels that threads have at one position, at least some bytes, for a
// width.
std::optional<HeldGeometry>
of_width(const SampleSizes& sample, int bytes, int width) {
  auto [channels, positions, groups, strided, item_size] = sample;
  int of_group = channels / groups;
  HeldGeometry found{positions, width, strided || of_group % width != 0};
  if (strided) {
    if (groups % width != 0) {
      return std::nullopt;
    }
    int vectors = groups / width;
    found.adjoining = std::min(ceil_div(bytes, width * item_size), vectors);
    while (vectors % found.adjoining != 0) {
      ++found.adjoining;
    }
    found.across = of_group;
    found.groups = found.adjoining * width;
  } else {
    int held = 1;
    while (held < groups &&
           (groups % held != 0 || held * of_group % width != 0 ||
            held * of_group * item_size < bytes)) {
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

// The width of fewer groups, then that of vectors of one group. Where channels
// have groups of their own, fewer take fewer registers.
std::optional<HeldGeometry> pieces(const SampleSizes& sample, int bytes) {
  auto four = of_width(sample, bytes, 4);
  auto eight =
      sample.item_size == 2 ? of_width(sample, bytes, 8) : std::nullopt;
  bool wider = eight &&
      (!four || eight->groups < four->groups ||
       (eight->groups == four->groups && !eight->differ));
  return wider ? eight : four;
}

bool fill_core(int threads, int words) {
  int threadgroups =
      std::max(1, kCoreWords / (threads * (words + kOtherWords)));
  return threadgroups * threads >= kCoreThreads &&
      threads * (words + kFewOtherWords) <= kCoreWords;
}

// Chooses how many vectors a thread has; false if a core cannot hold them.
bool spread(HeldGeometry& geometry, int item_size, bool cuda) {
  int of_vector = geometry.width * item_size / 4;
  bool whole = geometry.adjoining * geometry.width * item_size % kSector == 0;
  int max = !cuda ? kMetalWords : whole ? kMaxCudaWords : kFewCudaWords;
  for (int words : kWords) {
    int vectors = words / of_vector;
    if (words > max || words % of_vector != 0 || vectors > kMaxVectors) {
      continue;
    }
    geometry.vectors = vectors;
    geometry.rows = ceil_div(geometry.positions, vectors);
    int threads = geometry.threads();
    if (threads > kHeldThreads || (cuda && !fill_core(threads, words))) {
      continue;
    }
    if (vectors == 1 || threads >= kEnoughThreads) {
      return true;
    }
  }
  return false;
}

} // namespace

SampleGeometry::SampleGeometry(int channels, int positions, int item_size)
    : channels(channels),
      positions(positions),
      width(item_size == 2 && channels % 8 == 0 ? 8 : 4) {
  int vectors = ceil_div(channels, width);
  bool is_small = positions <= kThreads / kFewLanes * kMinSteps;
  int max = is_small ? kFewLanes : kMaxLanes;
  lanes = ceil_div(vectors, ceil_div(vectors, max));
  blocks = ceil_div(vectors, lanes);
  rows = kThreads / lanes;
  int few = ceil_div(kFewThreadgroups, blocks);
  int wanted = std::max(
      ceil_div(positions, rows * kChunks),
      std::min(kWorthAStart, ceil_div(positions, rows * few)));
  steps = std::clamp(ceil_div(wanted, kAtOnce) * kAtOnce, kMinSteps, kMaxSteps);
  chunks = ceil_div(positions, chunk_size());
}

SampleGeometry SampleGeometry::without_sums(int samples, int threadgroups)
    const {
  auto finer = *this;
  int64_t of_step = int64_t{samples} * blocks * ceil_div(positions, rows);
  int64_t wanted = ceil_div<int64_t>(of_step, int64_t{threadgroups} * kAtOnce);
  finer.steps = std::min<int64_t>(steps, wanted * kAtOnce);
  finer.chunks = ceil_div(positions, finer.chunk_size());
  return finer;
}

StatisticsGeometry::StatisticsGeometry(
    const SampleGeometry& sample,
    int groups,
    bool strided) {
  int of_group = sample.channels / groups;
  auto merged = int64_t{of_group} * sample.chunks;
  // Memory reads adjoining channels, and so such groups, together.
  bool adjoin = strided || of_group == 1;
  across = !adjoin ? 1 : merged <= 1024 ? 4 : 8;
  simds = merged * across <= 64 ? 1
      : merged * across <= 256  ? 4
      : merged * across <= 4096 ? 8
                                : 16;
  blocks = ceil_div(groups, across);
}

SumsGeometry::SumsGeometry(const SampleGeometry& sample, int groups) {
  int of_group = sample.channels / groups;
  // Adjoining channels are read together, if few enough chunks are left to each
  // of their threads.
  group_is_channel = of_group == 1 && sample.chunks <= 256;
  if (group_is_channel) {
    threads = sample.chunks <= 16 ? 64 : 256;
    width = sample.chunks <= 16 ? 32 : 8;
    blocks = ceil_div(groups, width);
    return;
  }
  threads = int64_t{of_group} * sample.chunks <= 256 ? 64 : 256;
  width = 1;
  while (width < std::min(of_group, threads)) {
    width *= 2;
  }
  blocks = groups;
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
  bool cuda = backend == Backend::Cuda;
  SampleSizes sample{channels, positions, groups, strided, item_size};
  for (int bytes : kPieces) {
    if (bytes > kSector && !cuda) {
      continue;
    }
    auto found = pieces(sample, bytes);
    bool few = found && (bytes == kSector || found->groups <= kFewGroups);
    if (few && spread(*found, item_size, cuda)) {
      return found;
    }
  }
  return std::nullopt;
}

} // namespace mlx_norms
