# The demo in one command, with nothing on the machine but Docker:
#
#   docker build -t stepnet . && docker run --rm -it stepnet [CHAR_LM_OPTION...]
#
# rnn_runner alone, on files of the folder one is in:
#
#   docker run --rm --user "$(id -u)" -v "$PWD:/here" -w /here --entrypoint rnn_runner stepnet check net.pb

FROM debian:12-slim AS build
WORKDIR /stepnet
# Before the sources, so that a change of theirs does not install everything again.
COPY scripts/setup scripts/
RUN scripts/setup
COPY . .
RUN scripts/build release char_lm rnn_runner

FROM debian:12-slim
# What the programs are linked to; gnuplot draws the learning curve. Debian 12 has one version of each.
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install -y --no-install-recommends \
    gnuplot-nox libdnnl2 libgflags2.2 libgoogle-glog0v6 libhwy1 libprotobuf32 ocl-icd-libopencl1 \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /stepnet
COPY LICENSE ./
COPY examples examples
COPY --from=build /stepnet/build/release/rnn_runner build/release/
COPY --from=build /stepnet/build/release/examples/char_lm/char_lm build/release/examples/char_lm/
COPY --from=build /stepnet/build/release/share /usr/local/share
RUN ln -s /stepnet/build/release/rnn_runner /usr/local/bin/ \
  && install -d -o 1000 -g 1000 build/demo
USER 1000:1000
ENTRYPOINT ["examples/char_lm/demo"]
