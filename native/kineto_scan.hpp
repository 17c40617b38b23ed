// Scans a trace of torch's profiler in pieces, into one column per field of its events.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interned_strings.hpp"
#include "json_cursor.hpp"

namespace augury {

class KinetoScan {
 public:
  // Events of `skipped` categories are left out, and those of the category `frame.first` unless
  // their names start with `frame.second` or have escapes. The arguments of events whose names start with one
  // of `kept`, in lower case, are kept as they stand.
  KinetoScan(std::vector<std::string> skipped, std::pair<std::string, std::string> frame,
             std::vector<std::string> kept, std::uint64_t seed)
      : names(seed),
        categories(seed),
        threads(seed),
        skipped_(std::move(skipped)),
        frame_(std::move(frame)),
        kept_(std::move(kept)) {}

  // Scans what the next bytes complete. False: the file is not understood.
  bool feed(const char* data, std::size_t size) {
    buffer_.resize(size_);  // without the zero at its end
    buffer_.insert(buffer_.end(), data, data + size);
    size_ += size;
    // A long element is not scanned again before twice its bytes are there.
    return is_refused_ || size_ < needed_ ? !is_refused_ : scan();
  }

  // Whether the file is complete and understood.
  bool finish() {
    return !is_refused_ && scan() && has_events_ && state_ == State::after_end && is_blank();
  }

  std::int64_t num_events = 0;  // of all kinds
  InternedStrings names;        // as in the file, with escapes
  InternedStrings categories;
  InternedStrings threads;  // process and thread as in the file, with a zero between them
  std::vector<std::int32_t> name, category, thread;
  std::vector<double> start_us, dur_us;
  std::vector<std::int64_t> sequence, forward_thread, correlation, external, size_bytes;
  std::vector<std::int32_t> kept_row;
  std::string kept_args;
  std::vector<std::int64_t> kept_ends;
  // Instant events of the allocator of a device: thread, time, and the numbers of each, in the
  // order of Fields::memory.
  static constexpr int kMemoryNumbers = 6;
  std::vector<std::int32_t> memory_thread;
  std::vector<double> memory_us;
  std::vector<std::int64_t> memory_numbers;
  // (process and thread, name in quotes) of each thread that has a name, in order of the file.
  std::vector<std::pair<std::string, std::string>> thread_names;
  // Other values of the document that are read, as they stand in the file.
  std::map<std::string, std::string> head;

 private:
  enum class State { before, key, event, after_event, after_value, after_end };

  struct Fields {
    std::string_view ph, category, name, pid, tid, args, thread_name;
    bool name_has_escapes = false;
    double start_us = 0, dur_us = 0;
    std::int64_t sequence = -1, forward_thread = 0, correlation = 0, external = 0, size_bytes = 0;
    // Type and number of the device, address, size (negative for a free), bytes allocated and
    // reserved afterwards.
    std::int64_t memory[kMemoryNumbers] = {kUnknown, kUnknown, kUnknown,
                                           kUnknown, kUnknown, kUnknown};
  };
  static constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::min();

  bool scan() {
    buffer_.push_back('\0');
    JsonCursor in(buffer_.data(), buffer_.data() + size_);
    const char* complete = in.at();
    while (step(in)) complete = in.at();
    const auto used = static_cast<std::size_t>(complete - buffer_.data());
    if (in.failure() == Read::refused) is_refused_ = true;
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(used));
    size_ -= used;
    needed_ = 2 * size_;
    return !is_refused_;
  }

  // Reads the next element of the document; true if it was complete.
  bool step(JsonCursor& in) {
    switch (state_) {
      case State::before:
        if (!in.take('{')) return false;
        state_ = in.peek() == '}' ? State::after_value : State::key;
        return true;
      case State::key:
        return member(in);
      case State::event:
        if (!event(in)) return false;
        state_ = State::after_event;
        return true;
      case State::after_event:
        return separator(in, ']', State::event, State::after_value);
      case State::after_value:
        return separator(in, '}', State::key, State::after_end);
      case State::after_end:
        in.peek();
        return in.stop();  // the end of the bytes, or text after the document
    }
    return false;
  }

  bool separator(JsonCursor& in, char close, State next, State after) {
    const char found = in.peek();
    if (found != ',' && found != close) return in.stop();
    in.move_to(in.at() + 1);
    state_ = found == close ? after : next;
    return true;
  }

  bool member(JsonCursor& in) {
    std::string_view key;
    if (!in.plain_string(key) || !in.take(':')) return false;
    if (key == "traceEvents") {
      if (has_events_) return in.refuse();
      if (!in.take('[')) return false;
      const char next = in.peek();
      if (next == 0) return in.stop();
      has_events_ = true;
      state_ = next == ']' ? State::after_event : State::event;
      return true;
    }
    in.peek();
    const char* begin = in.at();
    if (!in.skip_value()) return false;
    if (key == "baseTimeNanoseconds" || key == "distributedInfo" || key == "host_name" ||
        key == "deviceProperties")
      head[std::string(key)] = std::string(begin, in.at());
    state_ = State::after_value;
    return true;
  }

