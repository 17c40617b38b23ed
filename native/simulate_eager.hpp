// The fast engine, for graphs in which nothing shares or slows and no operation that holds a
// place is without work. Then all that happens at one time stamp is one drain and one dispatch,
// an operation's end is known the moment it is granted, and only decisions need a clock:
//
//   in a row   each operation on the resource waits for the one before it: nothing to decide;
//   in tandem  everything on the resource waits for one other resource of width 1 and nothing
//              outranks anything: operations are served in the order in which that one ends;
//   contended  all others: arrivals wait for their time on the event wheel.
//
// Ends run ahead of the clock through resources of the first two forms. The clock itself goes in
// slices no longer than the shortest work on a contended resource: whatever is granted within a
// slice ends after it, so all that can arrive within it is known when it begins, and every
// resource can decide for itself, in any order. The outcome is that of the rounds engine, to the
// nanosecond and to the cause.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "event_wheel.hpp"
#include "gangs.hpp"
#include "graph.hpp"
#include "heap.hpp"
#include "ready_queue.hpp"

namespace augury {

inline bool eager_can_run(const GraphView& g) {
  bool without_work = false;
  for (std::int32_t op = 0; op < g.num_ops; ++op)
    without_work |= (g.work_ns[op] == 0) & (g.resource[op] != kNone);
  return !without_work;
}

class EagerSimulation {
 public:
  EagerSimulation(const GraphView& graph, const ScheduleView& out)
      : g_(graph), out_(out), gangs_(graph), nodes_(graph.num_ops), lanes_(graph.num_resources) {
    for (std::int32_t op = 0; op < g_.num_ops; ++op)
      nodes_[op] = {kPending, g_.work_ns[op], 0, kNoCause, g_.resource[op], g_.gang[op]};
    gang_states_.reserve(g_.num_gangs);
    for (std::int32_t gang = 0; gang < g_.num_gangs; ++gang)
      gang_states_.push_back({kPending, gangs_.size(gang)});
    classify();
  }

