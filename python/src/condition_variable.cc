// The one function of GCC 12's libstdc++ that older ones lack: its version there is GLIBCXX_3.4.30, and wheels are to
// run where there is 3.4.29. The linker calls this in its place (python/CMakeLists.txt).
#include <pthread.h>

#include <condition_variable>
#include <mutex>

// std::condition_variable::wait(std::unique_lock<std::mutex>&). The lock is held, as it must be.
extern "C" void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* condition,
                                                                                 std::unique_lock<std::mutex>* lock) {
  pthread_cond_wait(condition->native_handle(), lock->mutex()->native_handle());
}
