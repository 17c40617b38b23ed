// The Python face of the kernel: arrays in, arrays out, the GIL released in between.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "graph.hpp"
#include "longest_path.hpp"
#include "rank_classes.hpp"
#include "simulate_eager.hpp"
#include "simulate_rounds.hpp"
#include "walk_back.hpp"

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

nb::tuple rank_classes(nb::dict ops, nb::dict edges, nb::dict carries, nb::dict resources,
                       nb::dict interference, nb::dict buffers, nb::dict ranks,
                       std::int32_t num_gangs, std::uint64_t seed) {
  const auto i4 = [](nb::dict table, const char* name) {
    return nb::cast<In<std::int32_t>>(table[name]);
  };
  const auto i8 = [](nb::dict table, const char* name) {
    return nb::cast<In<std::int64_t>>(table[name]);
  };
  const auto u1 = [](nb::dict table, const char* name) {
    return nb::cast<In<std::uint8_t>>(table[name]);
  };
  GraphView graph{};
  graph.num_ops = static_cast<std::int32_t>(i8(ops, "work_ns").size());
  graph.num_resources = static_cast<std::int32_t>(i4(resources, "width").size());
  graph.num_gangs = num_gangs;
  graph.num_rules = static_cast<std::int32_t>(i4(interference, "victim").size());
  graph.work_ns = i8(ops, "work_ns").data();
  graph.resource = i4(ops, "resource").data();
  graph.priority = i4(ops, "priority").data();
  graph.gang = i4(ops, "gang").data();
  graph.first = i4(edges, "first").data();
  graph.dst = i4(edges, "dst").data();
  graph.width = i4(resources, "width").data();
  graph.capacity = i8(resources, "capacity").data();
  graph.is_fifo = u1(resources, "discipline").data();
  graph.victim = i4(interference, "victim").data();
  graph.aggressor = i4(interference, "aggressor").data();
  graph.rate = i8(interference, "rate").data();
  augury::RankView view{};
  view.num_ranks = static_cast<std::int32_t>(u1(ranks, "role").size());
  view.rank = i4(ops, "rank").data();
  view.step = i4(ops, "step").data();
  view.num_carries = static_cast<std::int32_t>(i4(carries, "src").size());
  view.carry_src = i4(carries, "src").data();
  view.carry_dst = i4(carries, "dst").data();
  view.num_buffers = static_cast<std::int32_t>(i4(buffers, "rank").size());
  view.buffer_rank = i4(buffers, "rank").data();
  view.taken_by = i4(buffers, "taken_by").data();
  view.given_by = i4(buffers, "given_by").data();
  view.size_bytes = i8(buffers, "size_bytes").data();
  view.buffer_kind = u1(buffers, "kind").data();
  view.later = u1(buffers, "later").data();
  view.resource_rank = i4(resources, "rank").data();
  view.role = u1(ranks, "role").data();
  std::unique_ptr<augury::RankClasses> found;
  std::vector<std::uint64_t> prints;
  {
    nb::gil_scoped_release release;
    found = std::make_unique<augury::RankClasses>(graph, view, seed);
    prints.reserve(2 * found->gang_print.size());
    for (const augury::Print& print : found->gang_print) {
      prints.push_back(print.a);
      prints.push_back(print.b);
    }
  }
  return nb::make_tuple(to_numpy(std::move(found->class_of_rank)),
                        to_numpy(std::move(found->position)), to_numpy(std::move(prints)),
                        found->num_classes);
}

nb::tuple walk_back(In<std::int64_t> work_ns, In<std::int32_t> gang, std::int32_t num_gangs,
                    In<std::int64_t> start_ns, In<std::int64_t> end_ns, In<std::int32_t> cause,
                    std::int32_t last_op, std::int64_t since_ns) {
  augury::Path path;
  {
    nb::gil_scoped_release release;
    GraphView graph{};
    graph.num_ops = static_cast<std::int32_t>(work_ns.size());
    graph.num_gangs = num_gangs;
    graph.work_ns = work_ns.data();
    graph.gang = gang.data();
    path = augury::walk_back(graph, start_ns.data(), end_ns.data(), cause.data(), last_op,
                             since_ns);
  }
  return nb::make_tuple(to_numpy(std::move(path.op)), to_numpy(std::move(path.start_ns)),
                        to_numpy(std::move(path.dur_ns)), to_numpy(std::move(path.reason)));
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
  m.def("rank_classes", &rank_classes, "ops"_a, "edges"_a, "carries"_a, "resources"_a,
        "interference"_a, "buffers"_a, "ranks"_a, "num_gangs"_a, "seed"_a);
  m.def("walk_back", &walk_back, "work_ns"_a, "gang"_a, "num_gangs"_a, "start_ns"_a, "end_ns"_a,
        "cause"_a, "last_op"_a, "since_ns"_a);
  m.def("longest_path", &longest_path, "work_ns"_a, "first"_a, "before"_a, "start_ns"_a,
        "end_ns"_a);
  m.def("unsorted_remainder", &unsorted_remainder, "first"_a, "dst"_a);
}
