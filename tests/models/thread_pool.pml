/* ThreadPool of core/thread_pool.cc as a model for spin; tests/models/run checks it.
 *
 * Names are those of the code. Up to two callers run works at the same time, and a thread that joins the work of caller
 * 0 may run another work from within it; one that joins a caller's work may invite a helper. A Join may leave at any
 * moment, as when a run has failed, or wait until nobody is busy in its work. Helpers come when they come. At last the
 * pool is stopped. The look-out decides nothing and is left out. Memory is sequentially consistent.
 *
 * Checked: a Join has a lane of its own that was asked for; an offer is listed until its caller has returned and no
 * longer, and helpers that leave later harm nobody; everything ends (the script searches for cycles too).
 *
 * Given by the script: CALLERS, HELPERS (1 or 2: that each caller wants; the run within a run wants one).
 * STALLS: a Join does not end while helpers are wanted and one is free: whoever waits must have been woken.
 * STOPS_EARLY: the pool is stopped at any moment, as where the thread ends that has forked the process.
 * WAKES: a thread that waits for a condition looks again once for no reason.
 * MUTANT: one protection is missing, which must be found. */

#ifndef MUTANT
#define MUTANT 0
#endif
#define STAYS_WANTED 1
#define LANE_UNLOCKED 2
#define STOPS_UNLOCKED 3
#define STOPS_SILENTLY 4
#define NOTIFIES_NOBODY 5
#define NOTIFIES_ONE 6
#define INVITES_UNLISTED 7

#define THREADS (2 + HELPERS) /* the callers, then the pool's */
#define OFFERS 3              /* of caller 0, of caller 1, the one from within the first work */
#define NESTED 2
#define HELPERS_OF(offer) ((offer) == NESTED -> 1 : HELPERS)

bool mutex_;
short wanted_; /* of all offers */
bool stops_;
byte threads_; /* made */

bool listed[OFFERS]; /* the offer is in offers_ */
byte wanted[OFFERS];
byte taken_lanes[OFFERS]; /* a set of bits: not in free_lanes */

byte offered_; /* a set of bits: the threads that wait for it */
#ifdef WAKES
bool may_wake = true;
#endif

/* Ghosts. */
byte lanes[OFFERS];  /* a set of bits: in use */
byte busy[OFFERS];   /* threads that work */
bool nested_began;
bool invited;
byte free_helpers;   /* made, and not in a Join */
byte done;           /* callers that have returned */
byte gone;           /* helpers that have ended */

#define LOCK() atomic { !mutex_ -> mutex_ = true }
#define UNLOCK() mutex_ = false

#define HAS(set, bit) (((set) >> (bit)) & 1)

/* The part of condition_variable::wait that sleeps. */
inline Wait(condition) {
  atomic { condition = condition | (1 << me); mutex_ = false };
  if
  :: !HAS(condition, me)
#ifdef WAKES
  :: atomic { may_wake && HAS(condition, me) -> may_wake = false; condition = condition & ~(1 << me) }
#endif
  fi;
  LOCK()
}

inline NotifyAll(condition) {
  condition = 0
}

inline NotifyOne(condition) {
  atomic {
    if
    :: HAS(condition, 0) -> condition = condition & ~1
    :: HAS(condition, 1) -> condition = condition & ~2
    :: HAS(condition, 2) -> condition = condition & ~4
    :: HAS(condition, 3) -> condition = condition & ~8
    :: condition == 0
    fi
  }
}

/* Join: works, perhaps with a run of its own, then leaves. */
inline BeginJoin(offer, lane) {
  d_step {
    assert(lane <= HELPERS_OF(offer));
    assert(((lanes[offer] >> lane) & 1) == 0);
    lanes[offer] = lanes[offer] | (1 << lane);
    busy[offer]++
  }
}

inline EndJoin(offer, lane) {
  busy[offer]--;
  if
  :: true
  :: true -> busy[offer] == 0
  fi;
#ifdef STALLS
  wanted[offer] == 0 || free_helpers == 0 || stops_;
#endif
  d_step {
    lanes[offer] = lanes[offer] & ~(1 << lane)
  }
}

