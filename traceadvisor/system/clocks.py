"""The functions of ``time`` as they were before a script could replace them there."""

import time as _time

clock_gettime_ns = _time.clock_gettime_ns
monotonic = _time.monotonic
perf_counter = _time.perf_counter
perf_counter_ns = _time.perf_counter_ns
process_time_ns = _time.process_time_ns
pthread_getcpuclockid = _time.pthread_getcpuclockid
sleep = _time.sleep
thread_time = _time.thread_time
thread_time_ns = _time.thread_time_ns
time = _time.time
time_ns = _time.time_ns
