// Python bindings of the kernel: arrays in, arrays out, the GIL released in between.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ancestors.hpp"
#include "blueprint.hpp"
#include "fixed_order.hpp"
#include "graph.hpp"
#include "kineto_scan.hpp"
#include "least_step.hpp"
#include "longest_path.hpp"
#include "peak_memory.hpp"
#include "progress.hpp"
#include "rank_classes.hpp"
#include "routes.hpp"
#include "schedule.hpp"
#include "simulate_eager.hpp"
#include "simulate_rounds.hpp"
#include "unsorted_remainder.hpp"
#include "walk_back.hpp"
#include "windows.hpp"
#include "workspace.hpp"

namespace nb = nanobind;

namespace {

using augury::Blueprint;
using augury::GraphView;
using augury::RankView;
using augury::Routes;
using augury::ScheduleView;
using augury::Windows;
using augury::Workspace;

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

// A graph's columns by name ("ops.work_ns"), which this object keeps alive, and the number of
// windows in a row.
class NativeGraph {
 public:
  NativeGraph(nb::dict columns, std::int32_t num_gangs, std::int32_t num_windows)
      : columns_(columns) {
    graph = {rows("ops.work_ns"),
             rows("resources.width"),
             num_gangs,
             rows("interference.victim"),
             of<std::int64_t>("ops.work_ns"),
             of<std::int32_t>("ops.resource"),
             of<std::int32_t>("ops.priority"),
             of<std::int32_t>("ops.gang"),
             of<std::int32_t>("edges.first"),
             of<std::int32_t>("edges.dst"),
             of<std::int32_t>("resources.width"),
             of<std::int64_t>("resources.capacity"),
             of<std::uint8_t>("resources.discipline"),
             of<std::int32_t>("interference.victim"),
             of<std::int32_t>("interference.aggressor"),
             of<std::int64_t>("interference.rate")};
    ranks = {rows("ranks.role"),
             of<std::int32_t>("ops.rank"),
             of<std::int32_t>("ops.step"),
             rows("carries.src"),
             of<std::int32_t>("carries.src"),
             of<std::int32_t>("carries.dst"),
             rows("buffers.rank"),
             of<std::int32_t>("buffers.rank"),
             of<std::int32_t>("buffers.taken_by"),
             of<std::int32_t>("buffers.given_by"),
             of<std::int64_t>("buffers.size_bytes"),
             of<std::uint8_t>("buffers.kind"),
             of<std::uint8_t>("buffers.later"),
             of<std::int32_t>("buffers.layer"),
             of<std::int32_t>("resources.rank"),
             of<std::uint8_t>("ranks.role")};
    windows = std::make_unique<const Windows>(
        graph, augury::CarriesView{ranks.num_carries, ranks.carry_src, ranks.carry_dst},
        num_windows);
  }

  GraphView graph;
  RankView ranks;
  std::unique_ptr<const Windows> windows;

 private:
  template <class T>
  const T* of(const char* name) const {
    // No conversion: a converted copy would be freed before it is used.
    return nb::cast<In<T>>(columns_[name], false).data();
  }

  std::int32_t rows(const char* name) const {
    return static_cast<std::int32_t>(nb::len(nb::object(columns_[name])));
  }

