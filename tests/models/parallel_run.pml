/* ParallelRun of executor/parallel_executor.cc as a model for spin; tests/models/run checks it.
 *
 * Names are those of the code. Each access of an atomic is a step of its own, and so is each lock and unlock; a section
 * under a lock in which nothing happens that others could see without the lock is one step. Memory is sequentially
 * consistent: which memory orders the accesses need is not checked here. A look-out may end at any moment. Helpers come
 * when they come; that one never comes is the run with a thread less.
 *
 * Checked: every part of every task runs once, when all that it waits for has ended and its step is admitted; counters
 * are armed again only when nobody counts down the step before any more; each thread leaves, and one says that the run
 * is stuck where that is so and nowhere else; when the caller has left nobody touches what is not the run's own. No execution is endless (the script searches for cycles), so it is enough
 * that none ends anywhere else.
 *
 * Given by the script: NET, THREADS, STEPS, UNDER_WAY, WINDOW (the code's is a power of two, often larger than needed).
 * FROM_ALL: a pipeline, in which a thread goes on with any of all tasks that are ready, whichever is due first.
 * FAILS: tasks may fail, any of them at any time, which takes in those that a cancellation stops.
 * STALLS: a task does not end while another lies in the queue and a thread has nothing to do: whoever sleeps must have
 * been woken.
 * WATCHED: observers are told, so the caller waits for whoever is inside.
 * WAKES: a thread asleep in signal_.wait looks again once for no reason.
 * MUTANT: one protection is missing, which must be found. */

#ifndef MUTANT
#define MUTANT 0
#endif
#define WAKE_WITHOUT_SIGNAL 1
#define SLEEPERS_NOT_COUNTED 2
#define WAITS_FOR_LATER_SIGNAL 3
#define ACTIVE_LATE 4
#define ARM_LATE 5
#define END_WITHOUT_WAKE 6
#define END_WAKES_ONE 7
#define FINISH_STEP_UNLOCKED 8
#define GIVE_WITHOUT_WAKE 9
#define GIVE_WAKES_ONE 10
#define FAILURE_WITHOUT_END 11
#define EACH_PART_FINISHES 12
#define NEVER_STUCK 13
#define ARM_COUNTS_ALL_EDGES 14
#define CALLER_WAITS_FOR_NOBODY 15
#define ENTERS_WHEN_OVER 16
#define REST_TELLS_NOBODY 17
#define LEAVE_TELLS_NOBODY 18
#define RESTS_BEFORE_FAILURE 19
#define GIVES_ALL_AND_WAKES_NOBODY 20

/* Tasks and edges: `to` of step k + delta waits for `from` of step k. */
#define CHAIN 1     /* a task that waits for itself, and one behind it */
#define WAVEFRONT 2 /* two layers; the first may not run two steps ahead of the second */
#define BESIDE 3    /* two that only their steps hold together */
#define PARTS 4     /* a task in two parts, then one that the next step's waits for */
#define FAN 5       /* a task that two wait for, so that one ending makes three ready */
#define CYCLE 6     /* two that wait for each other beside one that does not */

#if NET == CHAIN
#define TASKS 2
#define EDGES 2
hidden byte from[EDGES] = {0, 0};
hidden byte to[EDGES] = {0, 1};
hidden byte delta[EDGES] = {1, 0};
hidden byte parts[TASKS] = {1, 1};
hidden byte starts_step[TASKS] = {1, 0};
#elif NET == WAVEFRONT
#define TASKS 2
#define EDGES 4
hidden byte from[EDGES] = {0, 0, 1, 1};
hidden byte to[EDGES] = {0, 1, 1, 0};
hidden byte delta[EDGES] = {1, 0, 1, 2};
hidden byte parts[TASKS] = {1, 1};
hidden byte starts_step[TASKS] = {1, 0};
#elif NET == BESIDE
#define TASKS 2
#define EDGES 2
hidden byte from[EDGES] = {0, 1};
hidden byte to[EDGES] = {0, 1};
hidden byte delta[EDGES] = {1, 1};
hidden byte parts[TASKS] = {1, 1};
hidden byte starts_step[TASKS] = {1, 1};
#elif NET == PARTS
#define TASKS 2
#define EDGES 2
hidden byte from[EDGES] = {0, 1};
hidden byte to[EDGES] = {1, 0};
hidden byte delta[EDGES] = {0, 1};
hidden byte parts[TASKS] = {2, 1};
hidden byte starts_step[TASKS] = {1, 0};
#elif NET == FAN
#define TASKS 3
#define EDGES 3
hidden byte from[EDGES] = {0, 0, 0};
hidden byte to[EDGES] = {0, 1, 2};
hidden byte delta[EDGES] = {1, 0, 0};
hidden byte parts[TASKS] = {1, 1, 1};
hidden byte starts_step[TASKS] = {1, 0, 0};
#elif NET == CYCLE
#define TASKS 3
#define EDGES 3
hidden byte from[EDGES] = {0, 1, 2};
hidden byte to[EDGES] = {0, 2, 1};
hidden byte delta[EDGES] = {1, 0, 0};
hidden byte parts[TASKS] = {1, 1, 1};
hidden byte starts_step[TASKS] = {1, 0, 0};
#endif

