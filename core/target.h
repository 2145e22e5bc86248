// Target: what depends on the machine that a net runs on: its device, and the figures that were found by measuring such
// a machine. Each kind of device has one; sizes of a device's own kernels stand beside it (gpu/cuda_target.h).
//
// Plans and schedules take figures from the Target that they are made for (RunOptions::target, StepPlan::target), and
// kernels for its device; what they do follows from these alone. What runs on the CPU and nowhere else, and knows no
// options, asks kCpuTarget, a constant: its fields may be sizes of arrays.
//
// Which figures do not belong here: sizes that decide how a kernel rounds, as partial sums (core/expressions/expr.h)
// and blocks of products (products/gemm.h). They are the same on every machine, however they were found. A Target
// decides which plan is made; a plan gives the same bits wherever it runs. How many rows and vectors an inner loop
// takes in registers (panel_product.cc, gemv.cc) does not belong here either: that goes by the instruction
// set that the loop is compiled for. What the processor that runs says itself is asked there: how large its caches are
// (core/machine_limits.h), and who made it (gains_by_asking in core/regions/region_kernels.h).
//
// Figures come from the machines that docs/performance.md names, and from what their comments name: a benchmark of
// bench/, or scripts/bench_executors, which compares whole runs. "Chosen" is what nobody measured.
#pragma once

#include <cstdint>

#include "stepnet/core/device.h"

namespace stepnet {

// What moving tasks between threads costs, in microseconds.
struct SchedulingCosts {
  double inline_task = 0;  // to go on with a task on the same thread
  double handed_task = 0;  // to give a task to another thread
  double round = 0;        // to wait until all threads have done their part of a task
};

// How regions (core/regions/region_program.h) are cut for the caches and loops of a machine. Where nothing else is
// said, by bench, Op and Region, on rows and units.
struct RegionSizes {
  // Elements of a block of a program with many values, and of a part: whole vectors and cache lines. Chosen.
  std::int64_t block_elements = 256;
  // Bytes of the first cache for the values of a block; the same where values of a row are kept beside them; and, with
  // the memory of operands, where several rows are in a block, which is read again behind its sums.
  std::int64_t block_bytes = 4 << 10;
  std::int64_t block_bytes_beside_row = 8 << 10;
  std::int64_t block_bytes_of_rows = 32 << 10;
  // Bytes of the second cache for the values of a row that are kept.
  std::int64_t kept_row_bytes = 192 << 10;
  // Blocks hold several rows that are shorter than this: in general, where elements are gathered; where operands lie
  // one after the other, and of outer products; and where something is computed of whole rows, for several at once.
  std::int64_t short_row = 64;
  std::int64_t short_dense_row = 512;
  std::int64_t short_reduced_row = 1024;
  // Elements of a matrix from which on a block has rows of one alone, so that what is the same for all of these is read
  // where it lies: 32 matrices of 16 x 16 take 0.94 of the time so.
  std::int64_t min_group_elements = 256;
  // Columns of joined rows from which on kernels go from row to row for operands that have one value a row.
  std::int64_t min_row_of_operands = 16;
  // Columns and operations of rows from which on rows of two kinds run a program for each. Chosen.
  std::int64_t min_split_columns = 8;
  int min_split_operations = 4;
  // Bytes of a copy from which on the system's own is as fast as vectors are.
  std::int64_t long_copy_bytes = 4 << 10;
  // Bytes of the arrays of a loop that fill the first cache or nearly so. Stores into lines that are not there wait for
  // each other: from so many on the loop asks for them so many bytes ahead, up to what no cache of a core holds, which
  // the machine reads ahead itself. docs/performance.md, Regions, has the gain.
  std::int64_t filled_cache_bytes = 44 << 10;
  std::int64_t far_bytes = 2 << 20;
  std::int64_t bytes_ahead = 512;
  // What each step of a loop has of its own, in tensors of so many bytes a step at least: where the steps so far have
  // more of it than caches hold, blocks ask for the next one. Below, that takes up to a tenth longer, and above up to a
  // third less (docs/performance.md, Regions).
  std::int64_t min_moving_bytes = 16 << 10;
  std::int64_t far_moving_bytes = 12 << 20;
};

struct Target {
  DeviceKind device = DeviceKind::kCpu;

