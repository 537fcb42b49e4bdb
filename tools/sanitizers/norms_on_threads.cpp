// Copyright © 2026 mlx_norms contributors
//
// Several threads, as MLX's streams are, call the kernels on blocks of rows
// through the pool, and compare the bits with those of one block after another.
// With the argument "race" the blocks share their scratch: a race to report.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "csrc/cpu/isa.h"
#include "csrc/cpu/row_blocks.h"
#include "csrc/norm/cpu_kernels.h"
#include "csrc/norm/groups/cpu_samples.h"

using namespace mlx_norms::cpu;

namespace {

constexpr int64_t kRows = 2200;
constexpr int64_t kWidth = 257;
constexpr int kStreams = 3;

bool shared_scratch = false;

struct Results {
  std::vector<float> normalized, input, weight;

  bool operator==(const Results&) const = default;
};

std::vector<float> values(int64_t n, uint32_t seed) {
  std::vector<float> v(n);
  for (auto& each : v) {
    seed = seed * 1664525 + 1013904223;
    each = static_cast<float>(seed >> 8) / (1 << 23) - 1;
  }
  return v;
}

// for_blocks(blocks, f) calls f(block, begin, end).
template <typename F>
Results norm_and_gradients(uint32_t seed, F for_blocks) {
  auto pitch = padded(kWidth);
  auto x = values(kRows * kWidth, seed);
  auto cotangent = values(kRows * kWidth, seed + 1);
  auto weight = values(pitch, seed + 2);
  Results results{
      std::vector<float>(kRows * kWidth),
      std::vector<float>(kRows * kWidth),
      std::vector<float>(pitch)};

  auto by_threads = blocks_by_threads(kRows, kWidth);
  auto of_block = scratch_rows(kWidth) * pitch;
  std::vector<float> scratch(by_threads.count() * of_block);
  for_blocks(by_threads, [&](int block, int64_t begin, int64_t end) {
    NormJob job{};
    job.first_row = begin;
    job.rows = end - begin;
    job.width = kWidth;
    job.in[mlx_norms::kX] = {&x[begin * kWidth], Float::f32, kWidth, 1};
    job.normalized = {&results.normalized[begin * kWidth], Float::f32};
    job.weight = {weight.data(), 1};
    job.center = true;
    job.root.eps = 1e-5f;
    job.scratch = &scratch[shared_scratch ? 0 : block * of_block];
    kernels().norm(job);
  });

  auto of_sums = blocks_of_sums(kRows, kWidth, 1);
  std::vector<float> sums((of_sums.count() + 1) * 3 * pitch);
  auto sum = [&](int block) {
    auto* begin = &sums[block * 3 * pitch];
    return CompensatedSum{begin, begin + pitch, begin + 2 * pitch};
  };
  for_blocks(of_sums, [&](int block, int64_t begin, int64_t end) {
    std::vector<float> rows(kVJPScratch * of_block);
    NormVJPJob job{};
    job.first_row = begin;
    job.rows = end - begin;
    job.width = kWidth;
    job.in[mlx_norms::kX] = {&x[begin * kWidth], Float::f32, kWidth, 1};
    job.in[mlx_norms::kCotangent] = {
        &cotangent[begin * kWidth], Float::f32, kWidth, 1};
    job.out[mlx_norms::kX] = {&results.input[begin * kWidth], Float::f32};
    job.weight = {weight.data(), 1};
    job.weight_gradient = sum(block);
    job.center = true;
    job.root.eps = 1e-5f;
    job.scratch = rows.data();
    kernels().norm_vjp(job);
  });
  auto total = sum(of_sums.count());
  for (int block = 0; block < of_sums.count(); ++block) {
    kernels().add_sums(total, sum(block), pitch);
  }
  std::memcpy(results.weight.data(), total.sum, pitch * sizeof(float));
  return results;
}

constexpr int kVectorRows = 5;

// Normalizes x to y.
struct GroupNorms {
  GroupGeometry of;
  const float* x;
  float* y;

