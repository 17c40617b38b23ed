// Views of a Graph's columns. They do not own memory.
#pragma once

#include <cstdint>

namespace augury {

constexpr std::int32_t kNone = -1;
constexpr std::int32_t kNoCause = -1;
constexpr std::int64_t kPending = -1;
constexpr int kRateBits = 20;
constexpr std::int64_t kRateOne = std::int64_t{1} << kRateBits;

struct GraphView {
  std::int32_t num_ops;
  std::int32_t num_resources;
  std::int32_t num_gangs;
  std::int32_t num_rules;

  const std::int64_t* work_ns;
  const std::int32_t* resource;
  const std::int32_t* priority;
  const std::int32_t* gang;

  const std::int32_t* first;
  const std::int32_t* dst;

  const std::int32_t* width;
  const std::int64_t* capacity;
  const std::uint8_t* is_fifo;

  const std::int32_t* victim;
  const std::int32_t* aggressor;
  const std::int64_t* rate;
};

struct ScheduleView {
  std::int64_t* start_ns;
  std::int64_t* end_ns;
  std::int32_t* cause;
};

}  // namespace augury
