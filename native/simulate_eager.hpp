// The fast engine, for graphs without sharing and interference in which all operations that occupy
// a place have work. Every time stamp then has one drain and one dispatch, the end of an operation
// is known when it is granted, and only decisions need a clock:
//
//   in a row   each operation on the resource waits for the one before it: nothing to decide;
//   in tandem  each operation on the resource waits for one on the same other resource of width
//              1, and all have the same priority: they are served in the order in which those
//              end, unless another predecessor delays one; until that one is served, the resource
//              counts as contended;
//   contended  all others: arrivals wait for their time on the event wheel.
//
// Ends run ahead of the clock through resources of the first two forms. The clock advances in
// slices no longer than the shortest work on the others: an operation granted within a slice ends
// after it, so all arrivals within a slice are known when it begins, and resources can decide
// independently, in any order. Times and causes equal those of the rounds engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "blueprint.hpp"
#include "event_wheel.hpp"
#include "graph.hpp"
#include "heap.hpp"
#include "ready_queue.hpp"
#include "windows.hpp"
#include "workspace.hpp"

namespace augury {

class EagerSimulation {
 public:
  EagerSimulation(const Windows& windows, const std::int64_t* work_ns, const Blueprint& blueprint,
                  const ScheduleView& out, Workspace& workspace)
      : windows_(windows),
        g_(windows.g),
        num_ops_(windows.num_ops),
        work_ns_(work_ns),
        blueprint_(blueprint),
        out_(out),
        nodes_(workspace.room_for<Node>(windows.num_ops)),
        lanes_(windows.g.num_resources) {}

  // Returns false if an operation that occupies a place has no work: then rounds matter.
  bool prepare() {
    std::int64_t shortest_ns = kNever;
    bool can_run = true;
    for (std::int32_t op = 0; op < g_.num_ops; ++op) {
      const std::int32_t role = blueprint_.role[op];
      const std::int64_t work_ns = work_ns_[op];
      can_run &= work_ns != 0 || role >> Blueprint::kResourceShift == 0;
      if (role & Blueprint::kHasChoice) shortest_ns = std::min(shortest_ns, work_ns);
    }
    int bits = 0;
    while (bits < 40 && (std::int64_t{2} << bits) <= shortest_ns) ++bits;
    wheel_.set_slice_bits(bits);
    gang_states_.reserve(windows_.num_gangs);
    for (std::int32_t window = 0; window < windows_.count; ++window)
      for (std::int32_t gang = 0; gang < g_.num_gangs; ++gang)
        gang_states_.push_back({kPending, blueprint_.gangs.size(gang)});
    for (std::int32_t r = 0; r < g_.num_resources; ++r) {
      const Blueprint::Lane& known = blueprint_.lanes[r];
      Lane& lane = lanes_[r];
      lane.form = known.form;
      lane.source = known.source;
      lane.width = lane.free_places = known.width;
      lane.is_fifo = known.is_fifo;
    }
    return can_run;
  }

