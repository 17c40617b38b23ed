// A strict, resumable reader of JSON text: it stops at the end of the bytes read so far, or refuses.
//
// The text may be hostile. Anything unusual is refused: the caller then reads the file with a
// general decoder, which accepts it or explains what is wrong.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace augury {

// A value was read, or the text ends within it, or it is refused.
enum class Read { done, more, refused };

class JsonCursor {
 public:
  // The byte at `end` is readable and zero, so that loops need no comparison with the end.
  JsonCursor(const char* begin, const char* end) : at_(begin), end_(end) {}

  const char* at() const { return at_; }
  void move_to(const char* place) { at_ = place; }
  Read failure() const { return failure_; }

  // Reports why nothing more can be read here: the text ends, or it is refused.
  bool stop() {
    failure_ = at_ >= end_ ? Read::more : Read::refused;
    return false;
  }

  bool refuse() {
    failure_ = Read::refused;
    return false;
  }

  char peek() {
    while (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t') ++at_;
    return *at_;
  }

  bool take(char expected) {
    if (peek() != expected) return stop();
    ++at_;
    return true;
  }

  // Reads a string; `text` is what stands between the quotes, with its escapes.
  bool string(std::string_view& text, bool& has_escapes) {
    if (!take('"')) return false;
    const char* begin = at_;
    has_escapes = false;
    for (;;) {
      while (is_plain(*at_)) ++at_;
      const auto byte = static_cast<unsigned char>(*at_);
      if (byte == '"') break;
      if (byte == '\\') {
        has_escapes = true;
        if (!escape()) return false;
      } else if (byte >= 0x80) {
        if (!wide_character()) return false;
      } else {
        return stop();
      }
    }
    text = {begin, static_cast<std::size_t>(at_ - begin)};
    ++at_;
    return true;
  }

  bool plain_string(std::string_view& text) {
    bool has_escapes = false;
    return string(text, has_escapes) && (!has_escapes || refuse());
  }

  // Reads an integer; `digits` is its text with the sign. A fraction or an exponent is refused.
  bool integer(std::string_view& digits) {
    bool is_integer = false;
    return number(digits, is_integer) && (is_integer || refuse());
  }

  bool real(double& value) {
    std::string_view text;
    bool is_integer = false;
    peek();
    const char* begin = at_;
    if (!number(text, is_integer)) return false;
    // A quotient of two exact numbers is rounded once, as the nearest number is.
    const char* p = begin + (*begin == '-');
    std::uint64_t mantissa = 0;
    int num_digits = 0;
    int num_decimals = 0;
    bool is_short = true;
    bool has_point = false;
    for (; p < at_ && is_short; ++p) {
      if (*p == '.') {
        has_point = true;
      } else if (*p >= '0' && *p <= '9') {
        mantissa = mantissa * 10 + static_cast<std::uint64_t>(*p - '0');
        num_decimals += has_point;
        is_short = ++num_digits <= 18;
      } else {
        is_short = false;
      }
    }
    if (is_short && mantissa <= (std::uint64_t{1} << 53)) {
      static constexpr double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8, 1e9,
                                          1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};
      value = static_cast<double>(mantissa) / powers[num_decimals];
      if (*begin == '-') value = -value;
      return true;
    }
#if defined(__cpp_lib_to_chars)
    const auto found = std::from_chars(text.data(), text.data() + text.size(), value);
    return (found.ec == std::errc() && found.ptr == at_) || refuse();
#else
    return refuse();
#endif
  }

  bool literal(std::string_view word) {
    const auto left = static_cast<std::size_t>(end_ - at_);
    const std::size_t size = left < word.size() ? left : word.size();
    if (std::memcmp(at_, word.data(), size) != 0) return refuse();
    at_ += size;
    return size == word.size() || stop();
  }

  bool skip_value(int depth = 0) {
    std::string_view text;
    bool flag = false;
    switch (peek()) {
      case '"':
        return string(text, flag);
      case '{':
        return skip_members(depth, true, '}');
      case '[':
        return skip_members(depth, false, ']');
      case 't':
        return literal("true");
      case 'f':
        return literal("false");
      case 'n':
        return literal("null");
      default:
        return number(text, flag);
    }
  }

 private:
  static constexpr int kMaxDepth = 100;

  static bool is_plain(char c) {
    static constexpr auto plain = [] {
      std::array<bool, 256> table{};
      for (int byte = 0x20; byte < 0x80; ++byte) table[byte] = byte != '"' && byte != '\\';
      return table;
    }();
    return plain[static_cast<unsigned char>(c)];
  }

  bool skip_members(int depth, bool has_keys, char close) {
    if (depth > kMaxDepth) return refuse();
    ++at_;
    if (peek() == close) {
      ++at_;
      return true;
    }
    for (;;) {
      std::string_view key;
      bool flag = false;
      if (has_keys && (!string(key, flag) || !take(':'))) return false;
      if (!skip_value(depth + 1)) return false;
      const char next = peek();
      if (next != ',' && next != close) return stop();
      ++at_;
      if (next == close) return true;
    }
  }

  bool number(std::string_view& text, bool& is_integer) {
    peek();
    const char* begin = at_;
    if (*at_ == '-') ++at_;
    if (!is_digit(*at_)) return stop();
    if (*at_ == '0') {
      ++at_;
    } else {
      skip_digits();
    }
    is_integer = true;
    if (*at_ == '.') {
      is_integer = false;
      ++at_;
      if (!is_digit(*at_)) return stop();
      skip_digits();
    }
    if (*at_ == 'e' || *at_ == 'E') {
      is_integer = false;
      ++at_;
      if (*at_ == '+' || *at_ == '-') ++at_;
      if (!is_digit(*at_)) return stop();
      skip_digits();
    }
    if (at_ >= end_) return stop();  // it may continue
    text = {begin, static_cast<std::size_t>(at_ - begin)};
    return true;
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  void skip_digits() {
    while (is_digit(*at_)) ++at_;
  }

  bool escape() {
    ++at_;
    if (*at_ == 'u') {
      ++at_;
      const char* code = at_;
      for (int i = 0; i < 4; ++i, ++at_) {
        const char c = *at_;
        if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F')) return stop();
      }
      // Halves of a surrogate pair may stand alone.
      const bool is_surrogate =
          (code[0] == 'd' || code[0] == 'D') && !(code[1] >= '0' && code[1] <= '7');
      return !is_surrogate || refuse();
    }
    if (*at_ == 0 || std::strchr("\"\\/bfnrt", *at_) == nullptr) return stop();
    ++at_;
    return true;
  }

  // One character of two to four bytes in UTF-8.
  bool wide_character() {
    const auto byte = [this](int i) { return static_cast<unsigned char>(at_[i]); };
    const auto first = byte(0);
    int size = 0;
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    if (first >= 0xC2 && first <= 0xDF) {
      size = 2;
    } else if (first >= 0xE0 && first <= 0xEF) {
      size = 3;
      if (first == 0xE0) low = 0xA0;
      if (first == 0xED) high = 0x9F;
    } else if (first >= 0xF0 && first <= 0xF4) {
      size = 4;
      if (first == 0xF0) low = 0x90;
      if (first == 0xF4) high = 0x8F;
    } else {
      return refuse();
    }
    for (int i = 1; i < size; ++i) {
      if (at_ + i >= end_) {
        failure_ = Read::more;
        return false;
      }
      if (byte(i) < low || byte(i) > high) return refuse();
      low = 0x80;
      high = 0xBF;
    }
    at_ += size;
    return true;
  }

  const char* at_;
  const char* end_;
  Read failure_ = Read::done;
};

}  // namespace augury