  bool event(JsonCursor& in) {
    Fields own;
    own.pid = own.tid = "0";
    if (!in.take('{')) return false;
    if (in.peek() == '}') {
      in.move_to(in.at() + 1);
    } else {
      for (;;) {
        std::string_view key;
        if (!in.plain_string(key) || !in.take(':') || !field(in, key, own)) return false;
        const char next = in.peek();
        if (next != ',' && next != '}') return in.stop();
        in.move_to(in.at() + 1);
        if (next == '}') break;
      }
    }
    ++num_events;
    if (own.ph == "X") {
      if (!is_skipped(own)) add(own);
    } else if (own.ph == "i" && own.memory[0] > 0) {
      if (own.name_has_escapes) return in.refuse();
      if (own.name == "[memory]") add_memory(own);
    } else if (own.ph == "M") {
      if (own.name_has_escapes) return in.refuse();
      if (own.name == "thread_name" && own.thread_name.size() > 2)
        thread_names.emplace_back(thread_key(own), std::string(own.thread_name));
    }
    return true;
  }

  bool field(JsonCursor& in, std::string_view key, Fields& own) {
    const char first = in.peek();
    if (key == "ph") return in.plain_string(own.ph);
    if (key == "cat") {
      own.category = {};
      return first == 'n' ? in.literal("null") : in.plain_string(own.category);
    }
    if (key == "name") return in.string(own.name, own.name_has_escapes);
    if (key == "pid") return process(in, own.pid);
    if (key == "tid") return process(in, own.tid);
    if (key == "ts") return in.real(own.start_us);
    if (key == "dur") return in.real(own.dur_us);
    if (key == "args") {
      if (!own.args.empty()) return in.refuse();
      if (first == 'n') return in.literal("null");
      const char* begin = in.at();
      if (!arguments(in, own)) return false;
      own.args = {begin, static_cast<std::size_t>(in.at() - begin)};
      return true;
    }
    return in.skip_value();
  }

  bool process(JsonCursor& in, std::string_view& text) {
    if (in.peek() == '"') {
      const char* begin = in.at();
      if (!in.plain_string(text)) return false;
      text = {begin, static_cast<std::size_t>(in.at() - begin)};  // with its quotes
      return true;
    }
    return in.integer(text) && ((text.size() <= 18 && text != "-0") || in.refuse());
  }

  bool arguments(JsonCursor& in, Fields& own) {
    if (!in.take('{')) return false;
    if (in.peek() == '}') {
      in.move_to(in.at() + 1);
      return true;
    }
    for (;;) {
      std::string_view key;
      if (!in.plain_string(key) || !in.take(':') || !argument(in, key, own)) return false;
      const char next = in.peek();
      if (next != ',' && next != '}') return in.stop();
      in.move_to(in.at() + 1);
      if (next == '}') return true;
    }
  }

  bool argument(JsonCursor& in, std::string_view key, Fields& own) {
    switch (key.size()) {
      case 4:
        if (key == "name") {
          own.thread_name = {};
          if (in.peek() == 'n') return in.literal("null");
          const char* begin = in.at();
          std::string_view text;
          bool has_escapes = false;
          if (!in.string(text, has_escapes)) return false;
          own.thread_name = {begin, static_cast<std::size_t>(in.at() - begin)};
          return true;
        }
        if (key == "Addr") return whole(in, own.memory[2]);
        break;
      case 5:
        if (key == "bytes") return size(in, own.size_bytes);
        if (key == "Bytes") return whole(in, own.memory[3]);
        break;
      case 9:
        if (key == "Device Id") return whole(in, own.memory[1]);
        break;
      case 11:
        if (key == "Device Type") return whole(in, own.memory[0]);
        if (key == "correlation") return id(in, own.correlation, 0);
        if (key == "External id") return id(in, own.external, 0);
        break;
      case 13:
        if (key == "Fwd thread id") return id(in, own.forward_thread, 0);
        break;
      case 14:
        if (key == "Total Reserved") return whole(in, own.memory[5]);
        break;
      case 15:
        if (key == "Sequence number") return id(in, own.sequence, -1);
        if (key == "Total Allocated") return whole(in, own.memory[4]);
        break;
    }
    return in.skip_value();
  }