  bool run() {
    for (const std::int32_t op : blueprint_.roots) {
      if (op >= num_filled_) fill_nodes(op);
      nodes_[op].at_ns = 0;
      arrive(op, nodes_[op], kNone);
    }
    for (;;) {
      finish_gangs();
      const std::int64_t slice = wheel_.next_slice();
      // Ended operations may release their successors later, but before these are due. Meanwhile
      // the successors are prefetched.
      if (!ended_.empty() && (ended_.size() >= kMaxDeferred || slice == EventWheel::kNever ||
                              first_end_ns_ < wheel_.end_ns(slice))) {
        release_ended();
        continue;
      }
      if (slice == EventWheel::kNever) break;
      serve(slice);
    }
    return write_out();
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  static constexpr std::size_t kMaxDeferred = 64;
  static constexpr std::int32_t kFillAhead = 512;
  // Values of Node::missing once no predecessor is missing.
  static constexpr std::int32_t kEnded = -3;
  static constexpr std::int32_t kHeld = -4;  // a member of a gang that has its place

  // Half of a cache line contains all that most operations need.
  struct Node {
    std::int64_t at_ns;    // the latest end of its predecessors, then its start
    std::int64_t end_ns;   // its work, then its end
    std::int32_t missing;  // predecessors not yet ended; then the link of the list it is in
    std::int32_t cause;
    std::int32_t role;  // see Blueprint
    std::int32_t next;  // its only successor, or kNone, or kSeveral

    bool in_gang() const { return (role & Blueprint::kInGang) != 0; }
    bool has_choice() const { return (role & Blueprint::kHasChoice) != 0; }
    bool is_free() const { return (role & (Blueprint::kInGang | Blueprint::kHasChoice)) == 0; }
    std::int32_t resource() const { return (role >> Blueprint::kResourceShift) - 1; }
  };
  static constexpr std::int32_t kSeveral = -2;

  struct Lane {
    std::int64_t free_ns = 0;       // width 1: end of the last one granted
    std::int32_t last_op = kNone;   // width 1: the last one granted
    std::int32_t width = 1;
    std::int32_t source = kNone;    // of a tandem
    std::int32_t num_astray = 0;    // tandem: released by the source, not granted, not in line
    std::int32_t head = kNone;      // tandem: queue of those that wait for a gang to end
    std::int32_t tail = kNone;
    std::int32_t link = kNone;      // its place on the wheel
    std::int32_t incoming = kNone;  // head of the arrivals within the slice
    Form form = Form::kContended;
    bool is_held = false;           // width 1: by a member of a gang with unknown end
    bool is_serving = false;
    bool is_touched = false;
    bool is_fifo = false;
    bool will_wake = false;         // width 1: it is on the wheel once
    std::int32_t free_places = 0;   // wide
    std::int64_t wake_ns = kNever;  // wide: the earliest of its events
    ReadyQueue waiting;
    Heap<ReadyOp, ReadyBefore> ends;  // wide: (end, op) of running operations
  };

  struct GangState {
    std::int64_t begin_ns;
    std::int32_t ungranted;
  };

  // Nodes are made shortly before the replay reaches them: the columns have been prefetched by
  // then, and the nodes are still in the cache when they are used.
  void fill_nodes(std::int32_t until) {
    const std::int32_t end = until < num_ops_ - kFillAhead ? until + kFillAhead : num_ops_;
    while (num_filled_ < end) {
      const std::int32_t window = windows_.of_op(num_filled_), shift = window * g_.num_ops;
      fill_nodes(shift, std::min(end - shift, g_.num_ops), blueprint_.missing.of_window(window));
    }
  }

  void fill_nodes(std::int32_t shift, std::int32_t end, const std::int32_t* missing) {
    for (std::int32_t op = num_filled_ - shift; op < end; ++op) {
      const std::int32_t first = g_.first[op], count = g_.first[op + 1] - first;
      nodes_[shift + op] = {kPending, work_ns_[op], missing[op], kNoCause, blueprint_.role[op],
                            count == 1   ? the_only(g_.dst[first] + shift)
                            : count == 0 ? kNone
                                         : kSeveral};
    }
    num_filled_ = shift + end;
  }

  // There is no window after the last.
  std::int32_t the_only(std::int32_t next) const { return next < num_ops_ ? next : kNone; }

  // -- without the clock -----------------------------------------------------------------------

  // The ends of all predecessors are known; `by` is the one whose end became known last.
  void arrive(std::int32_t op, Node& node, std::int32_t by) {
    if (node.is_free()) {
      end(op, node, node.at_ns + node.end_ns);
      return;
    }
    if (!node.has_choice()) {
      grant(op, node, node.at_ns);
      return;
    }
    Lane& lane = lanes_[node.resource()];
    if (lane.form == Form::kTandem) {
      const bool from_source = by != kNone && nodes_[by].resource() == lane.source;
      if (lane.num_astray == 0 && from_source && nodes_[by].end_ns == node.at_ns) {
        arrive_in_tandem(lane, op, node);
        return;
      }
      // Operations delayed by another predecessor were counted when the source released them.
      if (from_source) ++lane.num_astray;
    }
    wheel_.push(node.at_ns, op, node.missing);
  }

  void arrive_in_tandem(Lane& lane, std::int32_t op, Node& node) {
    if (lane.head == kNone && !lane.is_held && !lane.is_serving) {
      grant_tandem(lane, op, node);
      return;
    }
    node.missing = kNone;
    if (lane.head == kNone) {
      lane.head = op;
    } else {
      nodes_[lane.tail].missing = op;
    }
    lane.tail = op;
  }

  void grant_tandem(Lane& lane, std::int32_t op, Node& node) {
    if (node.at_ns < lane.free_ns) {
      node.at_ns = lane.free_ns;
      node.cause = -2 - lane.last_op;
    }
    grant(op, node, node.at_ns);
  }

  void serve_tandem(Lane& lane) {
    lane.is_serving = true;
    while (lane.head != kNone && !lane.is_held) {
      const std::int32_t op = lane.head;
      lane.head = nodes_[op].missing;
      grant_tandem(lane, op, nodes_[op]);
    }
    lane.is_serving = false;
  }

  void grant(std::int32_t op, Node& node, std::int64_t start_ns) {
    node.at_ns = start_ns;
    if (!node.in_gang()) {
      finish(op, node, start_ns + node.end_ns);
      return;
    }
    node.missing = kHeld;
    if (node.has_choice()) lanes_[node.resource()].is_held = true;
    const std::int32_t window = windows_.of_op(op);
    const std::int32_t gang = g_.gang[op - window * g_.num_ops] + window * g_.num_gangs;
    GangState& state = gang_states_[gang];
    state.begin_ns = std::max(state.begin_ns, start_ns);
    if (--state.ungranted == 0) complete_gangs_.push_back(gang);
  }

  void end(std::int32_t op, Node& node, std::int64_t end_ns) {
    node.end_ns = end_ns;
    node.missing = kEnded;
    if (node.next >= 0) __builtin_prefetch(&nodes_[node.next], 1);
    first_end_ns_ = std::min(first_end_ns_, end_ns);
    ended_.push_back(op);
  }

  void finish(std::int32_t op, Node& node, std::int64_t end_ns) {
    end(op, node, end_ns);
    if (!node.has_choice()) return;
    const std::int32_t r = node.resource();
    Lane& lane = lanes_[r];
    if (lane.width == 1) {
      lane.is_held = false;
      lane.free_ns = end_ns;
      lane.last_op = op;
      if (lane.head != kNone) {
        if (!lane.is_serving) serve_tandem(lane);
      } else if (!lane.waiting.empty()) {
        wake(lane, r);
      }
    } else {
      lane.ends.push({end_ns, 0, op});
      if (!lane.waiting.empty()) wake_wide(lane, r, end_ns);
    }
  }

  // Not a part of grant(): chains of gangs would nest on the stack.
  void finish_gang(std::int32_t gang) {
    const std::int32_t window = windows_.of_gang(gang), shift = window * g_.num_ops;
    const std::int32_t own = gang - window * g_.num_gangs;
    const std::int32_t* const members = blueprint_.gangs.begin(own);
    const std::int64_t end_ns = gang_states_[gang].begin_ns + nodes_[*members + shift].end_ns;
    for (const std::int32_t* m = members; m != blueprint_.gangs.end(own); ++m)
      finish(*m + shift, nodes_[*m + shift], end_ns);
  }

  void finish_gangs() {
    while (!complete_gangs_.empty()) {
      const std::int32_t gang = complete_gangs_.back();
      complete_gangs_.pop_back();
      finish_gang(gang);
    }
  }

  // First ended, first served: this keeps tandems in order.
  void release_ended() {
    releasing_.swap(ended_);
    first_end_ns_ = kNever;
    for (const std::int32_t op : releasing_) release_successors(op);
    releasing_.clear();
  }

  void release_successors(std::int32_t op) {
    const Node& node = nodes_[op];
    if (node.next >= 0) {
      release(node.next, op, node.end_ns);
    } else if (node.next == kSeveral) {
      const std::int32_t shift = windows_.of_op(op) * g_.num_ops, own = op - shift;
      const std::int32_t last = g_.first[own + 1];
      for (std::int32_t e = g_.first[own]; e < last && g_.dst[e] + shift < num_ops_; ++e)
        release(g_.dst[e] + shift, op, node.end_ns);
    }
  }

  void release(std::int32_t next, std::int32_t op, std::int64_t end_ns) {
    if (next >= num_filled_) fill_nodes(next);
    Node& node = nodes_[next];
    if (end_ns > node.at_ns) {
      node.at_ns = end_ns;
      node.cause = op;
    } else if (end_ns == node.at_ns && op < node.cause) {
      node.cause = op;
    }
    if (--node.missing == 0) {
      arrive(next, node, op);
    } else if (node.has_choice()) {
      Lane& lane = lanes_[node.resource()];
      if (lane.source != kNone && nodes_[op].resource() == lane.source) ++lane.num_astray;
    }
  }

  // -- with the clock --------------------------------------------------------------------------

  void serve(std::int64_t slice) {
    std::int32_t thing = wheel_.advance(slice, far_);
    if (serve_alone(thing)) return;
    while (thing != EventWheel::kEnd) thing = come_in(thing);
    for (const std::int32_t far : far_) come_in(far);
    far_.clear();
    for (const std::int32_t r : touched_) decide(r);
    touched_.clear();
  }

  // The common case: one arrival in the slice, and a free place.
  bool serve_alone(std::int32_t op) {
    if (op == EventWheel::kEnd || op >= num_ops_ || !far_.empty()) return false;
    const Node& node = nodes_[op];
    if (node.missing != EventWheel::kEnd) return false;
    Lane& lane = lanes_[node.resource()];
    if (lane.width != 1 || lane.is_held || lane.free_ns > node.at_ns || !lane.waiting.empty())
      return false;
    take(lane, op, node.at_ns);
    return true;
  }

  // Adds an operation to the queue of its resource, or marks a resource for service. Returns the
  // next entry of the list.
  std::int32_t come_in(std::int32_t thing) {
    if (thing >= num_ops_) {
      Lane& lane = lanes_[thing - num_ops_];
      lane.will_wake = false;
      touch(lane, thing - num_ops_);
      return lane.link;
    }
    Node& node = nodes_[thing];
    Lane& lane = lanes_[node.resource()];
    const std::int32_t next = node.missing;
    node.missing = lane.incoming;
    lane.incoming = thing;
    touch(lane, node.resource());
    return next;
  }

  void touch(Lane& lane, std::int32_t r) {
    if (lane.is_touched) return;
    lane.is_touched = true;
    touched_.push_back(r);
  }

  ReadyOp ready(const Lane& lane, std::int32_t op) const {
    return {nodes_[op].at_ns, lane.is_fifo ? 0 : g_.priority[windows_.local(op)], op};
  }

  // At most one operation gets the place within a slice, because it ends after the slice.
  void decide(std::int32_t r) {
    Lane& lane = lanes_[r];
    std::int32_t incoming = lane.incoming;
    lane.incoming = kNone;
    lane.is_touched = false;
    if (lane.width != 1) {
      decide_wide(lane, r, incoming);
      return;
    }
    std::int64_t at_ns = lane.free_ns;
    const bool queue_is_empty = lane.waiting.empty();
    if (queue_is_empty) {
      std::int64_t earliest_ns = kNever;
      for (std::int32_t op = incoming; op != kNone; op = nodes_[op].missing)
        earliest_ns = std::min(earliest_ns, nodes_[op].at_ns);
      if (earliest_ns == kNever) return;
      at_ns = std::max(at_ns, earliest_ns);
    }
    const bool decides = !lane.is_held && at_ns < wheel_.slice_end_ns();
    if (decides && queue_is_empty && nodes_[incoming].missing == kNone) {
      take(lane, incoming, at_ns);
      return;
    }
    late_.clear();
    while (incoming != kNone) {
      const std::int32_t op = incoming;
      incoming = nodes_[op].missing;
      if (decides && nodes_[op].at_ns > at_ns) {
        late_.push_back(op);
      } else {
        lane.waiting.push(ready(lane, op));
      }
    }
    if (decides) {
      const std::int32_t best = lane.waiting.pop().op;
      for (const std::int32_t op : late_) lane.waiting.push(ready(lane, op));
      take(lane, best, at_ns);
    } else if (!lane.is_held) {
      wake(lane, r);
    }
  }

  void take(Lane& lane, std::int32_t op, std::int64_t at_ns) {
    Node& node = nodes_[op];
    if (lane.form == Form::kTandem) --lane.num_astray;
    if (node.at_ns < at_ns) node.cause = -2 - lane.last_op;
    grant(op, node, at_ns);
  }

  void wake(Lane& lane, std::int32_t r) {
    if (lane.will_wake) return;
    lane.will_wake = true;
    wheel_.push(lane.free_ns, num_ops_ + r, lane.link);
  }

  void decide_wide(Lane& lane, std::int32_t r, std::int32_t incoming) {
    const std::int64_t slice_end_ns = wheel_.slice_end_ns();
    if (lane.wake_ns < slice_end_ns) lane.wake_ns = kNever;
    late_.clear();
    for (; incoming != kNone; incoming = nodes_[incoming].missing) late_.push_back(incoming);
    std::sort(late_.begin(), late_.end(), [this](std::int32_t a, std::int32_t b) {
      return nodes_[a].at_ns < nodes_[b].at_ns;
    });
    std::size_t next = 0;
    for (;;) {
      std::int64_t now_ns = next < late_.size() ? nodes_[late_[next]].at_ns : kNever;
      if (!lane.waiting.empty() && !lane.ends.empty())
        now_ns = std::min(now_ns, lane.ends.top().ready_ns);
      if (now_ns >= slice_end_ns) break;
      while (next < late_.size() && nodes_[late_[next]].at_ns == now_ns)
        lane.waiting.push(ready(lane, late_[next++]));
      std::int32_t freed_by = kNone;
      while (!lane.ends.empty() && lane.ends.top().ready_ns <= now_ns) {
        // Equal ends leave the heap by id: the first one that ends now has the smallest id.
        if (freed_by == kNone && lane.ends.top().ready_ns == now_ns) freed_by = lane.ends.top().op;
        lane.ends.pop();
        ++lane.free_places;
      }
      while (!lane.waiting.empty() && lane.free_places > 0) {
        --lane.free_places;
        const ReadyOp best = lane.waiting.pop();
        if (best.ready_ns < now_ns) nodes_[best.op].cause = -2 - freed_by;
        grant(best.op, nodes_[best.op], now_ns);
      }
    }
    if (!lane.waiting.empty() && !lane.ends.empty()) wake_wide(lane, r, lane.ends.top().ready_ns);
  }

  void wake_wide(Lane& lane, std::int32_t r, std::int64_t at_ns) {
    if (at_ns >= lane.wake_ns) return;
    lane.wake_ns = at_ns;
    wheel_.push_far(at_ns, num_ops_ + r);
  }

  // In a deadlock some operations have no start or no end.
  bool write_out() {
    fill_nodes(num_ops_);
    std::int32_t num_ended = 0;
    for (std::int32_t op = 0; op < num_ops_; ++op) {
      const Node& node = nodes_[op];
      const bool has_ended = node.missing == kEnded;
      num_ended += has_ended;
      out_.start_ns[op] = has_ended || node.missing == kHeld ? node.at_ns : kPending;
      out_.end_ns[op] = has_ended ? node.end_ns : kPending;
      out_.cause[op] = node.cause;
    }
    return num_ended == num_ops_;
  }

  const Windows& windows_;
  const GraphView& g_;
  const std::int32_t num_ops_;
  const std::int64_t* const work_ns_;  // of one window
  const Blueprint& blueprint_;
  const ScheduleView out_;
  Node* const nodes_;
  std::int32_t num_filled_ = 0;
  std::vector<Lane> lanes_;
  std::vector<GangState> gang_states_;
  std::vector<std::int32_t> ended_, releasing_, complete_gangs_, touched_, late_, far_;
  std::int64_t first_end_ns_ = kNever;  // earliest end in ended_
  EventWheel wheel_;
};

}  // namespace augury
