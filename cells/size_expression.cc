#include "stepnet/cells/size_expression.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include "stepnet/core/error.h"
#include "stepnet/core/name_characters.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

using ValueOf = std::function<std::int64_t(const std::string& name)>;

// By recursive descent: sum := product {(+|-) product}; product := factor {(*|/) factor}.
class Evaluator {
 public:
  // Without `computes` only the form of the text is looked at.
  Evaluator(const std::string& text, const ValueOf& value_of, bool computes)
      : text_(text), value_of_(value_of), computes_(computes) {}

  std::int64_t Run() {
    const std::int64_t value = Sum(/*depth=*/0);
    SkipSpace();
    if (at_ < text_.size()) Fail(StrCat("'", text_[at_], "' is not expected"));
    return value;
  }

 private:
  [[noreturn]] void Fail(const std::string& why) const {
    constexpr size_t kMaxShown = 60;
    const std::string shown = text_.size() <= kMaxShown ? text_ : text_.substr(0, kMaxShown) + "…";
    throw Error(ErrorCode::kInvalidArgument, StrCat("\"", shown, "\" is no size: ", why));
  }

  void SkipSpace() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  // Steps over `c` if it is next.
  bool Take(char c) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::int64_t Sum(int depth) {
    std::int64_t value = Product(depth);
    while (true) {
      if (Take('+')) {
        if (__builtin_add_overflow(value, Product(depth), &value)) Fail("it is too large");
      } else if (Take('-')) {
        if (__builtin_sub_overflow(value, Product(depth), &value)) Fail("it is too large");
      } else {
        return value;
      }
    }
  }

  std::int64_t Product(int depth) {
    std::int64_t value = Factor(depth);
    while (true) {
      if (Take('*')) {
        if (__builtin_mul_overflow(value, Factor(depth), &value)) Fail("it is too large");
      } else if (Take('/')) {
        const std::int64_t divisor = Factor(depth);
        if (!computes_) continue;
        if (divisor <= 0) Fail(StrCat("it divides by ", divisor));
        if (value % divisor != 0) Fail(StrCat(value, " cannot be divided by ", divisor));
        value /= divisor;
      } else {
        return value;
      }
    }
  }

  std::int64_t Factor(int depth) {
    constexpr int kMaxNesting = 50;
    if (depth > kMaxNesting) Fail("it nests too deep");
    if (Take('(')) {
      const std::int64_t value = Sum(depth + 1);
      if (!Take(')')) Fail("a bracket is not closed");
      return value;
    }
    if (Take('-')) {
      std::int64_t value = 0;
      if (__builtin_sub_overflow(value, Factor(depth + 1), &value)) Fail("it is too large");
      return value;
    }
    if (at_ >= text_.size()) Fail(text_.empty() ? "it is empty" : "it ends too early");
    const size_t begin = at_;
    if (IsNameStart(text_[at_])) {
      while (at_ < text_.size() && IsWordPart(text_[at_])) ++at_;
      return value_of_(text_.substr(begin, at_ - begin));
    }
    std::int64_t value = 0;
    const auto [end, fault] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (fault == std::errc::result_out_of_range) Fail("it is too large");
    if (fault != std::errc()) Fail(StrCat("'", text_[at_], "' is not expected"));
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  const std::string& text_;
  const ValueOf& value_of_;
  const bool computes_;
  size_t at_ = 0;
};

}  // namespace

std::int64_t EvaluateSize(const std::string& text, const CellSizes& sizes) {
  const ValueOf value_of = [&](const std::string& name) {
    if (const auto found = sizes.find(name); found != sizes.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [known, value] : sizes) names.push_back(known);
    throw Error(ErrorCode::kInvalidArgument, StrCat("the size ", name, text == name ? "" : " in \"" + text + "\"",
                                                    " has no value", DidYouMean(name, names)));
  };
  return Evaluator(text, value_of, /*computes=*/true).Run();
}

std::vector<std::string> NamesInSize(const std::string& text) {
  std::vector<std::string> names;
  const ValueOf value_of = [&](const std::string& name) -> std::int64_t {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    return 1;
  };
  Evaluator(text, value_of, /*computes=*/false).Run();
  return names;
}

}  // namespace stepnet
