/* A measured window: what the kernel counted between window_open and window_close, as one line of output. */
#pragma once

/* Opens the counting window; the next instruction of the caller is inside. */
void window_open(void);

/* Closes the window and prints `@@{"phase":…}`: time, changes of the mTHP and vmstat statistics, counters. */
void window_close(const char *phase);

/* Starts counting for the calling process, as window_open does at its end; returns 0 if there are no counters. */
int counters_start(void);