/* A Ready is a number that counts steps, then tasks, then parts; a vector of them is a set of bits. */
#define READY(task, step, part) ((((step) * TASKS + (task)) * 2) + (part))
#define STEP_OF(ready) ((ready) / 2 / TASKS)
#define TASK_OF(ready) ((ready) / 2 % TASKS)
#define COUNTER(task, step) ((step) % WINDOW * TASKS + (task))
#define HAS(set, ready) (((set) >> (ready)) & 1)

byte pending_[WINDOW * TASKS];
byte armed_for[WINDOW * TASKS]; /* ghost: the step */
byte unfinished_[WINDOW];
byte parts_left_[WINDOW * TASKS];

bool steps_mutex_;
byte oldest_;
byte admitted_;

bool queue_mutex_;
int queue_;
byte active_;
byte inside_;
byte sleepers_;
mtype = {nothing, thrown, stuck};
mtype failure_ = nothing;
bool over_;
bool news[THREADS] = true; /* by lane: signal_ is not what the thread has seen */

bool asleep[THREADS];   /* in the kernel, by lane */
#ifdef WAKES
bool may_wake = true;
#endif
int started;            /* ghost: sets of Ready */
int ended;              /* ghost */
byte inside;            /* ghost: threads in Join */
byte left;              /* ghost: threads that have left it */
bool caller_left;       /* ghost */

#define LOCK(mutex) atomic { !mutex -> mutex = true }
#define UNLOCK(mutex) mutex = false

/* Lowest step, then task, then this lane's part, then part. */
inline TakeBest(set) {
  next = 0;
  do
  :: HAS(set, next) -> break
  :: else -> next++
  od;
  if
  :: next % 2 == 0 && lane == 1 && HAS(set, next + 1) -> next++
  :: else
  fi;
  set = set & ~(1 << next)
}

inline TakeAny(set) {
  next = 0;
  do
  :: HAS(set, next) -> break
  :: (set >> (next + 1)) != 0 -> next++
  od;
  set = set & ~(1 << next)
}

#ifdef FROM_ALL
#define TAKE(set) TakeAny(set)
#else
#define TAKE(set) d_step { TakeBest(set) }
#endif

inline Edges(task, step, count) {
  count = 0;
  e = 0;
  do
  :: e < EDGES ->
     if
#if MUTANT == ARM_COUNTS_ALL_EDGES
     :: to[e] == task -> count++
#else
     :: to[e] == task && delta[e] <= step -> count++
#endif
     :: else
     fi;
     e++
  :: else -> break
  od;
  count = count + starts_step[task]
}

#ifdef WATCHED
#define MAY_CALLER_LEAVE (over_ && active_ == 0 && inside_ == 0)
#else
#define MAY_CALLER_LEAVE (over_ && active_ == 0)
#endif

/* A step that nobody has touched yet, task after task. */
inline Arm(step) {
  do
  :: d_step {
       task < TASKS ->
       assert(pending_[COUNTER(task, step)] == 0);
       Edges(task, step, count);
       pending_[COUNTER(task, step)] = count;
       armed_for[COUNTER(task, step)] = step;
       task++
     }
  :: d_step { task == TASKS -> unfinished_[(step) % WINDOW] = TASKS; task++ }
  :: task > TASKS -> break
  od
}

