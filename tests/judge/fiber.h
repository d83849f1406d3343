// Fibers for the threads of a block: small stacks that are never freed, switched by hand on x86-64
// and by ucontext elsewhere.
#ifndef JUDGE_FIBER_H
#define JUDGE_FIBER_H

struct judge_fiber;

// A fiber that will run `entry`, which must never return.
judge_fiber *judge_new_fiber(void (*entry)());

judge_fiber *judge_current_fiber();
judge_fiber *judge_host_fiber();
void judge_switch(judge_fiber *to);

// Ends the process with a fault when the current fiber has overrun its stack.
void judge_check_stack();

#endif
