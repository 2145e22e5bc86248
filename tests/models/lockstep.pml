/* LockstepRun of executor/lockstep.cc as a model for spin; tests/models/run checks it.
 *
 * Names are those of the code. Each access of an atomic is a step of its own, and so is each lock and unlock; a section
 * under a lock in which nothing happens that others could see without the lock is one step. Memory is sequentially
 * consistent: which memory orders the accesses need is not checked here. Each thread begins with the first of its parts;
 * in the code with the last in every other step. A look-out may end at any moment; of its looks that find nothing only
 * the last is a step, and IsDone looks no further than to the first part that is not done.
 * Helpers come when they come, or never, and may leave between two rounds. Whether others find a thread there, which
 * says only whose parts they take at once (has_thread_), is chosen each time.
 *
 * Checked: of every round every part runs once, when all parts of the round before have ended, and where one fails no
 * other round begins; each thread leaves, and the caller when all rounds are over, or one has failed and no part runs;
 * when it has left nobody touches what is not the run's own. No execution is endless (the script searches for cycles),
 * so it is enough that none ends anywhere else.
 *
 * Given by the script: TASKS_OF, THREADS, ROUNDS.
 * FAILS: parts may fail, any of them, which takes in those that a cancellation stops.
 * STALLS: a helper may stand still until the caller has left wherever it has not taken a part.
 * WATCHED: observers are told, so the caller waits for whoever is inside.
 * WAKES: a thread asleep in signal_.wait looks again once for no reason.
 * MUTANT: one protection is missing, which must be found. */

#ifndef MUTANT
#define MUTANT 0
#endif
#define SLEEPERS_NOT_COUNTED 1
#define COUNTED_AFTER_LOOK 2
#define SEEN_AFTER_LOOK 3
#define SLEEPS_WITHOUT_LOOK 4
#define WAKE_WITHOUT_SIGNAL 5
#define WAKES_ONE 6
#define DONE_WITHOUT_WAKE 7
#define WAKE_BEFORE_DONE 8
#define DONE_BEFORE_PART 9
#define FAILS_AFTER_DONE 10
#define TAKES_IN_TWO_STEPS 11
#define TAKES_UNCHECKED 12
#define TAKES_PART_BEYOND 13
#define STARTS_BEHIND_FIRST_OPEN 14
#define DONE_WHEN_FIRST_IS 15
#define HELPS_NEVER_ALL 16
#define GOES_ON_WHEN_OVER 17
#define WAITS_WHEN_OVER 18
#define STOPS_NOTHING 19
#define STOPS_WITHOUT_WAITING 20
#define STOPS_WITHOUT_EXCHANGE 21
#define ENTERS_UNCOUNTED 22
#define NEVER_CLOSED 23
#define LEAVE_TELLS_NOBODY 24
#define CALLER_WAITS_FOR_NOBODY 25

/* Rounds are the tasks in turn. */
#define ALL 1   /* one, in a part for each thread */
#define FEWER 2 /* one of those, and one in a part less */
#define ALONE 3 /* one in one part, and one in two */
#define MORE 4  /* one in two parts for each thread, and one in a part for each */

/* parts_of_task_ */
#if TASKS_OF == ALL
#define PARTS(round) THREADS
#elif TASKS_OF == FEWER
#define PARTS(round) (THREADS - (round) % 2)
#elif TASKS_OF == ALONE
#define PARTS(round) (1 + (round) % 2)
#elif TASKS_OF == MORE
#define PARTS(round) (THREADS * (2 - (round) % 2))
#endif

#if TASKS_OF == MORE
#define MOST_PARTS (2 * THREADS)
#else
#define MOST_PARTS THREADS
#endif

#define FIRST_PART_OF(lane) \
  (PARTS(round) > THREADS -> PARTS(round) * (lane) / THREADS : ((lane) < PARTS(round) -> (lane) : PARTS(round)))

#define NEVER_MORE (ROUNDS + 1)

byte begun[MOST_PARTS];
byte done[MOST_PARTS];

bool failure_;
bool over_;
byte sleepers_;
bool news[THREADS] = true; /* by lane: signal_ is not what the thread has seen */
bool watched_mutex_;
byte inside_;
bool closed_;

bool asleep[THREADS];   /* in the kernel, by lane */
#ifdef WAKES
bool may_wake = true;
#endif
short started;          /* ghost: a set of bits, rounds and their parts */
short ended;            /* ghost */
short failed;           /* ghost */
byte left;              /* ghost: threads that have left Join, or never come */
bool caller_left;       /* ghost */

#define BIT(round, part) (1 << ((round) * MOST_PARTS + (part)))
#define HAS_ENDED(round) (((~ended >> ((round) * MOST_PARTS)) & ((1 << PARTS(round)) - 1)) == 0)

#define LOCK(mutex) atomic { !mutex -> mutex = true }
#define UNLOCK(mutex) mutex = false