  // Speed of one core, for estimates: floating-point operations of products, which bench, ProductPanels, finds between
  // 50e3 (one row, weights beyond the caches) and 250e3 (many rows); bytes read and written, of which bench, Op of a
  // million elements, finds twice as many.
  double flops_per_microsecond = 160e3;
  double bytes_per_microsecond = 40e3;
  // The same of what all steps read again: where it fits into the second cache of a core (bench, ProductPanels of one
  // row), and where it does not, on a machine of many cores (some 12e3 on a Xeon of 16, bench_peers; where two cores
  // share the third cache, each has more). And that cache; 0: as the system says.
  double near_bytes_per_microsecond = 160e3;
  double far_bytes_per_microsecond = 12e3;
  std::int64_t second_cache_bytes = 0;
  // How much counts of what a core reads out of the cache that all share (core/machine_limits.h), where threads take
  // rows of the batch: on an EPYC (Zen 5) reading that takes half as long as the work takes no time of it, on a Xeon it
  // does (docs/performance.md).
  double counted_of_shared = 0.5;
  // A second cache of so many bytes keeps what else a loop reads again when weights of few rows are read out of it over
  // time. There, where steps pack them, too, lstm.cell takes 0.92 of its time on two threads with (B, H) = (32, 256),
  // 0.85 with (16, 512), on a Xeon with 2 MB (docs/performance.md).
  std::int64_t large_second_cache_bytes = 2 << 20;
  // Bytes of a line of the caches.
  std::int64_t cache_line_bytes = 64;
  // Microseconds of a call of a kernel that does nothing: twice what bench, Overhead, finds.
  double microseconds_of_call = 0.05;

  // Microseconds until a thread of the pool that sleeps takes part in a run that asks for it. Runs that more threads
  // would make shorter by less stay on one thread. From runs of few steps, by scripts/bench_executors.
  double microseconds_to_wake = 40;
  // Microseconds that a thread of a loop looks out for a task before it sleeps, and a thread of the pool for another
  // run: to be woken takes ten and more, which a step that others wait for does not have, and a thread that looks out
  // keeps a core from others. The first by scripts/bench_executors, idle and with --busy, the other chosen.
  std::int64_t microseconds_to_look_out = 50;
  int looks_of_clock = 64;  // between which it does not ask the clock, which takes as long as some of them. Chosen.
  std::int64_t microseconds_to_look_out_for_runs = 20;
  // The caller goes on with a loop alone after so many rounds in which all others slept until one had done its part,
  // where fewer threads than that were awake on the average: some have no core. Chosen.
  int min_rounds_to_leave = 3;
  double min_threads_awake = 1.5;

  // Bytes of rows of bfloat16 weights that come into the first cache while the rows before them are multiplied, a third
  // of it at most: rows of 1024 beyond the second cache take 80 us so in place of 110, rows of 4096 would take longer.
  // Rows of float, twice as many lines, take up to a fifth longer where they are in the second cache (768 rows of 256).
  std::int64_t max_bytes_to_fetch = 16 << 10;
  // Rows of a packed product from which on the panel that comes next is fetched meanwhile: the work of fewer does not
  // hide it. 16 rows with 4 MB of weights take 0.85 of the time so; 8 rows with 1 MB would take 1.04.
  int min_rows_to_fetch = 16;
  // So many rows of the next panel are fetched in turn with as many that are multiplied. Chosen.
  std::int64_t rows_between_fetches = 8;
  // Bytes of rows of weights from which on they are multiplied with one row one after the other, which asks for fewer
  // lines of memory at a time than several together: on a machine that others used as well 0.8 to 0.95 of the time of
  // four together (768 rows of 256 and 4096 of 1024), at other moments the same.
  std::int64_t min_bytes_of_long_row = 1024;
  // Elements of weights that lie by rows in a block of such a product. 2^15 took 1.03 of the time where K is 1024.
  std::int64_t block_elements_of_row = 1 << 17;
  // Rows of two matrices that come into the first cache before a sum over rows packs them. Two matrices of 2048 and 512
  // columns take 1.08 times as long without.
  std::int64_t rows_fetched_to_pack = 4;

  // Costs of moving tasks: rounded up from bench, Overhead (0.02 and 0.2 to 0.4); and larger ones, chosen, by which
  // schedules are compared, so that threads are used where that surely gains.
  SchedulingCosts measured_scheduling = {.inline_task = 0.05, .handed_task = 0.5, .round = 0.2};
  SchedulingCosts assumed_scheduling = {.inline_task = 0.2, .handed_task = 1.0, .round = 0.4};
  // How many times as fast a run must be by estimate for more threads to be worth it: estimates are that rough.
  // Chosen.
  double min_gain_of_threads = 1.1;
  // How many times as fast, by estimate, what runs once for all steps must be in whole instructions not to be cut in
  // parts: parts even out what estimates do not know. Chosen.
  double min_gain_of_whole = 1.02;
  // How many times as fast, by estimate, a run must be for its steps to be said to overlap. Chosen.
  double min_gain_of_overlap = 1.05;
  // Steps that may be under way at once: so many a thread, and so many at least. Chosen.
  int steps_of_thread = 2;
  int min_steps_under_way = 4;
  // Threads beyond which no schedule is tried: simulating many takes long. Chosen.
  int max_threads = 64;