  void run(const Samples& samples) const {
    ChannelRows vectors(of, samples.count, kVectorRows);
    ChannelRows partials(of, samples.count * of.chunks, 3);
    samples.for_chunks([&](int64_t, int64_t chunk, auto begin, auto end) {
      add_up(begin, end, partials.at(chunk));
    });
    samples.for_each(
        [&](int64_t i) { merge(partials.at(i * of.chunks), vectors.at(i)); });
    samples.for_chunks_again([&](int64_t i, int64_t, auto begin, auto end) {
      apply(begin, end, vectors.at(i));
    });
  }

  void add_up(int64_t row, int64_t end, float* partials) const {
    kernels().lane_statistics(
        {of.channels,
         end - row,
         0,
         {x + row * of.channels, Float::f32, of.channels, 1},
         of.row(partials, 0),
         of.row(partials, 1),
         {of.row(partials, 2)}});
  }
  void merge(const float* partials, float* vectors) const {
    std::vector<float> mean(of.groups), rest(of.groups), variance(of.groups);
    merge_statistics(of, partials, mean.data(), rest.data(), variance.data());
    of.for_each_channel([&](int64_t c, int64_t group) {
      vectors[c] = mean[group];
      of.row(vectors, 2)[c] = variance[group];
    });
    std::fill_n(of.row(vectors, 1), of.pitch, 1.0f);
    std::fill_n(of.row(vectors, 3), of.pitch, 1.0f);
    std::fill_n(of.row(vectors, 4), of.pitch, 0.0f);
  }
  void apply(int64_t row, int64_t end, const float* vectors) const {
    kernels().lane_norm(
        {of.channels,
         end - row,
         {x + row * of.channels, Float::f32, of.channels, 1},
         {y + row * of.channels, Float::f32},
         of.channels,
         {of.row(vectors, 0), of.row(vectors, 1), of.row(vectors, 2)},
         of.row(vectors, 3),
         of.row(vectors, 4),
         mlx_norms::Activation::None});
  }
};

// Of two samples, which threads share, and of many; adjoining groups of four.
std::vector<float> group_norm(uint32_t seed, int64_t samples, bool on_threads) {
  constexpr int64_t kChannels = 36;
  GroupGeometry of(
      samples, 24000 / samples, kChannels, kChannels / 4, /* strided= */ false);
  auto x = values(24000 * kChannels, seed);
  std::vector<float> y(x.size());
  GroupNorms norms{of, x.data(), y.data()};
  auto run = [&](const Samples& some) { norms.run(some); };
  if (on_threads) {
    for_samples(of, run);
  }
  for (int64_t i = 0; !on_threads && i < samples; ++i) {
    run({of, i, 1, 1});
  }
  return y;
}

bool same_on_threads() {
  std::vector<char> same(kStreams);
  std::vector<std::thread> streams;
  for (int i = 0; i < kStreams; ++i) {
    streams.emplace_back([&same, i] {
      auto on_threads = norm_and_gradients(
          i, [](const RowBlocks& blocks, auto f) { blocks.for_each(f); });
      auto in_turn = norm_and_gradients(i, [](const RowBlocks& blocks, auto f) {
        for (int block = 0; block < blocks.count(); ++block) {
          auto [begin, end] = blocks.rows(block);
          f(block, begin, end);
        }
      });
      same[i] = on_threads == in_turn;
      for (int64_t samples : {2, 80}) {
        same[i] &=
            group_norm(i, samples, true) == group_norm(i, samples, false);
      }
    });
  }
  for (auto& stream : streams) {
    stream.join();
  }
  return std::vector<char>(kStreams, 1) == same;
}

bool throws_what_a_call_threw() {
  try {
    parallel_for(100, [](int i) {
      if (i == 50) {
        throw std::string("fifty");
      }
    });
  } catch (const std::string& text) {
    return text == "fifty";
  }
  return false;
}

} // namespace

int main(int argc, char** argv) {
  shared_scratch = argc > 1 && std::string(argv[1]) == "race";
  bool right =
      (thread_count() == 1 || blocks_by_threads(kRows, kWidth).count() > 1) &&
      blocks_of_sums(kRows, kWidth, 1).count() > 1;
  for (int i = 0; i < 5; ++i) {
    right &= same_on_threads() || shared_scratch;
  }
  right &= throws_what_a_call_threw();
  std::printf("%s on %d threads\n", isa().c_str(), thread_count());
  return right ? 0 : 1;
}