/* A step that needs the state or the caller's context. */
#define TOUCH assert(!caller_left)

inline Wake() {
#if MUTANT != WAKE_WITHOUT_SIGNAL
  d_step { news[0] = true; news[THREADS / 2] = true; news[THREADS - 1] = true };
#endif
#if MUTANT == WAKES_ONE
  atomic {
    if
    :: asleep[0] -> asleep[0] = false
    :: asleep[THREADS / 2] -> asleep[THREADS / 2] = false
    :: asleep[THREADS - 1] -> asleep[THREADS - 1] = false
    :: !asleep[0] && !asleep[THREADS / 2] && !asleep[THREADS - 1]
    fi
  }
#else
  d_step { asleep[0] = false; asleep[THREADS / 2] = false; asleep[THREADS - 1] = false }
#endif
}

/* Sleep, up to its look, which sets is_over, and from there on. */
inline BeginSleep() {
#if MUTANT != SLEEPERS_NOT_COUNTED && MUTANT != COUNTED_AFTER_LOOK
  sleepers_++;
#endif
#if MUTANT != SEEN_AFTER_LOOK
  news[lane] = false
#else
  skip
#endif
}

inline EndSleep() {
#if MUTANT == COUNTED_AFTER_LOOK
  sleepers_++;
#elif MUTANT == SEEN_AFTER_LOOK
  news[lane] = false;
#elif MUTANT == SLEEPS_WITHOUT_LOOK
  is_over = false;
#endif
  if
  :: is_over
  :: else ->
     do /* signal_.wait */
     :: atomic { news[lane] -> break }
     :: atomic { !news[lane] -> asleep[lane] = true };
        if
        :: !asleep[lane]
#ifdef WAKES
        :: atomic { may_wake && asleep[lane] -> may_wake = false; asleep[lane] = false }
#endif
        fi
     od
  fi;
  atomic {
#if MUTANT != SLEEPERS_NOT_COUNTED
    sleepers_--;
#endif
    news[lane] = true;
    is_over = false
  }
}

#if MUTANT == DONE_WHEN_FIRST_IS
#define LOOKS_AT(part) false
#else
#define LOOKS_AT(part) ((part) < PARTS(round) && is_over)
#endif

inline IsDone() {
  is_over = done[0] > round;
  if
  :: d_step { LOOKS_AT(1) -> is_over = done[1] > round }
  :: else
  fi;
#if THREADS == 3 || TASKS_OF == MORE
  if
  :: d_step { LOOKS_AT(2) -> is_over = done[2] > round }
  :: else
  fi;
#endif
#if TASKS_OF == MORE
  if
  :: d_step { LOOKS_AT(3) -> is_over = done[3] > round }
  :: else
  fi;
#endif
  skip
}

inline IsOver() {
  IsDone();
#if MUTANT != WAITS_WHEN_OVER
  if
  :: is_over
  :: else -> is_over = over_
  fi
#endif
}

inline TryPart(part) {
#ifdef STALLS
  if
  :: true
  :: lane > 0 -> caller_left
  fi;
#endif
  expected = begun[part];
  do
#if MUTANT != TAKES_UNCHECKED
  :: atomic { expected > round -> expected = 0; break }
#endif
#if MUTANT == TAKES_IN_TWO_STEPS
  :: atomic { expected <= round -> begun[part] = round + 1; expected = 0 };
#elif MUTANT == TAKES_UNCHECKED
  :: atomic { begun[part] = round + 1; expected = 0 };
#else
  :: d_step { expected <= round && begun[part] != expected -> expected = begun[part] }
  :: d_step { expected <= round && begun[part] == expected -> begun[part] = round + 1; expected = 0 };
#endif
#if MUTANT == DONE_BEFORE_PART
     done[part] = round + 1;
#endif
     d_step { /* RunPart */
       TOUCH;
       assert(part < PARTS(round) && (started & BIT(round, part)) == 0);
       assert(round == 0 || HAS_ENDED(round - 1));
       started = started | BIT(round, part)
     };
     if
     :: d_step { TOUCH; ended = ended | BIT(round, part) }
#ifdef FAILS
     :: d_step { TOUCH; failed = failed | BIT(round, part) };
        failure_ = true;
#if MUTANT == FAILS_AFTER_DONE
        done[part] = round + 1;
#endif
        over_ = true;
        Wake()
#endif
     fi;
#if MUTANT == WAKE_BEFORE_DONE
     if
     :: sleepers_ > 0 -> Wake()
     :: else
     fi;
#endif
     done[part] = round + 1;
#if MUTANT != DONE_WITHOUT_WAKE && MUTANT != WAKE_BEFORE_DONE
     if
     :: sleepers_ > 0 -> Wake()
     :: else
     fi;
#endif
     break
  od
}