  // Bytes of a part of an elementwise instruction, at least; other kernels say themselves how many parts they have.
  // About what a core writes while another one is told of a task and comes back. Chosen.
  std::int64_t min_part_bytes = 32 * 1024;
  // The most parts of an elementwise instruction. Chosen.
  std::int64_t max_parts = 1024;
  // Microseconds of a part in a loop, at least: several times what it takes to hand one over. Chosen.
  double min_part_microseconds = 3;
  // The same where threads go through a step together. Chosen.
  double min_lockstep_microseconds = 0.5;
  // There a part is cut again, into so many at most, which take so long at least: those that a thread has not begun
  // when others have done theirs are done by these. On 8 threads of 16 cores that others share, where two in a part of
  // 64 rows and 512 units took twice as long as the rest, an LSTM of (B, H) = (128, 1024) takes 0.8 of the time.
  int max_cuts_of_part = 4;
  double min_cut_microseconds = 10;
  // Elements of its weights that a part of a product has at least, where its bits do not depend on parts. Chosen.
  std::int64_t min_part_weights = 4 << 10;
  // Microseconds of a part of what runs once for all steps, about: so many parts that threads end together, and so few
  // that handing them over does not count. Chosen.
  double part_microseconds = 200;

  // Rows of a product, about, that a stage takes at once, in whole steps: from so many on products are as fast as they
  // get (bench, ProductLayout). Between these numbers of steps, chosen, so that stages overlap.
  std::int64_t chunk_rows = 64;
  std::int64_t min_chunk_steps = 4;
  std::int64_t max_chunk_steps = 64;
  // Where whatever can takes many steps at once, what is no product has no more bytes than so many in a chunk, and
  // its rows leave a chunk so many steps at least, if bytes do: from matrix states of (8, 64) rows on an H200, chunks
  // of 4 steps take up to 1.8 times as long, those of 64 up to 1.2 times, of runs of 100.
  std::int64_t max_chunk_bytes = 16 << 20;
  std::int64_t min_steps_of_rows = 16;
  // Stages go through a block of steps, one behind the other, before the next block (StepPlan::block_steps): what they
  // pass to each other has about so many bytes then, however long a run is, in so many chunks. 0: each stage goes
  // through all steps. Chosen: blocks take a millisecond and more, beside which it does not count to bring threads
  // together.
  std::int64_t block_bytes = 1 << 20;
  std::int64_t min_chunks_of_block = 4;
  std::int64_t max_chunks_of_block = 64;
  // A block has so many chunks for each thread, at least, where there are several: so many that it does not count that
  // threads end it with different numbers of them. With 4, lstm.cell of (B, H, T) = (8, 256, 100) takes 1.1 times as
  // long on two threads.
  std::int64_t min_chunks_of_thread = 16;
  // Many steps are taken at once where they share so many times the bytes that one of them has of its own: where it is
  // less, the steps take more out of the caches than reading the shared bytes once saves. Chosen.
  std::int64_t min_shared_ratio = 4;
  // Steps of so many rows read weights in panels (panel_product.h) as fast as many of them at once would
  // (bench, ProductPanels). Products of such steps stay in the loop, and what they give in the caches, where their
  // weights have so many bytes: by bench, Layered, and lstm.cell with H from 64 to 1024, on a core with 1 MB of the
  // second cache.
  std::int64_t min_rows_of_step = 16;
  std::int64_t min_bytes_in_loop = 512 << 10;
  std::int64_t max_bytes_in_loop = 8 << 20;
  bool IsAsFastInLoop(std::int64_t rows, std::int64_t weight_bytes) const {
    return rows >= min_rows_of_step && weight_bytes >= min_bytes_in_loop && weight_bytes <= max_bytes_in_loop;
  }
  // Steps that have no more than this of their own are taken many at once wherever they share more than that: calls
  // take longer than the bytes. From lstm.cell with (B, H) = (8, 16), which takes 1.28 times as long without.
  std::int64_t small_step_bytes = 8 << 10;
  // Whatever can takes many steps at once, how little they share: where to start a kernel takes longer than the work of
  // a step.
  bool takes_all_over_time = false;

