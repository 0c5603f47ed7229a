package sim

import (
	"math"
	"time"
)

// queue is a service as a queue with k servers.
type queue struct {
	service time.Duration // CPU time of a request on average, at full speed
	speed   float64       // of its CPUs
	servers float64       // CPUs that it gets when it wants them
	offered float64       // CPUs of work that come, at full speed
	backlog float64       // CPU seconds of work that wait already
	blocked float64       // chance that a CPU is not given at once to a task that wakes
}

// slice is how long a task that is not preempted keeps a CPU: the fair scheduler's
// base slice on 8 CPUs and more (sysctl_sched_base_slice, 0.7 ms × (1 + log2 8), in
// kernel/sched/fair.c).
const slice = 2.8e-3

// p99 estimates the time in seconds in which 99 % of the requests are answered; +Inf
// where more comes than can be done.
//
// Requests come at random (Poisson) and take exponentially distributed time, so this
// is M/M/k. A request waits with probability P ≈ ρ^(√(2(k+1))−1) (Sakasegawa, "An
// approximation formula Lq = αρ^β/(1−ρ)", 1977, solved for the chance to wait), and
// who waits does so exponentially with mean S/(k(1−ρ)); the sum's percentile is taken
// as the sum of percentiles, which is above the real one. To this come the wait for a
// CPU that another task holds, uniform in one slice, and the work that already waits.
//
// Limits: each step is taken as if it were steady, so the estimate lags behind a
// change by no more and no less than the backlog does; there is no correlation of
// requests, no lock, no network; a k between whole numbers is as good as it sounds.
func (q *queue) p99() float64 {
	k := max(1, q.servers)
	speed := q.speed * min(1, q.servers)
	if speed <= 0 {
		return math.Inf(1)
	}
	mean := q.service.Seconds() / speed
	load := q.offered / (q.speed * q.servers)
	if load >= 1 {
		return math.Inf(1)
	}
	const tail = 100 // 1 / (1 − 0.99)
	time := math.Log(tail) * mean
	wait := math.Pow(load, math.Sqrt(2*(k+1))-1)
	if wait*tail > 1 {
		time += math.Log(wait*tail) * mean / (k * (1 - load))
	}
	if q.blocked*tail > 1 {
		time += slice * (1 - 1/(q.blocked*tail))
	}
	return time + q.backlog/(q.speed*q.servers)
}
