// Peak memory of each rank by kind and layer. Events are not sorted as a whole: coarse slices of
// time bound where a rank's peak can be, and only events within those slices are sorted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "graph.hpp"
#include "windows.hpp"

namespace augury {

struct BuffersView {
  std::int32_t count;
  const std::int32_t* rank;
  const std::int32_t* taken_by;
  const std::int32_t* given_by;
  const std::int64_t* size_bytes;
  const std::uint8_t* kind;
  const std::uint8_t* later;
  const std::int32_t* layer;
};

// The semantics are those of replay/peak_memory.py on the unrolled graph.
class PeakMemory {
 public:
  // One entry per rank that has buffers.
  std::vector<std::int32_t> rank;
  std::vector<std::int64_t> size_bytes, at_ns;
  // Bytes held at the peaks, summed by kind and layer.
  std::vector<std::int32_t> holder_rank, holder_kind, holder_layer;
  std::vector<std::int64_t> holder_bytes;

  PeakMemory(const Windows& windows, const BuffersView& buffers, std::int32_t num_ranks,
             const std::int64_t* start_ns, const std::int64_t* end_ns)
      : windows_(windows), b_(buffers), start_ns_(start_ns), end_ns_(end_ns) {
    last_ns_ = *std::max_element(end_ns, end_ns + windows.num_ops);
    number_layers();
    find_held(num_ranks);
    for (std::int32_t r = 0; r < num_ranks; ++r)
      if (first_[r] != end_[r]) look_at(r, {first_[r], end_[r]});
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t kFromTheBeginning = 0;
  static constexpr std::int32_t kNotChosen = -2;
  static constexpr std::int32_t kNumKinds = 16;  // more than there are (core/enums.py)

  struct Held {
    std::int64_t taken_ns, given_ns;
    std::int32_t buffer;
  };
  struct Range {
    const Held *first, *last;
    const Held* begin() const { return first; }
    const Held* end() const { return last; }
  };
  struct Slice {
    std::int64_t net_bytes = 0;
    std::int64_t taken_bytes = 0;
    bool has_events = false;
    std::int32_t events = kNotChosen;  // the first of a list, where they are looked at
  };
  struct Event {
    std::int64_t at_ns, change_bytes;
    std::int32_t next;
  };
  struct Peak {
    std::int64_t size_bytes, at_ns;
  };

  // Collects the buffers of all windows by rank. A buffer that is freed when it is allocated, or
  // before, does not count. Buffers are read in their own order, which is mostly that of time.
  void find_held(std::int32_t num_ranks) {
    std::vector<std::int64_t> most(num_ranks, 0);
    for (std::int32_t i = 0; i < b_.count; ++i) most[b_.rank[i]] += windows_.count;
    // Not initialized: that would take as long as filling it.
    held_.reset(new Held[static_cast<std::size_t>(b_.count) * windows_.count]);
    Held* first = held_.get();
    for (const std::int64_t room : most) {
      end_.push_back(first);
      first += room;
    }
    first_.assign(end_.begin(), end_.end());
    const std::int64_t num_ops = windows_.g.num_ops;
    for (std::int32_t i = 0; i < b_.count; ++i) {
      const std::int32_t taken_by = b_.taken_by[i], given_by = b_.given_by[i];
      const std::int32_t num_copies = taken_by == kNone ? 1 : windows_.count;
      const std::int32_t num_given = given_by == kNone ? 0 : windows_.count - (b_.later[i] ? 1 : 0);
      const std::int64_t* taken_ns = taken_by == kNone ? &kFromTheBeginning : start_ns_ + taken_by;
      const std::int64_t* given_ns = end_ns_ + given_by + (b_.later[i] ? num_ops : 0);
      Held*& end = end_[b_.rank[i]];
      for (std::int32_t window = 0; window < num_copies; ++window) {
        const std::int64_t at = taken_ns[window * num_ops];
        const std::int64_t until = window < num_given ? given_ns[window * num_ops] : kNever;
        *end = {at, until, i};
        end += at < until;
      }
    }
  }

  void look_at(std::int32_t r, const Range& held) {
    cut_time(held);
    choose_slices();
    events_.clear();
    for (const Held& own : held) {
      note(own.taken_ns, b_.size_bytes[own.buffer]);
      if (own.given_ns != kNever) note(own.given_ns, -b_.size_bytes[own.buffer]);
    }
    const Peak peak = find_peak();
    rank.push_back(r);
    size_bytes.push_back(peak.size_bytes);
    at_ns.push_back(peak.at_ns);
    find_holders(r, held, peak.at_ns);
  }

  // -- slices of time -------------------------------------------------------------------------

  // About as many slices as buffers.
  void cut_time(const Range& held) {
    const std::int64_t most = held.last - held.first;
    slice_bits_ = 0;
    while ((last_ns_ >> slice_bits_) >= most) ++slice_bits_;
    slices_.assign(static_cast<std::size_t>(last_ns_ >> slice_bits_) + 1, Slice{});
    for (const Held& own : held) {
      const std::int64_t size = b_.size_bytes[own.buffer];
      Slice& taken = slice(own.taken_ns);
      taken.net_bytes += size;
      taken.taken_bytes += size;
      taken.has_events = true;
      if (own.given_ns == kNever) continue;
      Slice& given = slice(own.given_ns);
      given.net_bytes -= size;
      given.has_events = true;
    }
  }

  Slice& slice(std::int64_t at) { return slices_[at >> slice_bits_]; }

  // The peak is at least the memory held at the end of any slice, and at most the memory held at
  // the start of its own slice and all that is allocated in it. The last of equal peaks counts.
  void choose_slices() {
    std::int64_t held = 0, least = -1;
    const Slice* last = slices_.data();
    for (const Slice& own : slices_) {
      held += own.net_bytes;
      if (own.has_events && held >= least) {
        least = held;
        last = &own;
      }
    }
    held = 0;
    for (Slice& own : slices_) {
      const std::int64_t most = held + own.taken_bytes;
      held += own.net_bytes;
      if (own.has_events && (most > least || (most == least && &own >= last))) own.events = kNone;
    }
  }

  void note(std::int64_t at, std::int64_t change_bytes) {
    Slice& own = slice(at);
    if (own.events == kNotChosen) return;
    events_.push_back({at, change_bytes, own.events});
    own.events = static_cast<std::int32_t>(events_.size()) - 1;
  }

  // -- peaks ----------------------------------------------------------------------------------

  Peak find_peak() {
    Peak peak{-1, 0};
    std::int64_t held = 0;
    for (const Slice& own : slices_) {
      if (own.events >= 0) look_into(own.events, held, peak);
      held += own.net_bytes;
    }
    return peak;
  }

  // At one time stamp memory is freed before other memory is allocated, so the maximum at a time
  // stamp is the memory held after it.
  void look_into(std::int32_t first, std::int64_t held, Peak& peak) {
    sorted_.clear();
    for (std::int32_t e = first; e != kNone; e = events_[e].next) sorted_.push_back(events_[e]);
    std::sort(sorted_.begin(), sorted_.end(),
              [](const Event& a, const Event& b) { return a.at_ns < b.at_ns; });
    for (std::size_t i = 0; i < sorted_.size(); ++i) {
      held += sorted_[i].change_bytes;
      if (i + 1 < sorted_.size() && sorted_[i + 1].at_ns == sorted_[i].at_ns) continue;
      if (held >= peak.size_bytes) peak = {held, sorted_[i].at_ns};
    }
  }

  // -- holders --------------------------------------------------------------------------------

  void find_holders(std::int32_t r, const Range& held, std::int64_t peak_ns) {
    row_of_.assign(row_of_.size(), kNone);
    for (const Held& own : held) {
      if (own.taken_ns > peak_ns || peak_ns >= own.given_ns) continue;
      const std::int32_t i = own.buffer;
      const std::size_t place = std::size_t{kNumKinds} * layer_of_[b_.layer[i] + 1] + b_.kind[i];
      if (place >= row_of_.size()) row_of_.resize(place + kNumKinds, kNone);
      if (row_of_[place] == kNone) {
        row_of_[place] = static_cast<std::int32_t>(holder_rank.size());
        holder_rank.push_back(r);
        holder_kind.push_back(b_.kind[i]);
        holder_layer.push_back(b_.layer[i]);
        holder_bytes.push_back(0);
      }
      holder_bytes[row_of_[place]] += b_.size_bytes[i];
    }
  }

  void number_layers() {
    std::int32_t count = 0;
    for (std::int32_t i = 0; i < b_.count; ++i) {
      const auto name = static_cast<std::size_t>(b_.layer[i] + 1);
      if (name >= layer_of_.size()) layer_of_.resize(name + 1, kNone);
      if (layer_of_[name] == kNone) layer_of_[name] = count++;
    }
  }

  const Windows& windows_;
  const BuffersView b_;
  const std::int64_t* const start_ns_;
  const std::int64_t* const end_ns_;
  std::int64_t last_ns_;
  // Number of each layer among the layers of buffers, by 1 + its string.
  std::vector<std::int32_t> layer_of_;
  std::vector<std::int32_t> row_of_;  // index of the holder, by layer and kind

  std::vector<Held*> first_, end_;  // of each rank in held_
  std::unique_ptr<Held[]> held_;

  // State of the current rank.
  int slice_bits_ = 0;
  std::vector<Slice> slices_;
  std::vector<Event> events_;  // of chosen slices
  std::vector<Event> sorted_;
};

}  // namespace augury
