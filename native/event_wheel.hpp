// A clock that advances in slices of time: a ring of buckets with a bitmap that finds the next one
// in use, and a heap for events beyond the ring. Events within a slice have no order: the caller
// chooses slices so narrow that none is needed. Events are linked through the caller's storage.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "heap.hpp"

namespace augury {

class EventWheel {
 public:
  void set_slice_bits(int bits) { bits_ = bits; }
  std::int64_t slice_end_ns() const { return end_ns(slice_); }

  // Valid for slices after the current one, once the clock has advanced.
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

  static constexpr std::int64_t kNever = INT64_MAX;

  // Returns the next slice with an event, or kNever.
  std::int64_t next_slice() const {
    std::int64_t next = kNever;
    if (used_words_ != 0)
      next = slice_ + ((next_bucket() - static_cast<std::int32_t>(slice_ & kMask)) & kMask);
    if (!far_.empty()) next = std::min(next, far_.top().at_ns >> bits_);
    return next;
  }

  std::int64_t end_ns(std::int64_t slice) const { return (slice + 1) << bits_; }

  // Advances to that slice. Returns the head of its list, and appends events from the heap to
  // `far`.
  std::int32_t advance(std::int64_t slice, std::vector<std::int32_t>& far) {
    slice_ = slice;
    const auto bucket = static_cast<std::uint32_t>(slice) & kMask;
    const std::int32_t head = heads_[bucket];
    if (head != kEnd) {
      heads_[bucket] = kEnd;
      const std::uint64_t rest = used_[bucket >> 6] & ~(std::uint64_t{1} << (bucket & 63));
      used_[bucket >> 6] = rest;
      if (rest == 0) used_words_ &= ~(std::uint64_t{1} << (bucket >> 6));
    }
    while (!far_.empty() && far_.top().at_ns >> bits_ == slice) {
      far.push_back(far_.top().thing);
      far_.pop();
    }
    return head;
  }

  static constexpr std::int32_t kEnd = -1;

 private:
  static constexpr std::int32_t kBuckets = 4096;
  static constexpr std::uint32_t kMask = kBuckets - 1;
  static constexpr std::uint32_t kWords = kBuckets / 64;

  struct Far {
    std::int64_t at_ns;
    std::int32_t thing;
  };
  struct FarBefore {
    bool operator()(const Far& a, const Far& b) const { return a.at_ns < b.at_ns; }
  };

  // Returns the first bucket in use at or after the current one, cyclically.
  std::int32_t next_bucket() const {
    const auto from = static_cast<std::uint32_t>(slice_) & kMask;
    const std::uint32_t word = from >> 6;
    const std::uint64_t here = used_[word] >> (from & 63);
    if (here != 0) return static_cast<std::int32_t>(from + __builtin_ctzll(here));
    const std::uint64_t later = word == 63 ? 0 : used_words_ >> (word + 1) << (word + 1);
    const std::uint32_t next = __builtin_ctzll(later != 0 ? later : used_words_);
    return static_cast<std::int32_t>((next << 6) + __builtin_ctzll(used_[next]));
  }

  int bits_ = 0;
  std::int64_t slice_ = 0;
  std::uint64_t used_words_ = 0;
  std::uint64_t used_[kWords] = {};
  std::vector<std::int32_t> heads_ = std::vector<std::int32_t>(kBuckets, kEnd);
  Heap<Far, FarBefore> far_;
};

}  // namespace augury
