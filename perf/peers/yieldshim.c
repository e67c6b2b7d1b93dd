/* LD_PRELOAD: gives the core up whenever UCX progress found nothing to do. MPICH spins and has no setting against it;
 * with more ranks than cores that costs it orders of magnitude, and the comparison would be unfair. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>

unsigned ucp_worker_progress(void *worker)
{
    static unsigned (*next)(void *);
    if (!next)
        next = (unsigned (*)(void *))dlsym(RTLD_NEXT, "ucp_worker_progress");
    unsigned done = next(worker);
    if (!done)
        sched_yield();
    return done;
}