/* A thread that was not there, for others, goes on with FirstOpen. */
inline Come() {
  expected = 1;
  do
  :: d_step { p < MOST_PARTS -> expected = (done[p] > expected -> done[p] : expected); p++ }
  :: p == MOST_PARTS -> break
  od;
  atomic {
    p = 0;
#if MUTANT != STARTS_BEHIND_FIRST_OPEN
    expected--;
#endif
    round = (expected > round -> expected : round);
    expected = 0
  }
}

inline StopParts() {
  do
  :: p < MOST_PARTS ->
     atomic {
       expected = begun[p];
#if MUTANT != STOPS_WITHOUT_EXCHANGE
       begun[p] = NEVER_MORE
#endif
     };
     do
#if MUTANT == STOPS_WITHOUT_WAITING
     :: break
#else
     :: done[p] >= expected -> break
     :: else ->
        BeginSleep();
        is_over = done[p] >= expected;
        EndSleep()
#endif
     od;
     atomic { expected = 0; p++ }
  :: atomic { p == MOST_PARTS -> p = 0; break }
  od
}

/* The section of WaitForWatched. */
inline IsEmpty() {
  atomic {
    !watched_mutex_ ->
#if MUTANT != NEVER_CLOSED
    closed_ = true;
#endif
    is_over = inside_ == 0
  }
}

proctype Thread(byte lane) {
  byte round, p, expected; /* begun, as TryPart and StopParts have read it */
  bool is_over;

  if
  :: lane == 0
  :: lane > 0 -> goto gone
  :: lane > 0 ->
#ifdef WATCHED
     atomic { /* Enter */
       !watched_mutex_ ->
       if
       :: closed_ -> goto gone
       :: else
       fi;
#if MUTANT != ENTERS_UNCOUNTED
       inside_++
#endif
     };
     TOUCH
#endif
  fi;

  do /* GoThrough */
#if MUTANT != GOES_ON_WHEN_OVER
  :: over_ -> break
  :: else ->
#else
  :: true ->
#endif
     if /* has_thread_ */
     :: true
     :: Come()
     fi;
     if
     :: round >= ROUNDS -> break
     :: lane > 0 && round < ROUNDS -> break /* sleeps_much_ */
     :: round < ROUNDS
     fi;
#if MUTANT == TAKES_PART_BEYOND
     TryPart(lane);
#else
     p = FIRST_PART_OF(lane);
     do
     :: p < FIRST_PART_OF(lane + 1) -> TryPart(p); p++
     :: atomic { p == FIRST_PART_OF(lane + 1) -> p = 0; break }
     od;
#endif
     IsDone();
     if
     :: is_over
     :: else -> /* WaitFor */
#ifdef WATCHED
        TOUCH;
#endif
        do /* help, which in the code begins elsewhere in each thread */
        :: p < PARTS(round) ->
           if /* has_thread_ */
           :: PARTS(round) <= THREADS
           :: TryPart(p)
           fi;
           p++
        :: atomic { p == PARTS(round) -> p = 0; break }
        od;
        IsOver();
        do
        :: is_over -> break
        :: else ->
#if MUTANT != HELPS_NEVER_ALL
           do /* help */
           :: p < PARTS(round) -> TryPart(p); p++
           :: atomic { p == PARTS(round) -> p = 0; break }
           od;
#endif
           BeginSleep();
           IsOver();
           EndSleep();
           IsOver()
        od;
#ifdef WATCHED
        TOUCH
#endif
     fi;
     atomic { is_over = false; round++ }
  od;
  round = 0;

  if
#ifdef WATCHED
  :: lane > 0 ->
     TOUCH;
     LOCK(watched_mutex_); /* Leave */
#if MUTANT != ENTERS_UNCOUNTED
     inside_--;
#endif
#if MUTANT != LEAVE_TELLS_NOBODY
     Wake();
#endif
     UNLOCK(watched_mutex_)
#else
  :: lane > 0
#endif
  :: lane == 0 ->
#if MUTANT != STOPS_NOTHING
     if
     :: over_ -> StopParts()
     :: else
     fi;
#endif
#if defined(WATCHED) && MUTANT != CALLER_WAITS_FOR_NOBODY
     IsEmpty(); /* WaitForWatched */
     do
     :: is_over -> break
     :: else ->
        Wake();
        BeginSleep();
        IsEmpty();
        EndSleep();
        IsEmpty()
     od;
#endif
     atomic {
       assert(started == (ended | failed));
       assert(failed != 0 || !over_);
       do
       :: round < ROUNDS -> assert(failed != 0 || HAS_ENDED(round)); round++
       :: else -> break
       od;
       assert(failed == 0 || failure_);
       caller_left = true
     }
  fi;

gone:
  atomic { round = 0; is_over = false; left++ }
}

init {
  byte lane;
  atomic {
    do
    :: lane < THREADS -> run Thread(lane); lane++
    :: else -> break
    od
  };
  d_step {
    left == THREADS;
    assert(caller_left && sleepers_ == 0 && inside_ == 0 && !watched_mutex_);
    assert(started == (ended | failed))
  }
}
