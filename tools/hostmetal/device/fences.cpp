// Copyright © 2026 mlx_norms contributors

#include "fences.h"

#include <algorithm>

#include "handlers.h"

namespace hostmetal {

namespace {

// How many hold the array. Its description is all that an array has.
long holders(const mx::array& array) {
  static_assert(sizeof(mx::array) == sizeof(std::shared_ptr<void>));
  return reinterpret_cast<const std::shared_ptr<void>&>(array).use_count();
}

// Whether nobody else has this input. MLX holds the inputs of command buffers
// until they have run, so that all which read it have.
bool is_donated(const mx::array& input, const std::vector<mx::array>& outputs) {
  auto& data = input.data_shared_ptr();
  auto taken = std::count_if(outputs.begin(), outputs.end(), [&](auto& out) {
    return out.data_shared_ptr() == data;
  });
  return holders(input) == 1 && data.use_count() == 1 + taken;
}

std::string buffer(const std::string& kernel, int index) {
  return kernel + ": buffer " + std::to_string(index);
}

} // namespace

void Fences::add(const Launch& launch, const std::set<int>& written) {
  for (auto& [index, bound] : launch.bindings) {
    if (bound.kind != BindingKind::Bytes) {
      Use use{launch.pipeline->kernel, index, written.contains(index)};
      auto [found, is_new] = uses_.try_emplace(bound.owner, use);
      if (!is_new && use.written && !found->second.written) {
        found->second = use;
      }
    }
  }
}

void Fences::add_temporary(const mx::array& array) {
  temporaries_.insert(array.data_shared_ptr());
}

bool Fences::is_temporary(const Binding& binding) const {
  return temporaries_.contains(binding.owner);
}

bool Fences::has_written(const Binding& binding) const {
  auto past = past_.find(binding.owner);
  return past != past_.end() && !past->second.writer.empty();
}

void Fences::end(
    const char* primitive,
    const std::vector<mx::array>& inputs,
    const std::vector<mx::array>& outputs) {
  check_writers();
  check_temporaries(primitive, inputs, outputs);
  check_readers(inputs, outputs);
  remember();
  abandon();
}

void Fences::abandon() {
  uses_.clear();
  temporaries_.clear();
}

void Fences::check_writers() const {
  for (auto& [owner, use] : uses_) {
    auto past = past_.find(owner);
    if (past == past_.end() || past->second.writer.empty()) {
      continue;
    }
    bool waits = !temporaries_.contains(owner);
    if (!waits || !past->second.signaled) {
      refuse(
          buffer(use.kernel, use.index) +
          " is written in an earlier command buffer (by " +
          past->second.writer +
          ") for which it does not wait, as it was handed to add_temporary" +
          (waits ? " there" : ""));
    }
  }
}

void Fences::check_temporaries(
    const char* primitive,
    const std::vector<mx::array>& inputs,
    const std::vector<mx::array>& outputs) const {
  std::string found;
  for (auto* arrays : {&inputs, &outputs}) {
    for (size_t i = 0; i < arrays->size(); i++) {
      auto& data = (*arrays)[i].data_shared_ptr();
      if (!data || !temporaries_.contains(data)) {
        continue;
      }
      found += found.empty() ? "" : ", ";
      found += (arrays == &inputs ? "input " : "output ") + std::to_string(i);
      if (auto use = uses_.find(data); use != uses_.end()) {
        found += " (" + buffer(use->second.kernel, use->second.index) + ")";
      }
    }
  }
  if (!found.empty()) {
    refuse(
        primitive + std::string(": it handed to add_temporary the memory of ") +
        found + ", for which command buffers then do not wait");
  }
}

void Fences::check_readers(
    const std::vector<mx::array>& inputs,
    const std::vector<mx::array>& outputs) const {
  std::set<size_t> waited_for;
  for (auto& [owner, use] : uses_) {
    if (auto past = past_.find(owner);
        past != past_.end() && !past->second.writer.empty()) {
      waited_for.insert(past->second.written);
    }
  }
  ByOwner<size_t> numbers;
  for (size_t i = 0; i < inputs.size(); i++) {
    numbers[inputs[i].data_shared_ptr()] = i;
  }
  for (auto& [owner, use] : uses_) {
    if (!use.written) {
      continue;
    }
    if (auto input = numbers.find(owner); input != numbers.end()) {
      if (!is_donated(inputs[input->second], outputs)) {
        refuse(
            buffer(use.kernel, use.index) +
            " is written, the memory of input " +
            std::to_string(input->second) +
            ", which was not donated: earlier command buffers may still read it");
      }
    } else if (
        auto past = past_.find(owner); past != past_.end() &&
        !past->second.reader.empty() &&
        !waited_for.contains(past->second.read)) {
      refuse(
          buffer(use.kernel, use.index) +
          " is read in an earlier command buffer (by " + past->second.reader +
          "), and MLX only waits for those that write");
    }
  }
}

void Fences::remember() {
  command_buffer_++;
  for (auto& [owner, use] : uses_) {
    auto& past = past_[owner];
    if (use.written) {
      bool signaled = !temporaries_.contains(owner);
      past = {use.kernel, command_buffer_, signaled, "", 0};
    } else {
      past.reader = use.kernel;
      past.read = command_buffer_;
    }
  }
  if (past_.size() > most_past_) {
    std::erase_if(past_, [](auto& past) { return past.first.expired(); });
    most_past_ = 2 * past_.size() + 1000;
  }
}

} // namespace hostmetal