inline CountDown(task, step) {
  assert(armed_for[COUNTER(task, step)] == step);
  assert(pending_[COUNTER(task, step)] > 0);
  pending_[COUNTER(task, step)]--;
  is_ready = pending_[COUNTER(task, step)] == 0
}

inline AddReady(task, step, set) {
  set = set | (1 << READY(task, step, 0));
  if
  :: parts[task] == 2 ->
     parts_left_[COUNTER(task, step)] = 2;
     set = set | (1 << READY(task, step, 1))
  :: else
  fi
}

/* Needs steps_mutex_. */
inline AdmitSteps(set) {
  task = 0;
  do
  :: d_step {
       admitted_ < STEPS && admitted_ < oldest_ + UNDER_WAY ->
       if
       :: starts_step[task] ->
          CountDown(task, admitted_);
          if
          :: is_ready -> AddReady(task, admitted_, set)
          :: else
          fi
       :: else
       fi;
       task++;
       if
       :: task == TASKS -> task = 0; admitted_++
       :: else
       fi
     }
  :: else -> break
  od
}

inline NotifyAll() {
  d_step {
    e = 0;
    do
    :: e < THREADS -> asleep[e] = false; e++
    :: else -> break
    od
  }
}

inline NotifyOne() {
  atomic {
    if
    :: asleep[0] -> asleep[0] = false
    :: asleep[1] -> asleep[1] = false
#if THREADS == 3
    :: asleep[2] -> asleep[2] = false
#endif
    :: !asleep[0] && !asleep[1] && !asleep[THREADS - 1]
    fi
  }
}

/* Needs queue_mutex. */
inline Wake(all) {
#if MUTANT != WAKE_WITHOUT_SIGNAL
  d_step { news[0] = true; news[THREADS / 2] = true; news[THREADS - 1] = true };
#endif
  if
  :: sleepers_ > 0 && (all) -> NotifyAll()
  :: sleepers_ > 0 && !(all) -> NotifyOne()
  :: else
  fi
}

/* Needs queue_mutex. */
inline End() {
  over_ = true;
#if MUTANT == END_WAKES_ONE
  Wake(false)
#elif MUTANT != END_WITHOUT_WAKE
  Wake(true)
#endif
}

inline FinishStep() {
#if MUTANT != FINISH_STEP_UNLOCKED
  LOCK(steps_mutex_);
#endif
  do
  :: atomic {
       oldest_ < STEPS && unfinished_[oldest_ % WINDOW] == 0 ->
       task = (oldest_ + WINDOW < STEPS -> 0 : TASKS + 1)
     };
#if MUTANT != ARM_LATE
     Arm(oldest_ + WINDOW);
     oldest_++
#else
     oldest_++;
     AdmitSteps(ready);
     task = (oldest_ - 1 + WINDOW < STEPS -> 0 : TASKS + 1);
     Arm(oldest_ - 1 + WINDOW)
#endif
  :: else -> break
  od;
  AdmitSteps(ready);
  if
  :: oldest_ == STEPS ->
     LOCK(queue_mutex_);
     End();
     UNLOCK(queue_mutex_)
  :: else
  fi;
  UNLOCK(steps_mutex_)
}

/* Ghost: what runs has not run, and all that it waits for has ended. */
inline CheckStart() {
  d_step {
    assert(!HAS(started, next) && !caller_left);
    assert(STEP_OF(next) < oldest_ + UNDER_WAY);
    e = 0;
    do
    :: e < EDGES ->
       if
       :: to[e] == TASK_OF(next) && delta[e] <= STEP_OF(next) ->
          assert(HAS(ended, READY(from[e], STEP_OF(next) - delta[e], 0)));
          assert(parts[from[e]] == 1 || HAS(ended, READY(from[e], STEP_OF(next) - delta[e], 1)))
       :: else
       fi;
       e++
    :: else -> break
    od;
    started = started | (1 << next)
  }
}