/* Run, up to Join. */
inline BeginRun(offer) {
  LOCK();
  d_step {
    if
    :: !stops_ && threads_ < HELPERS_OF(offer) ->
       free_helpers = free_helpers + HELPERS_OF(offer) - threads_;
       threads_ = HELPERS_OF(offer)
    :: else
    fi;
    listed[offer] = true;
    wanted[offer] = HELPERS_OF(offer);
    wanted_ = wanted_ + HELPERS_OF(offer);
    taken_lanes[offer] = 0
  };
  UNLOCK();
#if MUTANT == NOTIFIES_ONE
  NotifyOne(offered_)
#elif MUTANT != NOTIFIES_NOBODY
  if
  :: HELPERS_OF(offer) == 1 -> NotifyOne(offered_)
  :: else -> NotifyAll(offered_)
  fi
#endif
}

/* Within the Join of a caller's work, once a run. */
inline PerhapsInvite(offer) {
  if
  :: atomic { offer != NESTED && !invited -> invited = true };
     LOCK();
     atomic {
       asked = (wanted[offer] + HAS(taken_lanes[offer], 1) + HAS(taken_lanes[offer], 2) < HELPERS_OF(offer));
#if MUTANT != INVITES_UNLISTED
       asked = asked && listed[offer];
#endif
       wanted[offer] = wanted[offer] + asked;
       wanted_ = wanted_ + asked
     };
     UNLOCK();
     if
     :: asked -> NotifyOne(offered_)
     :: else
     fi
  :: true
  fi
}

/* Run, from Join on. */
inline EndRun(offer) {
  LOCK();
#if MUTANT != STAYS_WANTED
  d_step { wanted_ = wanted_ - wanted[offer]; wanted[offer] = 0 };
#endif
  atomic { listed[offer] = false; wanted[offer] = 0 };
  UNLOCK()
}

inline PerhapsRunNested(offer) {
  if
  :: atomic { offer == 0 && !nested_began -> nested_began = true };
     BeginRun(NESTED);
     BeginJoin(NESTED, 0);
     EndJoin(NESTED, 0);
     EndRun(NESTED)
  :: true
  fi
}

proctype Caller(byte me) {
  byte asked;
  BeginRun(me);
  BeginJoin(me, 0);
  PerhapsRunNested(me);
  PerhapsInvite(me);
  EndJoin(me, 0);
  EndRun(me);
  done++
}

proctype Help(byte me) {
  byte offer, lane, asked;
end:
  threads_ > me - 2;
  LOCK();
  do
  :: stops_ -> break
  :: !stops_ && wanted_ == 0 -> Wait(offered_)
  :: !stops_ && wanted_ > 0 ->
     atomic {
       if /* the code takes the first */
       :: listed[0] && wanted[0] > 0 -> offer = 0
       :: listed[1] && wanted[1] > 0 -> offer = 1
       :: listed[2] && wanted[2] > 0 -> offer = 2
       :: else -> assert(false)
       fi;
       wanted[offer]--;
       wanted_--;
       free_helpers--;
#if MUTANT != LANE_UNLOCKED
       lane = (HAS(taken_lanes[offer], 1) -> 2 : 1);
       taken_lanes[offer] = taken_lanes[offer] | (1 << lane)
#endif
     };
     UNLOCK();
#if MUTANT == LANE_UNLOCKED
     lane = (HAS(taken_lanes[offer], 1) -> 2 : 1);
     taken_lanes[offer] = taken_lanes[offer] | (1 << lane);
#endif
     BeginJoin(offer, lane);
     PerhapsRunNested(offer);
     PerhapsInvite(offer);
     EndJoin(offer, lane);
     LOCK();
     d_step {
       taken_lanes[offer] = taken_lanes[offer] & ~(1 << lane);
       free_helpers++
     };
     UNLOCK();
     LOCK()
  od;
  UNLOCK();
  gone++
}

/* The process: two runs, then the end of the pool; or that at any moment. */
init {
  byte i;
  atomic {
    run Caller(0);
#if CALLERS == 2
    run Caller(1);
#endif
    i = 2;
    do
    :: i < THREADS -> run Help(i); i++
    :: else -> break
    od
  };
#ifndef STOPS_EARLY
  /* Nothing is left behind, but what a helper does that has stayed. */
  done == CALLERS && wanted_ == 0 && !listed[0] && !listed[1] && !listed[NESTED];
#endif
#if MUTANT != STOPS_UNLOCKED
  LOCK();
#endif
  stops_ = true;
  UNLOCK();
#if MUTANT != STOPS_SILENTLY
  NotifyAll(offered_);
#endif
  gone == threads_ && done == CALLERS
}
