// Values that events take from the events around them on their threads.
#pragma once

#include <cstdint>

namespace augury {

// The innermost event around each event on its stream, or -1. Rows are sorted by (stream, start,
// longest first). An event that ends where the next one starts does not enclose it.
inline void enclosing(std::int64_t num_events, const std::int32_t* stream,
                      const std::int64_t* start_ns, const std::int64_t* dur_ns,
                      std::int32_t* parent) {
  for (std::int64_t i = 0; i < num_events; ++i) {
    std::int32_t around =
        i > 0 && stream[i - 1] == stream[i] ? static_cast<std::int32_t>(i - 1) : -1;
    // Events between an event and the one around it end before it starts.
    while (around >= 0 && start_ns[around] + dur_ns[around] <= start_ns[i])
      around = parent[around];
    parent[i] = around;
  }
}

// Fills values that are inherited from the event around; parents come before their children.
inline void inherit(std::int64_t num_events, const std::int32_t* parent,
                    const std::uint8_t* inherits, std::int32_t* value) {
  for (std::int64_t i = 0; i < num_events; ++i)
    if (inherits[i] && parent[i] >= 0) value[i] = value[parent[i]];
}

// Fills phases: an event has the phase of the event around it unless its own is stated, which does
// not count within a phase that `covers` what it encloses.
inline void inherit_phases(std::int64_t num_events, const std::int32_t* parent,
                           const std::uint8_t* covers, std::uint8_t unstated,
                           std::uint8_t* phase) {
  for (std::int64_t i = 0; i < num_events; ++i) {
    if (parent[i] < 0) continue;
    const std::uint8_t around = phase[parent[i]];
    if (phase[i] == unstated || covers[around]) phase[i] = around;
  }
}

}  // namespace augury
