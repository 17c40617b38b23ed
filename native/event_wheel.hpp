// A clock that goes in slices of time: a ring of buckets with a bitmap that finds the next one in
// use, and a heap for what lies beyond the ring. Within a slice there is no order: who uses it
// makes slices so narrow that none is needed. Things are linked through the caller's own storage.
#pragma once

#include <cstdint>
#include <vector>

#include "heap.hpp"

namespace augury {

class EventWheel {
 public:
  static constexpr std::int32_t kEnd = -1;

  EventWheel() : heads_(kBuckets, kEnd) {}

  void set_slice_bits(int bits) { bits_ = bits; }
  std::int64_t slice_end_ns() const { return (slice_ + 1) << bits_; }

  // Links the thing into its slice; beyond the ring it is kept aside and link is left alone.
  void push(std::int64_t at_ns, std::int32_t thing, std::int32_t& link) {
    const std::int64_t slice = at_ns >> bits_;
    if (slice - slice_ >= kBuckets) {
      far_.push({at_ns, thing});
      return;
    }
    const auto bucket = static_cast<std::uint32_t>(slice) & kMask;
    link = heads_[bucket];
    heads_[bucket] = thing;
    used_[bucket >> 6] |= std::uint64_t{1} << (bucket & 63);
    used_words_ |= std::uint64_t{1} << (bucket >> 6);
  }

  void push_far(std::int64_t at_ns, std::int32_t thing) { far_.push({at_ns, thing}); }

  // Goes to the next slice with anything in it. Returns the head of its linked list; things that
  // were kept aside and belong to it go through visit.
  template <class Visit>
  bool advance(std::int32_t& head, Visit visit) {
    std::int64_t next = kNever;
    std::int32_t bucket = kEnd;
    if (used_words_ != 0) {
      bucket = next_bucket();
      next = slice_ + ((bucket - static_cast<std::int32_t>(slice_ & kMask)) & kMask);
    }
    if (!far_.empty()) {
      const std::int64_t far = far_.top().at_ns >> bits_;
      if (far < next) {
        next = far;
        bucket = kEnd;
      }
    }
    if (next == kNever) return false;
    slice_ = next;
    head = kEnd;
    if (bucket != kEnd) {
      head = heads_[bucket];
      heads_[bucket] = kEnd;
      used_[bucket >> 6] &= ~(std::uint64_t{1} << (bucket & 63));
      if (used_[bucket >> 6] == 0) used_words_ &= ~(std::uint64_t{1} << (bucket >> 6));
    }
    while (!far_.empty() && far_.top().at_ns >> bits_ == slice_) {
      visit(far_.top().thing);
      far_.pop();
    }
    return true;
  }

 private:
  static constexpr std::int32_t kBuckets = 4096;
  static constexpr std::uint32_t kMask = kBuckets - 1;
  static constexpr std::int64_t kNever = INT64_MAX;

  struct Far {
    std::int64_t at_ns;
    std::int32_t thing;
  };
  struct FarBefore {
    bool operator()(const Far& a, const Far& b) const { return a.at_ns < b.at_ns; }
  };

  // The first bucket in use at or after the present one, going round.
  std::int32_t next_bucket() const {
    const auto from = static_cast<std::uint32_t>(slice_) & kMask;
    const std::uint32_t word = from >> 6;
    const std::uint64_t here = used_[word] >> (from & 63);
    if (here != 0) return static_cast<std::int32_t>(from + __builtin_ctzll(here));
    const std::uint64_t later = word == 63 ? 0 : used_words_ >> (word + 1);
    const std::uint32_t next =
        later != 0 ? word + 1 + __builtin_ctzll(later) : __builtin_ctzll(used_words_);
    return static_cast<std::int32_t>((next << 6) + __builtin_ctzll(used_[next]));
  }

  int bits_ = 0;
  std::int64_t slice_ = 0;
  std::uint64_t used_words_ = 0;
  std::uint64_t used_[kBuckets / 64] = {};
  std::vector<std::int32_t> heads_;
  Heap<Far, FarBefore> far_;
};

}  // namespace augury