proctype Thread(byte lane) {
  byte next, task, count, e;
  int ready;
  bool is_ready, waits_for_others;

  if
  :: lane == 0 -> inside++
  :: else -> /* Enter */
     atomic {
       !queue_mutex_ ->
#if MUTANT != ENTERS_WHEN_OVER
       if
       :: over_ -> goto gone
       :: else
       fi;
#endif
       assert(!caller_left);
       inside_++;
       inside++
     }
  fi;

take: /* Take */
  if
  :: over_ -> goto leave
  :: else
  fi;
  atomic {
    !queue_mutex_ ->
    if
    :: over_ -> goto leave
    :: !over_ && queue_ != 0 ->
       TAKE(queue_);
#if MUTANT != ACTIVE_LATE
       active_++;
#endif
       goto run_task
#if MUTANT != NEVER_STUCK
    :: !over_ && queue_ == 0 && active_ == 0 ->
       queue_mutex_ = true;
       failure_ = stuck
#endif
    :: else ->
       news[lane] = false;
       goto look_out
    fi
  };
  End();
  UNLOCK(queue_mutex_);
  goto leave;

look_out: /* AwaitSignal */
  if
  :: news[lane] -> goto awake
  :: true
  fi;
  atomic {
    !queue_mutex_ ->
    if
    :: news[lane] -> goto awake
    :: else ->
#if MUTANT != SLEEPERS_NOT_COUNTED
       sleepers_++
#endif
    fi
  };
#if MUTANT == WAITS_FOR_LATER_SIGNAL
  news[lane] = false;
#endif
  do /* signal_.wait */
  :: atomic { news[lane] -> break }
  :: atomic { !news[lane] -> asleep[lane] = true };
     if
     :: !asleep[lane]
#ifdef WAKES
     :: atomic { may_wake && asleep[lane] -> may_wake = false; asleep[lane] = false }
#endif
     fi
  od;
  atomic {
    !queue_mutex_ ->
#if MUTANT != SLEEPERS_NOT_COUNTED
    sleepers_--;
#endif
    news[lane] = true
  };

awake:
  if
  :: waits_for_others -> goto wait_for_others
  :: else -> goto take
  fi;

run_task: /* RunTask */
#if MUTANT == ACTIVE_LATE
  atomic { !queue_mutex_ -> active_++ };
#endif
again:
  CheckStart();
#ifdef FAILS
  if
  :: true -> /* Fail */
#if MUTANT == RESTS_BEFORE_FAILURE
     atomic { !queue_mutex_ -> active_-- };
#endif
     atomic {
       !queue_mutex_ ->
       queue_mutex_ = true;
       if
       :: failure_ == nothing -> failure_ = thrown
       :: else
       fi
     };
#if MUTANT != FAILURE_WITHOUT_END
     End();
#endif
     UNLOCK(queue_mutex_);
#if MUTANT == RESTS_BEFORE_FAILURE
     goto take
#else
     goto rest
#endif
  :: true
  fi;
#endif
#ifdef STALLS
  atomic { queue_ == 0 || inside == active_ -> ended = ended | (1 << next) };
#else
  ended = ended | (1 << next);
#endif
  assert(!caller_left);

  /* Finish */
  if
  :: parts[TASK_OF(next)] == 2 ->
     d_step {
       assert(parts_left_[COUNTER(TASK_OF(next), STEP_OF(next))] > 0);
       parts_left_[COUNTER(TASK_OF(next), STEP_OF(next))]--;
       is_ready = parts_left_[COUNTER(TASK_OF(next), STEP_OF(next))] == 0
     };
#if MUTANT != EACH_PART_FINISHES
     if
     :: !is_ready -> goto rest
     :: else
     fi
#endif
  :: else
  fi;
  count = 0;
  do
  :: atomic {
       count < EDGES ->
       if
       :: from[count] == TASK_OF(next) && STEP_OF(next) + delta[count] < STEPS ->
          d_step {
            CountDown(to[count], STEP_OF(next) + delta[count]);
            if
            :: is_ready -> AddReady(to[count], STEP_OF(next) + delta[count], ready)
            :: else
            fi
          }
       :: else
       fi;
       count++
     }
  :: count == EDGES -> break
  od;
  atomic {
    assert(unfinished_[STEP_OF(next) % WINDOW] > 0);
    unfinished_[STEP_OF(next) % WINDOW]--;
    is_ready = unfinished_[STEP_OF(next) % WINDOW] == 0
  };
  if
  :: is_ready -> FinishStep()
  :: else
  fi;
#ifdef FROM_ALL
  atomic { /* GiveAndTake */
    !queue_mutex_ ->
    assert((queue_ & ready) == 0);
    queue_ = queue_ | ready;
    if
    :: queue_ == 0 -> goto rest
    :: else
    fi;
    queue_mutex_ = true;
    TAKE(queue_);
    count = 0;
    do
    :: ready != 0 -> ready = ready & (ready - 1); count++
    :: else -> break
    od
  };
  if
#if MUTANT == GIVES_ALL_AND_WAKES_NOBODY
  :: false
#else
  :: count > 1 -> Wake(count > 2)
#endif
  :: else
  fi;
  UNLOCK(queue_mutex_);
#else
  if
  :: ready == 0 -> goto rest
  :: else
  fi;
  TAKE(ready);
  if
  :: ready != 0 -> /* Give */
     atomic {
       !queue_mutex_ ->
       queue_mutex_ = true;
       assert((queue_ & ready) == 0);
       queue_ = queue_ | ready;
       is_ready = (ready & (ready - 1)) != 0; /* more than one */
       ready = 0
     };
#if MUTANT == GIVE_WAKES_ONE
     Wake(false);
#elif MUTANT != GIVE_WITHOUT_WAKE
     Wake(is_ready);
#endif
     UNLOCK(queue_mutex_)
  :: else
  fi;
#endif
  if /* in Join */
  :: !over_ -> goto again
  :: else
  fi;

rest: /* Rest */
  atomic {
    !queue_mutex_ ->
    queue_mutex_ = true;
    active_--
  };
  if
#if MUTANT != REST_TELLS_NOBODY
  :: MAY_CALLER_LEAVE -> Wake(true)
#endif
  :: else
  fi;
  UNLOCK(queue_mutex_);
  goto take;

leave:
  atomic { news[lane] = true; inside-- };
  if
  :: lane == 0 -> goto wait_for_others
  :: else
  fi;
#ifdef WATCHED
  assert(!caller_left);
#endif
  atomic { /* ~Inside */
    !queue_mutex_ ->
    queue_mutex_ = true;
    inside_--
  };
#if MUTANT != LEAVE_TELLS_NOBODY && defined(WATCHED)
  if
  :: MAY_CALLER_LEAVE -> Wake(true)
  :: else
  fi;
#endif
  UNLOCK(queue_mutex_);
  goto gone;

wait_for_others: /* WaitForOthers */
#if MUTANT != CALLER_WAITS_FOR_NOBODY
  atomic {
    !queue_mutex_ ->
    if
    :: MAY_CALLER_LEAVE -> caller_left = true
    :: else ->
       waits_for_others = true;
       news[lane] = false;
       goto look_out
    fi
  };
#else
  caller_left = true;
#endif

gone:
  atomic { news[lane] = true; left++ }
}

