// Copyright © 2026 mlx_norms contributors

#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launch.h"

namespace hostmetal {

// The order in which a stream's command buffers run. Metal runs them
// concurrently but for fences: MLX's encoder, when it ends, waits for those
// that wrote what was bound. Temporaries are left out of what it waits for and
// signals. It may end after any eval_gpu, and here it always does.
class Fences {
 public:
  // A launch that writes these buffer indices.
  void add(const Launch& launch, const std::set<int>& written);
  void add_temporary(const mx::array& array);
  bool is_temporary(const Binding& binding) const;
  // Whether an earlier command buffer has written it.
  bool has_written(const Binding& binding) const;

  // After an eval_gpu of these arrays. Refuses it if it uses memory without
  // waiting for those that write it, or overwrites what others may still read,
  // or leaves others to use memory without waiting for it.
  void end(
      const char* primitive,
      const std::vector<mx::array>& inputs,
      const std::vector<mx::array>& outputs);

  // Forgets what was added since the last end.
  void abandon();

 private:
  using Owner = std::weak_ptr<mx::array::Data>;
  template <typename T>
  using ByOwner = std::map<Owner, T, std::owner_less<Owner>>;

  // What an eval_gpu does with an allocation, at its first launch that writes
  // it if there is one.
  struct Use {
    std::string kernel;
    int index;
    bool written;
  };

  // What earlier command buffers did with one, by their numbers.
  struct Past {
    std::string writer; // a kernel; empty: none
    size_t written = 0;
    bool signaled = true;
    std::string reader; // since then
    size_t read = 0;
  };

  void check_writers() const;
  void check_temporaries(
      const char* primitive,
      const std::vector<mx::array>& inputs,
      const std::vector<mx::array>& outputs) const;
  void check_readers(
      const std::vector<mx::array>& inputs,
      const std::vector<mx::array>& outputs) const;
  void remember();

  ByOwner<Use> uses_;
  std::set<Owner, std::owner_less<Owner>> temporaries_;
  size_t command_buffer_{0};
  ByOwner<Past> past_;
  size_t most_past_{1000};
};

} // namespace hostmetal