  bool run() {
    for (std::int32_t op = 0; op < g_.num_ops; ++op) {
      // Pending times show that nobody has released it on the way here.
      if (nodes_[op].missing != 0 || nodes_[op].at_ns != kPending) continue;
      nodes_[op].at_ns = 0;
      arrive(op);
      cascade();
    }
    std::int32_t thing;
    const auto look = [this](std::int32_t what) {
      if (what < g_.num_ops) {
        come_in(what);
      } else {
        Lane& lane = lanes_[what - g_.num_ops];
        lane.will_wake = false;
        touch(lane, what - g_.num_ops);
      }
    };
    while (wheel_.advance(thing, look)) {
      while (thing != EventWheel::kEnd) {
        const std::int32_t next =
            thing < g_.num_ops ? nodes_[thing].missing : lanes_[thing - g_.num_ops].link;
        look(thing);
        thing = next;
      }
      for (const std::int32_t r : touched_) decide(r);
      touched_.clear();
      cascade();
    }
    return write_out();
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  // What Node::missing says once nothing is missing.
  static constexpr std::int32_t kEnded = -3;
  static constexpr std::int32_t kHeld = -4;  // a gang's member that has its place

  struct Node {
    std::int64_t at_ns;    // the latest end of its predecessors, then its start
    std::int64_t end_ns;   // its work, then its end
    std::int32_t missing;  // predecessors not yet ended; then the link of the list it is in
    std::int32_t cause;
    std::int32_t lane;  // its resource if there is something to decide on it
    std::int32_t gang;
  };

  enum class Form : std::uint8_t { kInRow, kTandem, kContended };

  struct Lane {
    std::int64_t free_ns = 0;       // width 1: when the last one granted ends
    std::int32_t last_op = kNone;   // width 1: the last one granted
    std::int32_t width = 1;
    std::int32_t head = kNone;      // tandem: arrived, not granted, in order;
    std::int32_t tail = kNone;      // contended: head of what arrives within the slice
    std::int32_t link = kNone;      // width 1: its place on the wheel
    Form form = Form::kContended;
    bool is_held = false;           // width 1: by a gang's member whose end is not known
    bool is_serving = false;
    bool is_touched = false;
    bool is_fifo = false;
    bool will_wake = false;         // width 1: it is on the wheel
    std::int32_t free_places = 0;   // wide
    std::int64_t wake_ns = kNever;  // wide: the earliest of its events
    ReadyQueue waiting;
    Heap<ReadyOp, ReadyBefore> ends;  // wide: (end, op) of what runs
  };

  struct GangState {
    std::int64_t begin_ns;
    std::int32_t ungranted;
  };

  // -- which form each resource has, and what is missing ---------------------------------------

  void classify() {
    constexpr std::int32_t kMixed = -2;
    struct Seen {
      std::int32_t next_op = kNone, source = kNone, priority = 0;
      bool in_row = true, tandem = true;
      std::int64_t shortest_ns = kNever;
    };
    const std::int32_t n = g_.num_resources;
    std::vector<Seen> seen(n);
    for (std::int32_t op = g_.num_ops - 1; op >= 0; --op) {
      const std::int32_t r = g_.resource[op];
      const std::int32_t wanted = r == kNone ? kNone : seen[r].next_op;
      bool leads = false;
      for (std::int32_t e = g_.first[op]; e < g_.first[op + 1]; ++e) {
        const std::int32_t next = g_.dst[e];
        ++nodes_[next].missing;
        leads |= next == wanted;
        const std::int32_t s = g_.resource[next];
        if (s == kNone) continue;
        Seen& other = seen[s];
        if (other.source == kNone) other.source = r == kNone ? kMixed : r;
        if (other.source != r) other.source = kMixed;
      }
      if (r == kNone) continue;
      Seen& own = seen[r];
      if (wanted != kNone) {
        own.in_row &= leads;
        own.tandem &= own.priority == g_.priority[op] || g_.is_fifo[r] != 0;
      }
      own.next_op = op;
      own.priority = g_.priority[op];
      own.shortest_ns = std::min(own.shortest_ns, g_.work_ns[op]);
    }
    std::int64_t shortest_ns = kNever;
    for (std::int32_t r = 0; r < n; ++r) {
      const Seen& own = seen[r];
      Lane& lane = lanes_[r];
      lane.is_fifo = g_.is_fifo[r] != 0;
      lane.width = lane.free_places = g_.width[r];
      const bool one_source = own.source >= 0 && own.source != r && g_.width[own.source] == 1;
      lane.form = own.in_row                                    ? Form::kInRow
                  : own.tandem && one_source && lane.width == 1 ? Form::kTandem
                                                                : Form::kContended;
    }
    for (std::int32_t op = 0; op < g_.num_ops; ++op) {
      Node& node = nodes_[op];
      if (node.lane == kNone) continue;
      Lane& lane = lanes_[node.lane];
      if (lane.form == Form::kInRow) {
        node.lane = kNone;
      } else if (node.missing == 0) {
        lane.form = Form::kContended;  // it would arrive from nowhere, out of turn
      }
    }
    for (std::int32_t r = 0; r < n; ++r)
      if (lanes_[r].form == Form::kContended)
        shortest_ns = std::min(shortest_ns, seen[r].shortest_ns);
    int bits = 0;
    while (bits < 40 && (std::int64_t{2} << bits) <= shortest_ns) ++bits;
    wheel_.set_slice_bits(bits);
  }

  // -- what is known without the clock ---------------------------------------------------------

  // All predecessors' ends are known.
  void arrive(std::int32_t op) {
    Node& node = nodes_[op];
    if (node.lane == kNone) {
      grant(op, node, node.at_ns);
      return;
    }
    Lane& lane = lanes_[node.lane];
    if (lane.form == Form::kContended) {
      wheel_.push(node.at_ns, op, node.missing);
      return;
    }
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
    if (node.gang == kNone) {
      finish(op, node, start_ns + node.end_ns);
      return;
    }
    node.missing = kHeld;
    if (node.lane != kNone) lanes_[node.lane].is_held = true;
    GangState& state = gang_states_[node.gang];
    state.begin_ns = std::max(state.begin_ns, start_ns);
    if (--state.ungranted == 0) complete_gangs_.push_back(node.gang);
  }

  void finish(std::int32_t op, Node& node, std::int64_t end_ns) {
    node.end_ns = end_ns;
    node.missing = kEnded;
    ended_.push_back(op);
    if (node.lane == kNone) return;
    Lane& lane = lanes_[node.lane];
    if (lane.width == 1) {
      lane.is_held = false;
      lane.free_ns = end_ns;
      lane.last_op = op;
      if (lane.form == Form::kTandem) {
        if (lane.head != kNone && !lane.is_serving) serve_tandem(lane);
      } else if (!lane.waiting.empty()) {
        wake(lane, node.lane);
      }
    } else {
      lane.ends.push({end_ns, 0, op});
      if (!lane.waiting.empty()) wake_wide(lane, node.lane, end_ns);
    }
  }

  // Apart from grant(), so that gangs behind gangs do not nest on the stack.
  void finish_gang(std::int32_t gang) {
    const std::int32_t* const members = gangs_.begin(gang);
    const std::int64_t end_ns = gang_states_[gang].begin_ns + nodes_[*members].end_ns;
    for (const std::int32_t* m = members; m != gangs_.end(gang); ++m)
      finish(*m, nodes_[*m], end_ns);
  }

  // Lets what has ended release its successors: first ended, first served, which is what keeps
  // tandems in order.
  void cascade() {
    std::size_t i = 0;
    for (;;) {
      for (; i < ended_.size(); ++i) release_successors(ended_[i]);
      if (complete_gangs_.empty()) break;
      const std::int32_t gang = complete_gangs_.back();
      complete_gangs_.pop_back();
      finish_gang(gang);
    }
    ended_.clear();
  }

  void release_successors(std::int32_t op) {
    const std::int64_t end_ns = nodes_[op].end_ns;
    const std::int32_t last = g_.first[op + 1];
    for (std::int32_t e = g_.first[op]; e < last; ++e) {
      const std::int32_t next = g_.dst[e];
      Node& node = nodes_[next];
      if (end_ns > node.at_ns) {
        node.at_ns = end_ns;
        node.cause = op;
      } else if (end_ns == node.at_ns && op < node.cause) {
        node.cause = op;
      }
      if (--node.missing == 0) arrive(next);
    }
  }

  // -- what needs the clock --------------------------------------------------------------------

  void come_in(std::int32_t op) {
    Node& node = nodes_[op];
    Lane& lane = lanes_[node.lane];
    node.missing = lane.tail;
    lane.tail = op;
    touch(lane, node.lane);
  }

  void touch(Lane& lane, std::int32_t r) {
    if (lane.is_touched) return;
    lane.is_touched = true;
    touched_.push_back(r);
  }

  ReadyOp ready(const Lane& lane, std::int32_t op) const {
    return {nodes_[op].at_ns, lane.is_fifo ? 0 : g_.priority[op], op};
  }

  // At most one operation gets the place within a slice: it ends after it.
  void decide(std::int32_t r) {
    Lane& lane = lanes_[r];
    std::int32_t incoming = lane.tail;
    lane.tail = kNone;
    lane.is_touched = false;
    if (lane.width != 1) {
      decide_wide(lane, r, incoming);
      return;
    }
    std::int64_t at_ns = lane.free_ns;
    const bool nobody_waits = lane.waiting.empty();
    if (nobody_waits) {
      std::int64_t earliest_ns = kNever;
      for (std::int32_t op = incoming; op != kNone; op = nodes_[op].missing)
        earliest_ns = std::min(earliest_ns, nodes_[op].at_ns);
      if (earliest_ns == kNever) return;
      at_ns = std::max(at_ns, earliest_ns);
    }
    const bool decides = !lane.is_held && at_ns < wheel_.slice_end_ns();
    if (decides && nobody_waits && nodes_[incoming].missing == kNone) {
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
    if (node.at_ns < at_ns) node.cause = -2 - lane.last_op;
    grant(op, node, at_ns);
  }

  void wake(Lane& lane, std::int32_t r) {
    if (lane.will_wake) return;
    lane.will_wake = true;
    wheel_.push(lane.free_ns, g_.num_ops + r, lane.link);
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
        // Equal ends leave the heap by id: the first of those that end now is the smallest.
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
    wheel_.push_far(at_ns, g_.num_ops + r);
  }

  // In a deadlock what never got its place has no start, and what never ended has no end.
  bool write_out() {
    std::int32_t num_ended = 0;
    for (std::int32_t op = 0; op < g_.num_ops; ++op) {
      const Node& node = nodes_[op];
      const bool has_ended = node.missing == kEnded;
      num_ended += has_ended;
      out_.start_ns[op] = has_ended || node.missing == kHeld ? node.at_ns : kPending;
      out_.end_ns[op] = has_ended ? node.end_ns : kPending;
      out_.cause[op] = node.cause;
    }
    return num_ended == g_.num_ops;
  }

  const GraphView g_;
  const ScheduleView out_;
  const Gangs gangs_;
  std::vector<Node> nodes_;
  std::vector<Lane> lanes_;
  std::vector<GangState> gang_states_;
  std::vector<std::int32_t> ended_, complete_gangs_, touched_, late_;
  EventWheel wheel_;
};

}  // namespace augury