/* The run from its constructor on, and what is left of it. */
init {
  byte task, count, e, step;
  bool is_ready;
  atomic {
    do
    :: step < WINDOW && step < STEPS -> task = 0; Arm(step); step++
    :: else -> break
    od;
    AdmitSteps(queue_)
  };
  atomic {
    e = 0;
    do
    :: e < THREADS -> run Thread(e); e++
    :: else -> break
    od
  };
  d_step {
    left == THREADS;
    assert(over_ && inside == 0 && inside_ == 0 && active_ == 0 && sleepers_ == 0);
    assert(!steps_mutex_ && !queue_mutex_);
    assert(started == ended || failure_ == thrown);
    if
    :: failure_ == nothing ->
       assert(NET != CYCLE && queue_ == 0);
       task = 0;
       do
       :: task < TASKS * STEPS ->
          assert(HAS(ended, 2 * task));
          assert(parts[task % TASKS] == 1 || HAS(ended, 2 * task + 1));
          task++
       :: else -> break
       od
    :: failure_ == stuck ->
       assert(NET == CYCLE);
       assert(oldest_ < STEPS && pending_[COUNTER(1, oldest_)] > 0 && pending_[COUNTER(2, oldest_)] > 0);
       task = 0;
       do /* what could run has run */
       :: task < UNDER_WAY -> assert(HAS(ended, READY(0, oldest_ + task, 0))); task++
       :: else -> break
       od
    :: else
    fi
  }
}