  nb::dict columns_;
};

Blueprint* draw_blueprint(const NativeGraph& native) {
  nb::gil_scoped_release release;
  return new Blueprint(*native.windows);
}

// Routes of a graph and the units on them, in memory that is kept between replays.
struct RatedRoutes {
  explicit RatedRoutes(const augury::Windows& windows)
      : routes(windows), progress(windows, routes) {}
  const Routes routes;
  augury::VirtualProgress progress;
};

RatedRoutes* find_routes(const NativeGraph& native) {
  nb::gil_scoped_release release;
  return new RatedRoutes(*native.windows);
}

// For graphs without shared resources and interference.
bool simulate(const NativeGraph& native, In<std::int64_t> work_ns, const Blueprint& blueprint,
              Workspace& workspace, Out<std::int64_t> start_ns, Out<std::int64_t> end_ns,
              Out<std::int32_t> cause) {
  const Windows& windows = *native.windows;
  const ScheduleView out{start_ns.data(), end_ns.data(), cause.data()};
  nb::gil_scoped_release release;
  augury::EagerSimulation eager(windows, work_ns.data(), blueprint, out, workspace);
  if (eager.prepare()) return eager.run();
  augury::PlainProgress progress;
  return augury::RoundsSimulation(windows, work_ns.data(), blueprint.gangs, blueprint.missing,
                                  progress, out)
      .run();
}

// For all other graphs. Returns the number of queue updates for sharing and interference.
std::int64_t simulate_rated(const NativeGraph& native, In<std::int64_t> work_ns,
                            RatedRoutes& rated, Out<std::int64_t> start_ns,
                            Out<std::int64_t> end_ns, Out<std::int32_t> cause) {
  const Windows& windows = *native.windows;
  const ScheduleView out{start_ns.data(), end_ns.data(), cause.data()};
  nb::gil_scoped_release release;
  rated.progress.reset();
  augury::RoundsSimulation(windows, work_ns.data(), rated.routes.gangs, rated.routes.missing,
                           rated.progress, out)
      .run();
  return rated.progress.num_updates();
}

using Checkpoints = std::vector<augury::Checkpoint<augury::VirtualProgress>>;

// Same as simulate_rated, and returns checkpoints; none for a graph that deadlocks.
Checkpoints* simulate_with_checkpoints(const NativeGraph& native, In<std::int64_t> work_ns,
                                       RatedRoutes& rated, std::int32_t count,
                                       Out<std::int64_t> start_ns, Out<std::int64_t> end_ns,
                                       Out<std::int32_t> cause) {
  const ScheduleView out{start_ns.data(), end_ns.data(), cause.data()};
  auto saved = std::make_unique<Checkpoints>();
  nb::gil_scoped_release release;
  rated.progress.reset();
  augury::RoundsSimulation simulation(*native.windows, work_ns.data(), rated.routes.gangs,
                                      rated.routes.missing, rated.progress, out);
  if (!simulation.run(count, *saved)) saved->clear();
  return saved.release();
}

// Resumes from the last checkpoint before `before_ns`. Returns the number of operations that had
// ended by then; 0 without such a checkpoint, and then nothing was simulated.
std::int32_t resume(const NativeGraph& native, In<std::int64_t> work_ns, const RatedRoutes& rated,
                    const Checkpoints& checkpoints, std::int64_t before_ns,
                    In<std::int64_t> base_start_ns, In<std::int64_t> base_end_ns,
                    In<std::int32_t> base_cause, Out<std::int64_t> start_ns,
                    Out<std::int64_t> end_ns, Out<std::int32_t> cause) {
  const augury::BaseView base{base_start_ns.data(), base_end_ns.data(), base_cause.data()};
  const ScheduleView out{start_ns.data(), end_ns.data(), cause.data()};
  nb::gil_scoped_release release;
  const auto after = std::partition_point(
      checkpoints.begin(), checkpoints.end(),
      [before_ns](const auto& checkpoint) { return checkpoint.now_ns < before_ns; });
  if (after == checkpoints.begin()) return 0;
  const auto& from = *(after - 1);
  augury::VirtualProgress progress(from.progress);
  augury::RoundsSimulation(*native.windows, work_ns.data(), rated.routes.gangs,
                           rated.routes.missing, progress, out)
      .resume(from, base);
  return from.num_ended;
}

nb::tuple rank_classes(const NativeGraph& native, std::uint64_t seed) {
  std::unique_ptr<augury::RankClasses> found;
  std::vector<std::uint64_t> prints;
  {
    nb::gil_scoped_release release;
    found = std::make_unique<augury::RankClasses>(native.graph, native.ranks, seed);
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

augury::FixedOrder* fix_order(const NativeGraph& native, In<std::int32_t> order,
                              In<std::int64_t> end_ns) {
  nb::gil_scoped_release release;
  return new augury::FixedOrder(native.graph, order.data(), end_ns.data());
}

using Rows = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutRows = nb::ndarray<std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void sweep(const augury::FixedOrder& order, Rows work_ns, OutRows latest_ns) {
  nb::gil_scoped_release release;
  order.sweep(work_ns.data(), static_cast<std::int32_t>(work_ns.shape(0)),
              static_cast<std::int32_t>(latest_ns.shape(1)), latest_ns.data());
}

nb::tuple walk_back(const NativeGraph& native, In<std::int64_t> start_ns, In<std::int64_t> end_ns,
                    In<std::int32_t> cause, std::int32_t last_op, std::int64_t since_ns) {
  augury::Path path;
  {
    nb::gil_scoped_release release;
    path = augury::walk_back(*native.windows, start_ns.data(), end_ns.data(), cause.data(),
                             last_op, since_ns);
  }
  return nb::make_tuple(to_numpy(std::move(path.op)), to_numpy(std::move(path.start_ns)),
                        to_numpy(std::move(path.dur_ns)), to_numpy(std::move(path.reason)));
}

nb::tuple peak_memory(const NativeGraph& native, In<std::int64_t> start_ns,
                      In<std::int64_t> end_ns) {
  const RankView& v = native.ranks;
  const augury::BuffersView buffers{v.num_buffers, v.buffer_rank, v.taken_by, v.given_by,
                                    v.size_bytes,  v.buffer_kind, v.later,    v.buffer_layer};
  std::unique_ptr<augury::PeakMemory> found;
  {
    nb::gil_scoped_release release;
    found = std::make_unique<augury::PeakMemory>(*native.windows, buffers, v.num_ranks,
                                                 start_ns.data(), end_ns.data());
  }
  return nb::make_tuple(
      to_numpy(std::move(found->rank)), to_numpy(std::move(found->size_bytes)),
      to_numpy(std::move(found->at_ns)), to_numpy(std::move(found->holder_rank)),
      to_numpy(std::move(found->holder_kind)), to_numpy(std::move(found->holder_layer)),
      to_numpy(std::move(found->holder_bytes)));
}

void longest_path(In<std::int64_t> work_ns, In<std::int32_t> first, In<std::int32_t> before,
                  Out<std::int64_t> start_ns, Out<std::int64_t> end_ns) {
  nb::gil_scoped_release release;
  augury::longest_path(static_cast<std::int32_t>(work_ns.size()), work_ns.data(), first.data(),
                       before.data(), start_ns.data(), end_ns.data());
}

NewArray<std::int32_t> unsorted_remainder(In<std::int32_t> first, In<std::int32_t> dst) {
  std::vector<std::int32_t> left;
  {
    nb::gil_scoped_release release;
    left = augury::unsorted_remainder(static_cast<std::int32_t>(first.size()) - 1, first.data(),
                                      dst.data());
  }
  return to_numpy(std::move(left));
}

using Optional = nb::object;  // an array to fill, or none

// A scheduling problem's columns, which this object keeps alive.
class NativeProblem {
 public:
  NativeProblem(In<std::int64_t> release_ns, In<std::int64_t> update_ns,
                In<std::int64_t> size_bytes, In<std::int64_t> segment_ns, std::int64_t begin_ns,
                double overhead_ns, double ns_per_byte, double server_ns_per_byte,
                std::int64_t latency_ns)
      : columns_{release_ns, update_ns, size_bytes, segment_ns},
        network_{overhead_ns, ns_per_byte, server_ns_per_byte, latency_ns},
        problem_{static_cast<std::int32_t>(release_ns.size()), release_ns.data(),
                 update_ns.data(), size_bytes.data(), segment_ns.data(), begin_ns} {}

  nb::tuple evaluate(In<std::uint8_t> link, In<std::uint8_t> is_last, In<std::int32_t> after,
                     In<std::int64_t> lag_ns, In<std::int64_t> not_before_ns,
                     In<std::int64_t> hold_ns, In<std::int64_t> size_bytes,
                     In<std::int32_t> first, In<std::int32_t> gradient,
                     In<std::int64_t> slice_bytes, std::int64_t latency_ns,
                     std::int64_t window_bytes, bool has_barrier, Optional start_ns,
                     Optional arrive_ns, Optional arrived_ns) {
    const augury::OrderView order{static_cast<std::int32_t>(link.size()),
                                  link.data(),
                                  is_last.data(),
                                  after.data(),
                                  lag_ns.data(),
                                  not_before_ns.data(),
                                  hold_ns.data(),
                                  size_bytes.data(),
                                  first.data(),
                                  gradient.data(),
                                  slice_bytes.data(),
                                  latency_ns,
                                  window_bytes,
                                  has_barrier};
    const augury::Step step = evaluation_.run(problem_, order);
    fill(start_ns, evaluation_.start_ns);
    fill(arrive_ns, evaluation_.arrive_ns);
    fill(arrived_ns, evaluation_.arrived_ns);
    return nb::make_tuple(step.step_ns, step.waiting_ns);
  }

  std::int64_t line_step_ns(In<std::int32_t> gradient, In<std::int64_t> end_bytes,
                            In<std::int64_t> cuts, std::optional<In<std::int64_t>> back) {
    const augury::LineView line{static_cast<std::int32_t>(gradient.size()),
                                gradient.data(),
                                end_bytes.data(),
                                static_cast<std::int32_t>(cuts.size()),
                                cuts.data(),
                                back ? back->data() : nullptr};
    return evaluation_.run(problem_, line_.lay(line, network_)).step_ns;
  }

 private:
  static void fill(const Optional& target, const std::vector<std::int64_t>& values) {
    if (target.is_none()) return;
    const auto array = nb::cast<Out<std::int64_t>>(target, false);
    std::copy_n(values.begin(), std::min(values.size(), array.size()), array.data());
  }

  In<std::int64_t> columns_[4];
  augury::NetworkView network_;
  augury::ProblemView problem_;
  augury::OrderEvaluation evaluation_;
  augury::LineOrder line_;
};

double least_step(In<double> head_ns, In<double> tail_ns, In<double> work_ns,
                  double overhead_ns, bool is_pipelined, double at_least_ns) {
  return augury::LeastStep(static_cast<std::int32_t>(head_ns.size()), head_ns.data(),
                           tail_ns.data(), work_ns.data(), overhead_ns, is_pipelined)
      .run(at_least_ns);
}

using augury::KinetoScan;

std::vector<std::string> texts_of(nb::list texts) {
  std::vector<std::string> found;
  for (nb::handle text : texts) found.push_back(nb::cast<std::string>(text));
  return found;
}

void make_scan(KinetoScan* scan, nb::list skipped, nb::tuple frame, nb::list kept,
               std::uint64_t seed) {
  new (scan) KinetoScan(texts_of(skipped),
                        {nb::cast<std::string>(frame[0]), nb::cast<std::string>(frame[1])},
                        texts_of(kept), seed);
}

bool feed(KinetoScan& scan, nb::bytes data) {
  const char* begin = data.c_str();
  const std::size_t size = data.size();
  nb::gil_scoped_release release;
  return scan.feed(begin, size);
}

bool finish(KinetoScan& scan) {
  nb::gil_scoped_release release;
  return scan.finish();
}

nb::bytes to_bytes(std::string_view text) { return nb::bytes(text.data(), text.size()); }

nb::list strings_of(const augury::InternedStrings& strings) {
  nb::list found;
  for (std::size_t i = 0; i < strings.size(); ++i)
    found.append(to_bytes(strings[static_cast<std::int32_t>(i)]));
  return found;
}

// Everything that was scanned, by name; the scan is empty afterwards.
nb::dict take_scanned(KinetoScan& scan) {
  nb::dict found;
  found["names"] = strings_of(scan.names);
  found["categories"] = strings_of(scan.categories);
  found["threads"] = strings_of(scan.threads);
  found["name"] = to_numpy(std::move(scan.name));
  found["category"] = to_numpy(std::move(scan.category));
  found["thread"] = to_numpy(std::move(scan.thread));
  found["start_us"] = to_numpy(std::move(scan.start_us));
  found["dur_us"] = to_numpy(std::move(scan.dur_us));
  found["sequence"] = to_numpy(std::move(scan.sequence));
  found["forward_thread"] = to_numpy(std::move(scan.forward_thread));
  found["correlation"] = to_numpy(std::move(scan.correlation));
  found["external"] = to_numpy(std::move(scan.external));
  found["size_bytes"] = to_numpy(std::move(scan.size_bytes));
  found["memory_thread"] = to_numpy(std::move(scan.memory_thread));
  found["memory_us"] = to_numpy(std::move(scan.memory_us));
  found["memory_numbers"] = to_numpy(std::move(scan.memory_numbers));
  nb::dict kept;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < scan.kept_row.size(); ++i) {
    const std::int64_t end = scan.kept_ends[i];
    kept[nb::int_(scan.kept_row[i])] = nb::bytes(scan.kept_args.data() + begin, end - begin);
    begin = end;
  }
  found["kept_args"] = kept;
  nb::dict thread_names;
  for (const auto& [thread, name] : scan.thread_names)
    thread_names[to_bytes(thread)] = to_bytes(name);
  found["thread_names"] = thread_names;
  nb::dict head;
  for (const auto& [key, value] : scan.head) head[key.c_str()] = to_bytes(value);
  found["head"] = head;
  return found;
}

void enclosing(In<std::int32_t> stream, In<std::int64_t> start_ns, In<std::int64_t> dur_ns,
               Out<std::int32_t> parent) {
  nb::gil_scoped_release release;
  augury::enclosing(static_cast<std::int64_t>(stream.size()), stream.data(), start_ns.data(),
                    dur_ns.data(), parent.data());
}

void inherit(In<std::int32_t> parent, In<std::uint8_t> inherits, Out<std::int32_t> value) {
  nb::gil_scoped_release release;
  augury::inherit(static_cast<std::int64_t>(parent.size()), parent.data(), inherits.data(),
                  value.data());
}

void inherit_phases(In<std::int32_t> parent, In<std::uint8_t> covers, std::uint8_t unstated,
                    Out<std::uint8_t> phase) {
  nb::gil_scoped_release release;
  augury::inherit_phases(static_cast<std::int64_t>(parent.size()), parent.data(), covers.data(),
                         unstated, phase.data());
}

}  // namespace

NB_MODULE(_native, m) {
  using namespace nb::literals;
  m.doc() = "Augury's replay kernel; augury.replay.kernel is its typed interface.";
  nb::class_<Workspace>(m, "Workspace").def(nb::init<>());
  nb::class_<Blueprint>(m, "Blueprint");
  nb::class_<NativeGraph>(m, "NativeGraph")
      .def(nb::init<nb::dict, std::int32_t, std::int32_t>(), "columns"_a, "num_gangs"_a,
           "num_windows"_a = 1);
  m.def("draw_blueprint", &draw_blueprint, "graph"_a, nb::rv_policy::take_ownership);
  nb::class_<RatedRoutes>(m, "Routes");
  m.def("find_routes", &find_routes, "graph"_a, nb::rv_policy::take_ownership,
        nb::keep_alive<0, 1>());
  m.def("simulate", &simulate, "graph"_a, "work_ns"_a, "blueprint"_a, "workspace"_a,
        "start_ns"_a, "end_ns"_a, "cause"_a);
  m.def("simulate_rated", &simulate_rated, "graph"_a, "work_ns"_a, "routes"_a, "start_ns"_a,
        "end_ns"_a, "cause"_a);
  nb::class_<Checkpoints>(m, "Checkpoints");
  m.def("simulate_with_checkpoints", &simulate_with_checkpoints, "graph"_a, "work_ns"_a,
        "routes"_a, "count"_a, "start_ns"_a, "end_ns"_a, "cause"_a,
        nb::rv_policy::take_ownership, nb::keep_alive<0, 3>());
  m.def("resume", &resume, "graph"_a, "work_ns"_a, "routes"_a, "checkpoints"_a, "before_ns"_a,
        "base_start_ns"_a, "base_end_ns"_a, "base_cause"_a, "start_ns"_a, "end_ns"_a, "cause"_a);
  nb::class_<augury::FixedOrder>(m, "FixedOrder")
      .def("sweep", &sweep, "work_ns"_a, "latest_ns"_a);
  m.def("fix_order", &fix_order, "graph"_a, "order"_a, "end_ns"_a,
        nb::rv_policy::take_ownership);
  m.def("rank_classes", &rank_classes, "graph"_a, "seed"_a);
  m.def("walk_back", &walk_back, "graph"_a, "start_ns"_a, "end_ns"_a, "cause"_a, "last_op"_a,
        "since_ns"_a);
  m.def("peak_memory", &peak_memory, "graph"_a, "start_ns"_a, "end_ns"_a);
  m.def("longest_path", &longest_path, "work_ns"_a, "first"_a, "before"_a, "start_ns"_a,
        "end_ns"_a);
  nb::class_<NativeProblem>(m, "NativeProblem")
      .def(nb::init<In<std::int64_t>, In<std::int64_t>, In<std::int64_t>, In<std::int64_t>,
                    std::int64_t, double, double, double, std::int64_t>(),
           "release_ns"_a, "update_ns"_a, "size_bytes"_a, "segment_ns"_a, "begin_ns"_a,
           "overhead_ns"_a, "ns_per_byte"_a, "server_ns_per_byte"_a, "latency_ns"_a)
      .def("line_step_ns", &NativeProblem::line_step_ns, "gradient"_a, "end_bytes"_a, "cuts"_a,
           "back"_a.none())
      .def("evaluate", &NativeProblem::evaluate, "link"_a, "is_last"_a, "after"_a, "lag_ns"_a,
           "not_before_ns"_a, "hold_ns"_a, "size_bytes"_a, "first"_a, "gradient"_a,
           "slice_bytes"_a, "latency_ns"_a, "window_bytes"_a, "has_barrier"_a,
           "start_ns"_a = nb::none(), "arrive_ns"_a = nb::none(),
           "arrived_ns"_a = nb::none());
  m.def("least_step", &least_step, "head_ns"_a, "tail_ns"_a, "work_ns"_a, "overhead_ns"_a,
        "is_pipelined"_a, "at_least_ns"_a);
  nb::class_<KinetoScan>(m, "KinetoScan")
      .def("__init__", &make_scan, "skipped"_a, "frame"_a, "kept"_a, "seed"_a)
      .def("feed", &feed, "data"_a)
      .def("finish", &finish)
      .def("take", &take_scanned)
      .def_ro("num_events", &KinetoScan::num_events);
  m.def("enclosing", &enclosing, "stream"_a, "start_ns"_a, "dur_ns"_a, "parent"_a);
  m.def("inherit", &inherit, "parent"_a, "inherits"_a, "value"_a);
  m.def("inherit_phases", &inherit_phases, "parent"_a, "covers"_a, "unstated"_a, "phase"_a);
  m.def("unsorted_remainder", &unsorted_remainder, "first"_a, "dst"_a);
}
