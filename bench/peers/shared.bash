#!/usr/bin/env bash
# What scripts/bench_peers and scripts/bench_cells have in common; both source it.

self=$(basename "$0")

say() { echo "$self: $*" >&2; }

usage() {
  sed -n 's/^#    \( *\)/       \1/p; s/^#   /usage: /p' "$0" >&2
  exit 2
}

check_list() {  # list, regular expression of what is between the commas
  [[ $1 =~ ^($2)(,($2))*$ ]] || usage
}

has() { "$python" -c "import $1" 2>/dev/null; }

# Sets python, the interpreter that has the peers.
find_python() {  # modules to fetch where one of them is missing
  if [[ -n ${PYTHON:-} ]]; then
    python=$PYTHON
  else
    python=build/peers/recurrent/bin/python
    has "$1" || install_peers
  fi
  if ! has torch,numpy; then
    say "$python cannot import torch and numpy"
    exit 1
  fi
}

install_peers() {
  local pip=(build/peers/recurrent/bin/pip install -q)
  say "fetching PyTorch and onnxruntime (once)"
  mkdir -p build/peers
  python3 -m venv build/peers/recurrent
  # The build without CUDA where its index can be reached, otherwise the one on PyPI.
  "${pip[@]}" --index-url https://download.pytorch.org/whl/cpu torch 2>/dev/null || "${pip[@]}" torch
  "${pip[@]}" numpy
  "${pip[@]}" onnx onnxruntime || true  # left out then
}

# Sets runner, StepNet's program.
find_runner() {  # folder of the build
  runner=$1/rnn_runner
  if [[ ! -x $runner ]]; then
    say "there is no $runner; run: scripts/build release rnn_runner"
    exit 1
  fi
}

# Starts a process of a peer, which lives as long as this one: it ends with its input.
declare -A requests answers
start_peer() {  # folder for its pipes, file of Python, peer, threads
  local pipe=$1/$3-$4 request answer
  mkfifo "$pipe-requests" "$pipe-answers"
  "$python" "$2" serve "$3" "$4" <"$pipe-requests" >"$pipe-answers" &
  exec {request}>"$pipe-requests" {answer}<"$pipe-answers"
  requests[$3-$4]=$request
  answers[$3-$4]=$answer
}

theirs() {  # peer, threads, request → milliseconds
  local milliseconds
  echo "${@:3}" >&"${requests[$1-$2]}"
  if ! read -r milliseconds <&"${answers[$1-$2]}"; then
    say "the process of $1 (threads: $2) has ended"
    exit 1
  fi
  echo "$milliseconds"
}

# Sets input_flags: --init_net for the parameters of a folder, which are so known to be constant, and --input for its other
# files: layer0__h_init.npy is layer0/h_init. The gradient of h is read where there is a backward pass.
find_inputs() {  # folder, pass
  local file blob list=
  for file in "$1"/*.npy; do
    blob=$(basename "$file" .npy)
    if grep -qxF "$blob" "$1/parameters.txt"; then continue; fi
    case $blob in
      gradient) if [[ $2 == both ]]; then list+=,h_autogen_grad=$file; fi ;;
      *) list+=,${blob//__//}=$file ;;
    esac
  done
  input_flags=("--init_net=$1/parameters.pb" "--input=${list#,}")
}

# What gradients are computed of: all that the net reads, less initial states.
differentiated() {  # folder
  local file list=
  for file in "$1"/*.npy; do
    case $file in
      *_init.npy | */gradient.npy) ;;
      *) list+=,$(basename "$file" .npy) ;;
    esac
  done
  echo "${list//__//}" | cut -c2-
}

# Makes StepNet's nets of a cell in a folder of tensors, forward.prototxt and both.prototxt.
make_nets() {  # folder, cell, --size
  "$runner" expand "$2" "$3" >"$1/forward.prototxt"
  # The gradient of h, by a sum, is a ConstantFill of ones; without that operator it is an input.
  "$runner" grad "$2" "$3" --loss=h --of="$(differentiated "$1")" |
    sed '/^op {$/{:more;N;/\n}$/!bmore;/\n  type: "ConstantFill"/d}' >"$1/both.prototxt"
}

# Runs both nets of a folder: results in its folders forward and both.
compute() {  # folder
  local gradients
  gradients=$(differentiated "$1" | sed 's/,/_grad,/g')_grad
  find_inputs "$1" forward
  "$runner" run "$1/forward.prototxt" "${input_flags[@]}" --output=h --output_dir="$1/forward" >/dev/null
  find_inputs "$1" both
  "$runner" run "$1/both.prototxt" "${input_flags[@]}" --output="$gradients" --output_dir="$1/both" >/dev/null
}

ours() {  # threads, folder, pass, runs → milliseconds
  find_inputs "$2" "$3"
  "$runner" bench "$2/$3.prototxt" "${input_flags[@]}" --threads="$1" --warmup=1 --repetitions="$4" --json |
    sed -n 's/.*"min_ms": \([^,]*\),.*/\1/p'
}

describe_machine() {  # load before
  echo "$(sed -n '/^model name/{s/.*: //p;q}' /proc/cpuinfo), $(nproc) cores, load before $1, $(date +%F)"
}

load() { cut -d' ' -f1 /proc/loadavg; }
