#include "stepnet/cells/size_expression.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <type_traits>

#include "stepnet/core/error.h"
#include "stepnet/core/name_characters.h"
#include "stepnet/core/strings.h"

namespace stepnet {
namespace {

using ValueOf = std::function<std::int64_t(const std::string& name)>;

// By recursive descent: sum := product {(+|-) product}; product := factor {(*|/) factor}. Computes with int64, in which
// a division must leave no rest, or with double.
template <typename Number>
class Evaluator {
 public:
  // Without `computes` only the form of the text is looked at.
  Evaluator(const std::string& text, const ValueOf& value_of, bool computes)
      : text_(text), value_of_(value_of), computes_(computes) {}

  Number Run() {
    const Number value = Sum(/*depth=*/0);
    SkipSpace();
    if (at_ < text_.size()) Fail(StrCat("'", text_[at_], "' is not expected"));
    if (!kIsWhole && !std::isfinite(static_cast<float>(value))) Fail("it is beyond what a float can hold");
    return value;
  }

 private:
  static constexpr bool kIsWhole = std::is_same_v<Number, std::int64_t>;

  [[noreturn]] void Fail(const std::string& why) const {
    constexpr size_t kMaxShown = 60;
    const std::string shown = text_.size() <= kMaxShown ? text_ : text_.substr(0, kMaxShown) + "…";
    throw Error(ErrorCode::kInvalidArgument, StrCat("\"", shown, "\" is no ", kIsWhole ? "size" : "number", ": ", why));
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

  Number Computed(char sign, Number left, Number right) const {
    if (!computes_) return 1;
    if (sign == '/' && (kIsWhole ? right <= 0 : right == 0)) Fail(StrCat("it divides by ", right));
    if constexpr (kIsWhole) {
      if (sign == '/' && left % right != 0) Fail(StrCat(left, " cannot be divided by ", right));
      Number value = 0;
      const bool overflows = sign == '+'   ? __builtin_add_overflow(left, right, &value)
                             : sign == '-' ? __builtin_sub_overflow(left, right, &value)
                                           : sign == '*' && __builtin_mul_overflow(left, right, &value);
      if (overflows) Fail("it is too large");
      return sign == '/' ? left / right : value;
    } else {
      return sign == '+' ? left + right : sign == '-' ? left - right : sign == '*' ? left * right : left / right;
    }
  }

  Number Sum(int depth) {
    Number value = Product(depth);
    while (true) {
      if (Take('+')) {
        value = Computed('+', value, Product(depth));
      } else if (Take('-')) {
        value = Computed('-', value, Product(depth));
      } else {
        return value;
      }
    }
  }

  Number Product(int depth) {
    Number value = Factor(depth);
    while (true) {
      if (Take('*')) {
        value = Computed('*', value, Factor(depth));
      } else if (Take('/')) {
        value = Computed('/', value, Factor(depth));
      } else {
        return value;
      }
    }
  }

  Number Factor(int depth) {
    constexpr int kMaxNesting = 50;
    if (depth > kMaxNesting) Fail("it nests too deep");
    if (Take('(')) return Bracket(depth);
    if (Take('-')) return Computed('-', 0, Factor(depth + 1));
    if (at_ >= text_.size()) Fail(text_.empty() ? "it is empty" : "it ends too early");
    const size_t begin = at_;
    if (IsNameStart(text_[at_])) {
      while (at_ < text_.size() && IsWordPart(text_[at_])) ++at_;
      const std::string name = text_.substr(begin, at_ - begin);
      return name == "sqrt" && Take('(') ? Root(depth) : static_cast<Number>(value_of_(name));
    }
    Number value = 0;
    const auto [end, fault] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (fault == std::errc::result_out_of_range) Fail("it is too large");
    if (fault != std::errc()) Fail(StrCat("'", text_[at_], "' is not expected"));
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  // Behind what opens a bracket.
  Number Bracket(int depth) {
    const Number value = Sum(depth + 1);
    if (!Take(')')) Fail("a bracket is not closed");
    return value;
  }

  Number Root(int depth) {
    if (kIsWhole) Fail("sqrt(…) is for arguments that take a float");
    const Number value = Bracket(depth);
    if (!computes_) return 1;
    if (value < 0) Fail(StrCat("it takes the root of ", value));
    return static_cast<Number>(std::sqrt(value));
  }

  const std::string& text_;
  const ValueOf& value_of_;
  const bool computes_;
  size_t at_ = 0;
};

template <typename Number>
Number Evaluate(const std::string& text, const CellSizes& sizes) {
  const ValueOf value_of = [&](const std::string& name) {
    if (const auto found = sizes.find(name); found != sizes.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [known, value] : sizes) names.push_back(known);
    throw Error(ErrorCode::kInvalidArgument, StrCat("the size ", name, text == name ? "" : " in \"" + text + "\"",
                                                    " has no value", DidYouMean(name, names)));
  };
  return Evaluator<Number>(text, value_of, /*computes=*/true).Run();
}

template <typename Number>
std::vector<std::string> Names(const std::string& text) {
  std::vector<std::string> names;
  const ValueOf value_of = [&](const std::string& name) -> std::int64_t {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    return 1;
  };
  Evaluator<Number>(text, value_of, /*computes=*/false).Run();
  return names;
}

}  // namespace

std::int64_t EvaluateSize(const std::string& text, const CellSizes& sizes) {
  return Evaluate<std::int64_t>(text, sizes);
}
double EvaluateNumber(const std::string& text, const CellSizes& sizes) { return Evaluate<double>(text, sizes); }

std::vector<std::string> NamesInSize(const std::string& text) { return Names<std::int64_t>(text); }
std::vector<std::string> NamesInNumber(const std::string& text) { return Names<double>(text); }

}  // namespace stepnet
