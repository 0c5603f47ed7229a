package cpualloc

import (
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// ShortageError says that too few suitable CPUs are free now. The same request can succeed once
// others give some back.
type ShortageError struct {
	Requested  int // number of CPUs, including those already held
	Held       int // number of CPUs already held (Preference.Held)
	Free       int // number of free CPUs, suitable or not
	Preference Preference
}

func (e *ShortageError) Error() string {
	need := describe(e.Requested, &e.Preference) + " needed"
	if e.Held > 0 {
		need = fmt.Sprintf("%d more for %s needed", e.Requested-e.Held, describe(e.Requested, &e.Preference))
	}
	if e.Free < e.Requested-e.Held {
		return fmt.Sprintf("%s, %d free", need, e.Free)
	}
	return fmt.Sprintf("%s, %d free but not so that they fit: %s, or wait until neighbours end", need, e.Free, relax(&e.Preference))
}

// ImpossibleError says that the machine can't satisfy the request even if all of its CPUs are
// free.
type ImpossibleError struct {
	Requested  int
	Preference Preference
	Reason     string
}

func (e *ImpossibleError) Error() string {
	return describe(e.Requested, &e.Preference) + ": " + e.Reason
}

// refusal returns a shortage or an impossible error, after trying the request with every CPU of
// the machine free.
func (a *Allocator) refusal(free, n int, p Preference) error {
	held := p.Held.Size()
	all := cpuset.Difference(a.machine.Online, p.Held)
	if _, ok := a.choose(&request{Preference: p, free: all, n: n - held}); ok {
		return &ShortageError{Requested: n, Held: held, Free: free, Preference: p}
	}
	if p.SMT == workload.SMTFullCore && a.threads > 1 && n%a.threads != 0 {
		return &ImpossibleError{Requested: n, Preference: p, Reason: fmt.Sprintf(
			"this machine's cores have %d threads each; ask for a multiple of %d, or use smt any", a.threads, a.threads)}
	}
	reason := fmt.Sprintf("this machine has %d CPUs in %d cores and %d NUMA nodes",
		a.machine.Online.Size(), len(a.machine.Cores), len(a.nodes))
	if held > 0 {
		reason += fmt.Sprintf(", and CPUs %v are to be kept", p.Held)
	}
	return &ImpossibleError{Requested: n, Preference: p, Reason: reason + "; ask for fewer, or " + relax(&p)}
}

// describe describes the request: "6 CPUs in one NUMA node as full cores".
func describe(n int, p *Preference) string {
	text := humanize.Count(n, "CPU")
	switch p.NUMA {
	case workload.NUMASingle:
		text += " in one NUMA node"
	case workload.NUMASpread:
		text += " spread over the NUMA nodes"
	}
	switch p.SMT {
	case workload.SMTFullCore:
		text += " as full cores"
	case workload.SMTOnePerCore:
		text += " with one thread per core"
	}
	return text
}

// relax names the preferences that make the request hard to meet.
func relax(p *Preference) string {
	var ways []string
	if p.NUMA == workload.NUMASingle {
		ways = append(ways, "numa prefer")
	}
	if p.SMT == workload.SMTFullCore || p.SMT == workload.SMTOnePerCore {
		ways = append(ways, "smt any")
	}
	if len(ways) == 0 {
		return "use a larger machine"
	}
	return "use " + strings.Join(ways, " and ")
}

func belowKept(n, kept int) string {
	if n < 1 {
		return "the number is at least 1"
	}
	return fmt.Sprintf("%d are to be kept already; shrink the set instead", kept)
}

func outsideHeld(n, held int) string {
	if n < 1 {
		return "the number is at least 1"
	}
	return fmt.Sprintf("only %d are held; take more instead", held)
}