  bool id(JsonCursor& in, std::int64_t& value, std::int64_t unknown) {
    value = unknown;
    if (in.peek() == 'n') return in.literal("null");
    std::string_view text;
    if (!in.integer(text)) return false;
    const bool is_negative = text[0] == '-';
    if (text.size() - is_negative > 18) return true;  // no number that a profiler counts up to
    std::int64_t sum = 0;
    for (char c : text.substr(is_negative)) sum = sum * 10 + (c - '0');
    value = is_negative ? -sum : sum;
    return true;
  }

  // A whole number of up to 18 digits; any other value is unknown.
  bool whole(JsonCursor& in, std::int64_t& value) {
    value = kUnknown;
    const char first = in.peek();
    if (first != '-' && (first < '0' || first > '9')) return in.skip_value();
    const char* begin = in.at();
    if (!in.skip_value()) return false;
    const std::string_view text(begin, static_cast<std::size_t>(in.at() - begin));
    const bool is_negative = text[0] == '-';
    if (text.size() - is_negative > 18) return true;
    std::int64_t sum = 0;
    for (char c : text.substr(is_negative)) {
      if (c < '0' || c > '9') return true;
      sum = sum * 10 + (c - '0');
    }
    value = is_negative ? -sum : sum;
    return true;
  }

  // A number, or digits in quotes: some profilers write it so.
  bool size(JsonCursor& in, std::int64_t& value) {
    value = 0;
    const char first = in.peek();
    if (first == 'n') return in.literal("null");
    if (first == '"') {
      std::string_view text;
      if (!in.plain_string(text)) return false;
      std::int64_t sum = 0;
      for (char c : text) {
        if (c < '0' || c > '9' || text.size() >= 18) return true;
        sum = sum * 10 + (c - '0');
      }
      value = sum;
      return true;
    }
    double found = 0;
    if (!in.real(found)) return false;
    if (found >= 0 && found < 1152921504606846976.0) value = static_cast<std::int64_t>(found);
    return true;
  }

  // Whether nothing but white space is left.
  bool is_blank() const {
    for (std::size_t i = 0; i < size_; ++i)
      if (std::strchr(" \n\r\t", buffer_[i]) == nullptr || buffer_[i] == 0) return false;
    return true;
  }

  bool is_skipped(const Fields& own) const {
    if (own.category == frame_.first)
      return !own.name_has_escapes && own.name.substr(0, frame_.second.size()) != frame_.second;
    for (const std::string& one : skipped_)
      if (own.category == one) return true;
    return false;
  }

  static std::string thread_key(const Fields& own) {
    std::string key(own.pid);
    key.push_back('\0');
    return key.append(own.tid);
  }

  std::int32_t thread_number(const Fields& own) {
    if (own.pid != last_pid_ || own.tid != last_tid_) {
      last_pid_ = own.pid;
      last_tid_ = own.tid;
      last_thread_ = threads.number(thread_key(own));
    }
    return last_thread_;
  }

  void add_memory(const Fields& own) {
    memory_thread.push_back(thread_number(own));
    memory_us.push_back(own.start_us);
    memory_numbers.insert(memory_numbers.end(), own.memory, own.memory + kMemoryNumbers);
  }

  void add(const Fields& own) {
    const auto row = static_cast<std::int32_t>(name.size());
    const std::int32_t number = names.number(own.name);
    if (static_cast<std::size_t>(number) == is_kept_.size())
      is_kept_.push_back(own.name_has_escapes || starts_as_kept(own.name));
    name.push_back(number);
    category.push_back(categories.number(own.category));
    thread.push_back(thread_number(own));
    start_us.push_back(own.start_us);
    dur_us.push_back(own.dur_us);
    sequence.push_back(own.sequence);
    forward_thread.push_back(own.forward_thread);
    correlation.push_back(own.correlation);
    external.push_back(own.external);
    size_bytes.push_back(own.size_bytes);
    if (is_kept_[number] && !own.args.empty()) {
      kept_row.push_back(row);
      kept_args.append(own.args);
      kept_ends.push_back(static_cast<std::int64_t>(kept_args.size()));
    }
  }

  bool starts_as_kept(std::string_view text) const {
    for (const std::string& prefix : kept_) {
      if (text.size() < prefix.size()) continue;
      std::size_t i = 0;
      for (; i < prefix.size(); ++i) {
        const char c = text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] + 32) : text[i];
        if (c != prefix[i]) break;
      }
      if (i == prefix.size()) return true;
    }
    return false;
  }

  std::vector<std::string> skipped_;
  std::pair<std::string, std::string> frame_;
  std::vector<std::string> kept_;
  State state_ = State::before;
  bool has_events_ = false;
  bool is_refused_ = false;
  std::vector<char> buffer_;
  std::size_t size_ = 0;    // of the bytes in the buffer
  std::size_t needed_ = 0;  // bytes before the next attempt
  std::vector<bool> is_kept_;
  std::string last_pid_, last_tid_;
  std::int32_t last_thread_ = -1;
};

}  // namespace augury
