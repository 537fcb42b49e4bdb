// Copyright © 2026 mlx_norms contributors

#include "csrc/python/bindings.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "csrc/common/backend.h"
#include "csrc/common/interpreter.h"
#include "csrc/common/types.h"
#include "csrc/cpu/isa.h"
#include "csrc/cpu/threads.h"
#include "csrc/gpu/built_kernels.h"
#include "csrc/gpu/first_uses.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

void bind_device(nb::module_& m) {
  m.def(
      "has_gpu_kernels",
      [] { return has_gpu_kernels(mx::default_stream(mx::Device::gpu)); },
      "Whether the default GPU runs this package's kernels. There must be one.");
  m.def(
      "cpu_isa",
      &cpu::isa,
      "The instruction set of the CPU kernels in use. See `cpu_isas`.");
  m.def(
      "cpu_isas",
      &cpu::available_isas,
      R"pbdoc(
        The instruction sets that this machine can run, best first.

        ``MLX_NORMS_CPU_ISA`` forces one of them for a process.
      )pbdoc");
  m.def(
      "cpu_threads",
      &cpu::thread_count,
      R"pbdoc(
        The number of threads that share large work on the CPU: the value of
        ``MLX_NORMS_CPU_THREADS``, by default the number of cores.

        Raises:
            ValueError: If ``MLX_NORMS_CPU_THREADS`` is not a number from 1 to
              1024.
      )pbdoc");

  m.def(
      "built_kernels",
      [] {
        using Constants = std::map<int, std::string>;
        std::vector<std::tuple<std::string, Constants, std::optional<int>>> all;
        for (const auto& kernel : without_interpreter(built_kernels)) {
          all.emplace_back(kernel.name, kernel.constants, kernel.on_disk);
        }
        return all;
      },
      R"pbdoc(
        The GPU kernels of the extension: name, function constants by index
        and, on CUDA, the number of compiled specializations on disk.

        On Metal this builds those that are not built yet, and omits those that
        cannot be built.
      )pbdoc");
  m.def(
      "built_libraries",
      [] {
        std::vector<nb::dict> all;
        for (const auto& library : without_interpreter(built_libraries)) {
          nb::dict of;
          of["name"] = library.name;
          of["form"] = library.from_metallib ? "metallib" : "text";
          of["seconds"] = library.seconds;
          of["usable"] = library.usable;
          of["failure"] = library.failure;
          all.push_back(of);
        }
        return all;
      },
      R"pbdoc(
        The libraries of Metal kernels, each built if it is not built yet: name,
        form ("metallib" or "text"), seconds that the build took, whether all of
        its kernels are usable, and the compiler's messages if not.
      )pbdoc");
  m.def(
      "built_pipelines",
      [] {
        using Numbers = uint32_t;
        std::vector<std::tuple<std::string, Numbers, Numbers, Numbers>> all;
        for (const auto& p : built_pipelines()) {
          all.emplace_back(p.name, p.max_threads, p.static_memory, p.group);
        }
        return all;
      },
      R"pbdoc(
        The Metal pipelines launched so far: name of the kernel with its
        function constants, maximum threads per threadgroup, declared bytes of
        threadgroup memory, and the threads of the first launch's threadgroups.
      )pbdoc");
  m.def(
      "first_uses",
      [](size_t seen) {
        std::vector<std::tuple<std::string, double>> uses;
        for (auto& use : first_uses(seen)) {
          uses.emplace_back(std::move(use.kernel), use.seconds);
        }
        return uses;
      },
      "seen"_a = 0,
      R"pbdoc(
        The GPU kernels that this process compiled, or on CUDA loaded from disk,
        in order, without the first ``seen``: name, and seconds that it took.
      )pbdoc");
}

} // namespace mlx_norms
