// One step of every cell of examples/cells, as its paper writes it.
#include <algorithm>
#include <cmath>

#include "cell_references.h"

namespace stepnet {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

Vector Product(const Vector& matrix, const Vector& v) {
  Vector result(matrix.size() / v.size());
  for (size_t row = 0; row < result.size(); ++row) {
    for (size_t i = 0; i < v.size(); ++i) result[row] += matrix[row * v.size() + i] * v[i];
  }
  return result;
}

Vector Sum(Vector a, const Vector& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// Part k of a vector of parts of one size.
Vector Part(const Vector& v, size_t size, size_t k) {
  return {v.begin() + static_cast<std::ptrdiff_t>(k * size), v.begin() + static_cast<std::ptrdiff_t>((k + 1) * size)};
}

template <typename Function>
Vector Map(Vector v, Function function) {
  for (double& x : v) x = function(x);
  return v;
}

Vector Normalised(const Vector& v) {
  double mean = 0;
  for (const double x : v) mean += x / static_cast<double>(v.size());
  double variance = 0;
  for (const double x : v) variance += (x - mean) * (x - mean) / static_cast<double>(v.size());
  return Map(v, [&](double x) { return (x - mean) / std::sqrt(variance + 1e-5); });
}

Vectors Elman(const Vectors& p) {
  const Vector a = Sum(Sum(Product(p.at("w"), p.at("x")), Product(p.at("u"), p.at("h"))), p.at("b"));
  return {{"h", Map(a, [](double x) { return std::tanh(x); })}};
}

// c = f c + i tanh(g), h = o tanh(c), for sums before the gates in the order i f o g.
Vectors LstmOf(const Vector& a, const Vector& c_prev) {
  const size_t size = c_prev.size();
  Vector h(size);
  Vector c(size);
  for (size_t k = 0; k < size; ++k) {
    c[k] = Sigmoid(a[size + k]) * c_prev[k] + Sigmoid(a[k]) * std::tanh(a[3 * size + k]);
    h[k] = Sigmoid(a[2 * size + k]) * std::tanh(c[k]);
  }
  return {{"h", h}, {"c", c}};
}

Vector LstmSums(const Vectors& p, const Vector& h) {
  return Sum(Sum(Product(p.at("w"), p.at("x")), Product(p.at("u"), h)), p.at("b"));
}

Vectors Lstm(const Vectors& p) { return LstmOf(LstmSums(p, p.at("h")), p.at("c")); }

Vectors PeepholeLstm(const Vectors& p) {
  const Vector a = LstmSums(p, p.at("h"));
  const Vector& c_prev = p.at("c");
  const size_t size = c_prev.size();
  Vector h(size);
  Vector c(size);
  for (size_t k = 0; k < size; ++k) {
    const double i = Sigmoid(a[k] + p.at("p_i")[k] * c_prev[k]);
    const double f = Sigmoid(a[size + k] + p.at("p_f")[k] * c_prev[k]);
    c[k] = f * c_prev[k] + i * std::tanh(a[3 * size + k]);
    const double o = Sigmoid(a[2 * size + k] + p.at("p_o")[k] * c[k]);
    h[k] = o * std::tanh(c[k]);
  }
  return {{"h", h}, {"c", c}};
}

Vectors Lstmp(const Vectors& p) {
  const Vectors whole = LstmOf(LstmSums(p, p.at("r")), p.at("c"));
  return {{"r", Product(p.at("projection"), whole.at("h"))}, {"c", whole.at("c")}};
}

Vectors CoupledLstm(const Vectors& p) {
  const Vector a = LstmSums(p, p.at("h"));
  const Vector& c_prev = p.at("c");
  const size_t size = c_prev.size();
  Vector h(size);
  Vector c(size);
  for (size_t k = 0; k < size; ++k) {
    const double i = Sigmoid(a[k]);
    c[k] = (1 - i) * c_prev[k] + i * std::tanh(a[2 * size + k]);
    h[k] = Sigmoid(a[size + k]) * std::tanh(c[k]);
  }
  return {{"h", h}, {"c", c}};
}

// The gates r and z and the candidate n, whose sums with the input are `a`, in this order; `keep` is what z does.
Vector GruOf(const Vectors& p, const Vector& a, bool z_keeps) {
  const Vector& h_prev = p.at("h");
  const size_t size = h_prev.size();
  const Vector gates = Product(p.at("u"), h_prev);
  Vector remembered(size);
  for (size_t k = 0; k < size; ++k) remembered[k] = Sigmoid(a[k] + gates[k]) * h_prev[k];
  const Vector recurrent = Product(p.at("u_n"), remembered);
  Vector h(size);
  for (size_t k = 0; k < size; ++k) {
    const double z = Sigmoid(a[size + k] + gates[size + k]);
    const double n = std::tanh(a[2 * size + k] + recurrent[k]);
    h[k] = z_keeps ? z * h_prev[k] + (1 - z) * n : (1 - z) * h_prev[k] + z * n;
  }
  return h;
}

Vectors Gru(const Vectors& p) {
  return {{"h", GruOf(p, Sum(Product(p.at("w"), p.at("x")), p.at("b")), /*z_keeps=*/true)}};
}

Vectors GruResetAfter(const Vectors& p) {
  const Vector& h_prev = p.at("h");
  const size_t size = h_prev.size();
  const Vector a = Sum(Product(p.at("w"), p.at("x")), p.at("b"));
  const Vector b = Sum(Product(p.at("u"), h_prev), p.at("b_u"));
  Vector h(size);
  for (size_t k = 0; k < size; ++k) {
    const double r = Sigmoid(a[k] + b[k]);
    const double z = Sigmoid(a[size + k] + b[size + k]);
    const double n = std::tanh(a[2 * size + k] + r * b[2 * size + k]);
    h[k] = (1 - z) * n + z * h_prev[k];
  }
  return {{"h", h}};
}

Vectors MiLstm(const Vectors& p) {
  const Vector wx = Product(p.at("w"), p.at("x"));
  const Vector uh = Product(p.at("u"), p.at("h"));
  Vector a(wx.size());
  for (size_t j = 0; j < a.size(); ++j) {
    a[j] = p.at("alpha")[j] * wx[j] * uh[j] + p.at("beta_u")[j] * uh[j] + p.at("beta_w")[j] * wx[j] + p.at("b")[j];
  }
  return LstmOf(a, p.at("c"));
}

Vectors LayerNormLstm(const Vectors& p) {
  const auto normalised = [&](const Vector& v, const std::string& which) {
    Vector result = Normalised(v);
    for (size_t j = 0; j < v.size(); ++j) result[j] = p.at("gain_" + which)[j] * result[j] + p.at("shift_" + which)[j];
    return result;
  };
  // In the order f i o g.
  const Vector a = Sum(
      Sum(normalised(Product(p.at("u"), p.at("h")), "u"), normalised(Product(p.at("w"), p.at("x")), "w")), p.at("b"));
  const size_t size = p.at("c").size();
  Vector c(size);
  for (size_t k = 0; k < size; ++k) {
    c[k] = Sigmoid(a[k]) * p.at("c")[k] + Sigmoid(a[size + k]) * std::tanh(a[3 * size + k]);
  }
  Vector h = normalised(c, "c");
  for (size_t k = 0; k < size; ++k) h[k] = Sigmoid(a[2 * size + k]) * std::tanh(h[k]);
  return {{"h", h}, {"c", c}};
}

Vectors IndRnn(const Vectors& p) {
  Vector h = Sum(Product(p.at("w"), p.at("x")), p.at("b"));
  for (size_t k = 0; k < h.size(); ++k) h[k] = std::max(0.0, h[k] + p.at("u")[k] * p.at("h")[k]);
  return {{"h", h}};
}

// Equations 8 to 14, without stabiliser: c and n are those of the cell times exp(m).
Vectors Slstm(const Vectors& p) {
  const Vector a = LstmSums(p, p.at("h"));
  const size_t size = p.at("h").size();
  Vectors next = {{"h", Vector(size)}, {"c", Vector(size)}, {"n", Vector(size)}, {"m", Vector(size)}};
  for (size_t k = 0; k < size; ++k) {
    const double m_prev = p.at("m")[k];
    const double i = std::exp(a[k]);
    const double f = Sigmoid(a[size + k]);
    const double c = f * p.at("c")[k] * std::exp(m_prev) + i * std::tanh(a[3 * size + k]);
    const double n = f * p.at("n")[k] * std::exp(m_prev) + i;
    const double m = std::max(std::log(f) + m_prev, a[k]);  // equation 15
    next["h"][k] = Sigmoid(a[2 * size + k]) * c / n;
    next["c"][k] = c * std::exp(-m);
    next["n"][k] = n * std::exp(-m);
    next["m"][k] = m;
  }
  return next;
}

Vectors MinGru(const Vectors& p) {
  const Vector a = Sum(Product(p.at("w"), p.at("x")), p.at("b"));
  Vector h = p.at("h");
  for (size_t k = 0; k < h.size(); ++k) {
    const double z = Sigmoid(a[k]);
    h[k] = (1 - z) * h[k] + z * a[h.size() + k];
  }
  return {{"h", h}};
}

// w is [H, 3, D]: a matrix for each of the three inputs.
Vectors CausalConv(const Vectors& p) {
  const Vector& x = p.at("x");
  const Vector& w = p.at("w");
  Vector y = p.at("b");
  for (size_t row = 0; row < y.size(); ++row) {
    for (size_t d = 0; d < x.size(); ++d) {
      const Vector inputs = {p.at("seen")[d], p.at("seen")[x.size() + d], x[d]};
      for (size_t lag = 0; lag < 3; ++lag) y[row] += w[(row * 3 + lag) * x.size() + d] * inputs[lag];
    }
  }
  return {{"y", Map(y, [](double v) { return std::max(0.0, v); })}, {"seen", x}};
}

Vector Softmax(Vector scores) {
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score);
  return Map(scores, [&](double v) { return v / sum; });
}

// The mean of the encoder's outputs, [S, E].
Vector Mean(const Vector& weights, const Vector& encoder) {
  const size_t width = encoder.size() / weights.size();
  Vector mean(width);
  for (size_t s = 0; s < weights.size(); ++s) {
    for (size_t e = 0; e < width; ++e) mean[e] += weights[s] * encoder[s * width + e];
  }
  return mean;
}

Vectors AttentionDot(const Vectors& p) {
  const Vector a = Sum(LstmSums(p, p.at("h")), Product(p.at("v"), p.at("context")));
  Vectors next = LstmOf(a, p.at("c"));
  const Vector query = Product(p.at("w_query"), next.at("h"));
  const Vector weights = Softmax(Product(p.at("encoder"), query));
  next["context"] = Mean(weights, p.at("encoder"));
  next["weights"] = weights;
  return next;
}

// v tanh(of_query + W key + …) for each of the encoder's outputs.
Vector AdditiveScores(const Vectors& p, const Vector& query, const std::function<double(size_t, size_t)>& more) {
  const Vector& v = p.at("w_score");
  const size_t width = p.at("w_key").size() / v.size();
  Vector scores(p.at("encoder").size() / width);
  for (size_t s = 0; s < scores.size(); ++s) {
    const Vector key = Product(p.at("w_key"), Part(p.at("encoder"), width, s));
    for (size_t a = 0; a < v.size(); ++a) scores[s] += v[a] * std::tanh(key[a] + query[a] + more(s, a));
  }
  return scores;
}

Vectors AttentionRecurrent(const Vectors& p) {
  const Vector weights =
      Softmax(AdditiveScores(p, Product(p.at("w_query"), p.at("h")), [](size_t, size_t) { return 0; }));
  const Vector context = Mean(weights, p.at("encoder"));
  const Vector a = Sum(Sum(Product(p.at("w"), p.at("x")), Product(p.at("v"), context)), p.at("b"));
  return {{"h", GruOf(p, a, /*z_keeps=*/false)}, {"context", context}, {"weights", weights}};
}

Vectors AttentionCoverage(const Vectors& p) {
  const Vector a = Sum(LstmSums(p, p.at("h")), Product(p.at("v"), p.at("context")));
  Vectors next = LstmOf(a, p.at("c"));
  const Vector& coverage = p.at("coverage");
  const Vector weights = Softmax(AdditiveScores(p, Product(p.at("w_query"), next.at("h")), [&](size_t s, size_t j) {
    return p.at("b_key")[j] + p.at("w_coverage")[j] * coverage[s];
  }));
  next["context"] = Mean(weights, p.at("encoder"));
  next["coverage"] = Sum(coverage, weights);
  return next;
}

Vector OfLengthOne(const Vector& v) {
  double square = 1e-6;
  for (const double x : v) square += x * x;
  return Map(v, [&](double x) { return x / std::sqrt(square); });
}

// S + beta (v - S k) k^T, and what it answers to q.
Vectors DeltaNet(const Vectors& p) {
  const Vector q = OfLengthOne(Product(p.at("w_q"), p.at("x"))), k = OfLengthOne(Product(p.at("w_k"), p.at("x")));
  const Vector v = Product(p.at("w_v"), p.at("x"));
  const double beta = Sigmoid(Product(p.at("w_beta"), p.at("x"))[0]);
  Vector s = p.at("s");
  const Vector answer = Product(s, k);
  for (size_t row = 0; row < v.size(); ++row) {
    for (size_t i = 0; i < k.size(); ++i) s[row * k.size() + i] += beta * (v[row] - answer[row]) * k[i];
  }
  return {{"s", s}, {"y", Product(s, q)}};
}

}  // namespace

ReferenceStep StepOfExample(const std::string& name) {
  static const std::map<std::string, ReferenceStep> kSteps = {{"attention_coverage", AttentionCoverage},
                                                              {"attention_dot", AttentionDot},
                                                              {"attention_recurrent", AttentionRecurrent},
                                                              {"causal_conv", CausalConv},
                                                              {"coupled_lstm", CoupledLstm},
                                                              {"delta_net", DeltaNet},
                                                              {"elman", Elman},
                                                              {"gru", Gru},
                                                              {"gru_reset_after", GruResetAfter},
                                                              {"indrnn", IndRnn},
                                                              {"layer_norm_lstm", LayerNormLstm},
                                                              {"lstm", Lstm},
                                                              {"lstmp", Lstmp},
                                                              {"mi_lstm", MiLstm},
                                                              {"min_gru", MinGru},
                                                              {"peephole_lstm", PeepholeLstm},
                                                              {"slstm", Slstm}};
  const auto found = kSteps.find(name);
  return found == kSteps.end() ? nullptr : found->second;
}

}  // namespace stepnet