  // Weights are packed for products of so many rows at most: with more, a product that reads them as they are is hardly
  // slower. Bench, ProductLayout and ProductPanels.
  std::int64_t max_rows_to_pack = 128;
  // Weights that lie by rows are packed for one row where they have no more bytes: their parts stay in the first cache.
  // Bench, ProductPanels and ProductLayout.
  std::int64_t max_bytes_to_pack_for_row = 128 << 10;
  // Several weights that a product reads as one are packed where they have no more bytes in all, also where it takes
  // many steps at once. From naive_lstm.cell, forward and backward: at (B, H, T) = (3, 96, 100) 0.88 of the time; with
  // 1 MB at (8, 256, 5) it would take 1.05.
  std::int64_t max_bytes_of_parts_to_pack = 512 << 10;
  // Steps of the shortest run that packs: below, it would take longer than it saves. By bench, Layered: at 40 steps all
  // gain, up to twice; at 8, with weights of 16 MB, 64 rows gain a seventh and 8 rows lose as much.
  std::int64_t min_steps_to_pack = 16;
  // Products of one value become one where their weights have no more bytes in all. Weights that may change are laid
  // side by side in each run where the product does not read them where they are (FCOfParts), which takes longer for
  // larger ones than fewer instructions save. From an LSTM of eight products that were laid side by side: constant ones
  // of 1 MB, on two threads, take 0.48 of the time of four products each; trained ones of 4 MB 0.93 with 16 rows
  // and 1.08 with one.
  std::int64_t max_bytes_to_merge = 1 << 20;

  // Steps that a product takes at once, so that it reads its weights once for all of them, up to which it packs.
  // Chosen.
  std::int64_t max_chunk_to_pack = 12;

  // Stages that are at different chunks at the same time, each in a queue of its own; threads have schedules instead.
  std::int64_t max_queues = 1;

  // How many simple operations take as long as one that is none (a function, a division), about. In an LSTM's step of
  // 8,192 units, a fifth of a nanosecond an element.
  double operations_of_function = 8;
  // Operations of an operator that a region of several does again, at most, for an operator less to run: about what a
  // call of a kernel takes. Chosen.
  double max_repeated_operations = 256;
  // Operators that become one region, at most, and operands of one of them: they bound how long a region takes to be
  // made, and what its kernel is called with. Chosen.
  std::int64_t max_region_operators = 48;
  std::int64_t max_region_operands = 32;
  // Regions that cannot be one, as they have other numbers of elements, run one after the other in one kernel, where
  // what they keep apart (core/regions/region_groups.h) has no more elements in each of them. 0: none do.
  std::int64_t max_group_elements = 0;
  // A value of a whole row counts there as so many elements at least: its threads wait for each other. Chosen.
  std::int64_t min_elements_of_row = 256;

  // Operators of a run's steps, all together, that are recorded (core/recorded_run.h), at most: graphs take memory for
  // each of them, of the host and of the device, which no limit counts. An LSTM trains over 100,000 steps with less.
  // Recordings that are kept have no more together. Chosen.
  std::int64_t max_recorded_operators = 1'000'000;
  // So many of these are in one graph, about (Recorder::Cut): between two a run can be stopped, which takes as long
  // as they do, a tenth of a second or some. Chosen.
  std::int64_t max_operators_of_graph = 50'000;

  // Bytes that the steps of a run keep of what follows from less, from which on steps back compute it again instead:
  // beyond the last cache, and beyond the caches of a core of what they compute as fast as it is read from there, in
  // bytes a microsecond (docs/performance.md, Regions).
  std::int64_t min_bytes_to_recompute = 16 << 20;
  std::int64_t min_bytes_to_recompute_fast = 1 << 20;
  double fast_bytes_per_microsecond = 20e3;

  // Steps that may be under way at once where nobody says, a power of two: with more, temporaries leave the caches.
  // Chosen.
  std::int64_t ring_rows = 4;

  // Elements of a run from which on a call that copies or fills them is faster than a loop. From bench, Op of Where,
  // whose rows of ten elements took up to 70 ns longer with calls.
  std::int64_t min_run_for_call = 64;
  // Bytes of a run up to which it is copied in pieces of a few bytes: a call would take longer than what it does.
  // Concat of 32 rows of 10 takes 0.33 of the time so.
  std::int64_t max_bytes_in_pieces = 128;
  // Elements of a run from which on a kernel fills it: a loop over fewer takes no longer than its call. Chosen.
  std::int64_t min_run_to_fill = 16;

  // Tensors of so many bytes ask for large pages: two of those of most machines, as what is smaller may have none that
  // is whole. docs/performance.md has the gain.
  std::int64_t min_large_page_bytes = 4 << 20;
  // Bytes of tensors that are read from a file from which on a thread takes their memory from the system meanwhile;
  // below, it costs more than it saves. And the bytes that it takes at once, which whoever stops it waits for: they
  // take a millisecond. Chosen; docs/performance.md has what the thread saves.
  std::int64_t min_bytes_to_take_ahead = 8 << 20;
  std::int64_t bytes_to_take_at_once = 4 << 20;

  RegionSizes regions;
};

inline constexpr Target kCpuTarget = {};
// What the host's memory is aligned to; no vector is longer.
inline constexpr std::int64_t kLineBytes = kCpuTarget.cache_line_bytes;
// Where parts of tensors begin at multiples of so many elements, threads write to no common line.
inline constexpr std::int64_t kFloatsOfLine = kLineBytes / std::int64_t{sizeof(float)};

}  // namespace stepnet
