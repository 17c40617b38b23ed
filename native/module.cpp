// The Python face of the kernel: arrays in, arrays out, the GIL released in between.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "graph.hpp"
#include "longest_path.hpp"
#include "simulate_eager.hpp"
#include "simulate_rounds.hpp"

namespace nb = nanobind;

namespace {

using augury::GraphView;
using augury::ScheduleView;

template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using NewArray = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <class T>
NewArray<T> to_numpy(std::vector<T>&& values) {
  auto* owned = new std::vector<T>(std::move(values));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return NewArray<T>(owned->data(), {owned->size()}, owner);
}

bool simulate(In<std::int64_t> work_ns, In<std::int32_t> resource, In<std::int32_t> priority,
              In<std::int32_t> gang, std::int32_t num_gangs, In<std::int32_t> first,
              In<std::int32_t> dst, In<std::int32_t> width, In<std::int64_t> capacity,
              In<std::uint8_t> is_fifo, In<std::int32_t> victim, In<std::int32_t> aggressor,
              In<std::int64_t> rate, bool rated, Out<std::int64_t> start_ns,
              Out<std::int64_t> end_ns, Out<std::int32_t> cause) {
  const GraphView graph{static_cast<std::int32_t>(work_ns.size()),
                        static_cast<std::int32_t>(width.size()),
                        num_gangs,
                        static_cast<std::int32_t>(victim.size()),
                        work_ns.data(),
                        resource.data(),
                        priority.data(),
                        gang.data(),
                        first.data(),
                        dst.data(),
                        width.data(),
                        capacity.data(),
                        is_fifo.data(),
                        victim.data(),
                        aggressor.data(),
                        rate.data()};
  const ScheduleView out{start_ns.data(), end_ns.data(), cause.data()};
  nb::gil_scoped_release release;
  if (rated) return augury::RoundsSimulation<true>(graph, out).run();
  if (augury::eager_can_run(graph)) return augury::EagerSimulation(graph, out).run();
  return augury::RoundsSimulation<false>(graph, out).run();
}

NewArray<std::int32_t> unsorted_remainder(In<std::int32_t> first, In<std::int32_t> dst) {
  std::vector<std::int32_t> left;
  {
    nb::gil_scoped_release release;
    const std::int32_t num_ops = static_cast<std::int32_t>(first.size()) - 1;
    const std::int32_t* begin = first.data();
    const std::int32_t* to = dst.data();
    std::vector<std::int32_t> missing(num_ops, 0), stack;
    for (std::size_t e = 0; e < dst.size(); ++e) ++missing[to[e]];
    for (std::int32_t op = 0; op < num_ops; ++op)
      if (missing[op] == 0) stack.push_back(op);
    while (!stack.empty()) {
      const std::int32_t op = stack.back();
      stack.pop_back();
      for (std::int32_t e = begin[op]; e < begin[op + 1]; ++e)
        if (--missing[to[e]] == 0) stack.push_back(to[e]);
    }
    for (std::int32_t op = 0; op < num_ops; ++op)
      if (missing[op] > 0) left.push_back(op);
  }
  return to_numpy(std::move(left));
}

void longest_path(In<std::int64_t> work_ns, In<std::int32_t> first, In<std::int32_t> before,
                  Out<std::int64_t> start_ns, Out<std::int64_t> end_ns) {
  nb::gil_scoped_release release;
  augury::longest_path(static_cast<std::int32_t>(work_ns.size()), work_ns.data(), first.data(),
                       before.data(), start_ns.data(), end_ns.data());
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "Augury's replay kernel; augury.replay.kernel is its typed face.";
  using namespace nb::literals;
  m.def("simulate", &simulate, "work_ns"_a, "resource"_a, "priority"_a, "gang"_a, "num_gangs"_a,
        "first"_a, "dst"_a, "width"_a, "capacity"_a, "is_fifo"_a, "victim"_a, "aggressor"_a,
        "rate"_a, "rated"_a, "start_ns"_a, "end_ns"_a, "cause"_a);
  m.def("longest_path", &longest_path, "work_ns"_a, "first"_a, "before"_a, "start_ns"_a,
        "end_ns"_a);
  m.def("unsorted_remainder", &unsorted_remainder, "first"_a, "dst"_a);
}
